//! The machine itself: clock, power, kernels, modules, swap, accounting, quota.
//!
//! Every call here is malformed in a way the kernel notices only after it has checked for permission, or names a file that
//! does not exist: where it is permitted it changes nothing.

use std::io;

use super::reached;

const NOWHERE: &std::ffi::CStr = c"/proc/self/pond-attack-nowhere";

/// Sets neither the time nor the time zone, which still needs permission.
pub fn set_time_of_day() -> io::Result<()> {
    let nothing = std::ptr::null::<u8>();
    // SAFETY: both pointers may be null.
    crate::check(unsafe { libc::syscall(libc::SYS_settimeofday, nothing, nothing) }).map(|_| ())
}

/// Sets the clock to a time that is none. Only a filter refuses before the kernel looks at it.
pub fn set_clock() -> io::Result<()> {
    let impossible = libc::timespec { tv_sec: 0, tv_nsec: -1 };
    // SAFETY: the kernel reads one timespec that outlives the call.
    let ret = unsafe { libc::syscall(libc::SYS_clock_settime, libc::CLOCK_REALTIME, &raw const impossible) };
    reached(crate::check(ret), &[libc::EINVAL])
}

/// Asks for a clock tick far out of range.
pub fn adjust_clock() -> io::Result<()> {
    // SAFETY: `timex` is plain data for which all-zero bytes are a valid value.
    let mut request: libc::timex = unsafe { std::mem::zeroed() };
    request.modes = libc::ADJ_TICK;
    request.tick = 1;
    // SAFETY: the kernel reads and writes one timex that outlives the call.
    let ret = unsafe { libc::syscall(libc::SYS_adjtimex, &raw mut request) };
    reached(crate::check(ret), &[libc::EINVAL])
}

/// A reboot without the numbers that make it one.
pub fn reboot() -> io::Result<()> {
    let nothing = std::ptr::null::<u8>();
    // SAFETY: with wrong magic numbers the call ends before it looks at its last argument.
    let ret = unsafe { libc::syscall(libc::SYS_reboot, 0, 0, 0, nothing) };
    reached(crate::check(ret), &[libc::EINVAL])
}

pub fn swap_on() -> io::Result<()> {
    // SAFETY: the name is NUL-terminated.
    let ret = unsafe { libc::syscall(libc::SYS_swapon, NOWHERE.as_ptr(), 0) };
    reached(crate::check(ret), &[libc::ENOENT])
}

pub fn swap_off() -> io::Result<()> {
    // SAFETY: the name is NUL-terminated.
    let ret = unsafe { libc::syscall(libc::SYS_swapoff, NOWHERE.as_ptr()) };
    reached(crate::check(ret), &[libc::ENOENT, libc::EINVAL])
}

/// A load with flags no kernel knows: with good ones and no segments it would unload what is there.
pub fn kexec() -> io::Result<()> {
    const UNKNOWN_FLAGS: libc::c_ulong = 0xFF00;
    let nothing = std::ptr::null::<u8>();
    // SAFETY: no segments are passed, and unknown flags end the call before anything is read.
    let ret = unsafe { libc::syscall(libc::SYS_kexec_load, 0usize, 0usize, nothing, UNKNOWN_FLAGS) };
    reached(crate::check(ret), &[libc::EINVAL])
}

/// A module of no bytes.
pub fn load_module() -> io::Result<()> {
    let image: [u8; 0] = [];
    // SAFETY: the image has no bytes, and the parameters are an empty NUL-terminated string.
    let ret = unsafe { libc::syscall(libc::SYS_init_module, image.as_ptr(), 0usize, c"".as_ptr()) };
    reached(crate::check(ret), &[libc::ENOEXEC, libc::EINVAL])
}

/// Unloads a module that is not loaded.
pub fn unload_module() -> io::Result<()> {
    // SAFETY: the name is NUL-terminated.
    let ret = unsafe {
        libc::syscall(libc::SYS_delete_module, c"pond_attack_no_such_module".as_ptr(), libc::O_NONBLOCK)
    };
    reached(crate::check(ret), &[libc::ENOENT])
}

/// Process accounting into a file that cannot exist.
pub fn account_processes() -> io::Result<()> {
    // SAFETY: the name is NUL-terminated.
    let ret = unsafe { libc::syscall(libc::SYS_acct, NOWHERE.as_ptr()) };
    reached(crate::check(ret), &[libc::ENOENT, libc::EACCES])
}

/// Asks for the quota format of a device that does not exist.
pub fn quota() -> io::Result<()> {
    const Q_GETFMT: libc::c_int = 0x0080_0004;
    let command = Q_GETFMT << 8;
    let mut format = 0u32;
    // SAFETY: the device name is NUL-terminated and the answer, if any, has four bytes.
    let ret = unsafe { libc::syscall(libc::SYS_quotactl, command, NOWHERE.as_ptr(), 0, &raw mut format) };
    reached(crate::check(ret), &[libc::ENOENT, libc::ENOTBLK])
}
