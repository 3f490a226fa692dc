//! Calls under other numberings than the filter's own: the 32-bit table, the x32 table, and every refused number by itself.

use std::io;
#[cfg(target_arch = "x86_64")]
use std::os::fd::FromRawFd;

use crate::seccomp;

const PACKET: libc::c_long = 17;
const RAW: libc::c_long = 3;

/// A packet socket through the 32-bit table, where a filter for the 64-bit one would not see it.
#[cfg(target_arch = "x86_64")]
pub fn socket_as_i386() -> io::Result<()> {
    const SOCKET: i32 = 359;
    let answer: i32;
    // SAFETY: the interrupt enters the kernel with the registers of the 32-bit table and changes rax and flags alone; the
    // compiler keeps rbx for itself, so it is saved around the call. No memory is passed.
    unsafe {
        std::arch::asm!(
            "xchg {family:r}, rbx",
            "int 0x80",
            "xchg {family:r}, rbx",
            family = inout(reg) PACKET => _,
            inlateout("eax") SOCKET => answer,
            in("ecx") RAW,
            in("edx") 0,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    if answer < 0 {
        return Err(io::Error::from_raw_os_error(-answer));
    }
    // SAFETY: the kernel has just returned this descriptor, so nobody else owns it.
    drop(unsafe { std::os::fd::OwnedFd::from_raw_fd(answer) });
    Ok(())
}

/// A packet socket through the x32 table.
#[cfg(target_arch = "x86_64")]
pub fn socket_as_x32() -> io::Result<()> {
    const X32: libc::c_long = 0x4000_0000;
    // SAFETY: the call takes only numbers.
    super::closing(crate::check(unsafe { libc::syscall(X32 | libc::SYS_socket, PACKET, RAW, 0) }))
}

#[cfg(not(target_arch = "x86_64"))]
pub fn socket_as_i386() -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

#[cfg(not(target_arch = "x86_64"))]
pub fn socket_as_x32() -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

/// Makes every call the workload filter refuses whatever its arguments, with arguments that mean nothing. Succeeds when one
/// of them was answered by anything but the filter.
pub fn reach_refused_calls() -> io::Result<()> {
    let nonsense = usize::MAX;
    for number in seccomp::always_refused() {
        // It takes no arguments, so it cannot be made harmless by nonsense: it would hang up the caller's terminal.
        if libc::c_long::from(number) == libc::SYS_vhangup {
            continue;
        }
        // SAFETY: every pointer is an address that no process has, every descriptor one that no process holds, every set of
        // flags one that no kernel knows; the kernel answers with an error before it acts.
        let ret = unsafe {
            libc::syscall(number.into(), nonsense, nonsense, nonsense, nonsense, nonsense, nonsense)
        };
        match crate::check(ret).map_err(|fault| fault.raw_os_error()) {
            Err(Some(libc::EPERM | libc::ENOSYS)) => {}
            Ok(_) | Err(_) => return Ok(()),
        }
    }
    Err(io::Error::from_raw_os_error(libc::EPERM))
}
