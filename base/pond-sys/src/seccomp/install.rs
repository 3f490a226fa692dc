//! Hands a compiled filter to the kernel.
//!
//! Zone: runs between fork and exec in a single-threaded process, so it neither allocates nor locks; or in a process whose
//! threads all have to be held.
//! Invariant: the filter either holds from the moment this returns `Ok`, or the caller learns why not.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use super::compile::{Filter, Instruction};

const _: () = assert!(
    size_of::<Instruction>() == size_of::<libc::sock_filter>()
        && align_of::<Instruction>() == align_of::<libc::sock_filter>()
);

/// Installs `filter` on the calling thread, for good. The caller has set `no_new_privs`, or the kernel refuses.
pub fn install(filter: &Filter) -> io::Result<()> {
    // No flags: speculation mitigations stay on for hostile code.
    seccomp(filter, 0)
}

/// Installs `filter` on the calling thread, for good; what it returns hears of every call that the filter leaves to whoever has it. A
/// call that is being heard of is interrupted by nothing but the end of its process.
pub fn install_with_listener(filter: &Filter) -> io::Result<OwnedFd> {
    let listener =
        set(filter, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)?;
    let listener = RawFd::try_from(listener).map_err(|_| crate::out_of_range())?;
    // SAFETY: the kernel made this descriptor for us just now, and nobody else has its number.
    Ok(unsafe { OwnedFd::from_raw_fd(listener) })
}

/// Installs `filter` on every thread of this process, for good, or on none.
pub fn install_on_every_thread(filter: &Filter) -> io::Result<()> {
    seccomp(filter, libc::SECCOMP_FILTER_FLAG_TSYNC)
}

fn seccomp(filter: &Filter, flags: libc::c_ulong) -> io::Result<()> {
    match set(filter, flags)? {
        0 => Ok(()),
        // The thread that has filters of its own.
        _ => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

fn set(filter: &Filter, flags: libc::c_ulong) -> io::Result<libc::c_long> {
    let instructions = filter.instructions();
    let len = u16::try_from(instructions.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len, filter: instructions.as_ptr().cast_mut().cast() };
    // SAFETY: `program` names exactly `len` initialised instructions of `sock_filter`'s layout (asserted above), borrowed
    // from `filter` until after the call; the kernel only reads them, and copies them before it returns.
    let status =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    crate::check(status)
}
