//! Files opened without walking to them, flags that outlive a job, and terminals that obey whoever writes to them.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{closing, reached};

/// `struct file_handle` with room for any handle.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    data: [u8; 128],
}

/// Takes the handle of `path` and opens the file by it: the way around every directory's permissions.
pub fn open_by_handle(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut handle = Handle { bytes: 128, kind: 0, data: [0; 128] };
    let mut mount: libc::c_int = 0;
    // SAFETY: the path is NUL-terminated, `handle` says how much room it has, and both outlive the call.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            path.as_ptr(),
            &raw mut handle,
            &raw mut mount,
            0,
        )
    };
    crate::check(ret)?;
    // SAFETY: the kernel has just filled `handle`, and only reads it here.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            libc::AT_FDCWD,
            &raw const handle,
            libc::O_RDONLY | libc::O_CLOEXEC,
        )
    };
    closing(crate::check(ret))
}

/// Sets the flag that keeps `dump` away from a file: the least of those that outlive their maker.
pub fn set_inode_flag(file: impl AsFd) -> io::Result<()> {
    const FS_IOC_SETFLAGS: libc::c_ulong = 0x4008_6602;
    const NO_DUMP: libc::c_int = 0x40;
    let flags = NO_DUMP;
    // SAFETY: the kernel reads one int that outlives the call.
    let ret = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), FS_IOC_SETFLAGS, &raw const flags) };
    crate::check(ret.into()).map(|_| ())
}

/// Tells the disk below a directory to discard unused blocks, beyond its end where there are none.
pub fn discard_unused(directory: impl AsFd) -> io::Result<()> {
    const FITRIM: libc::c_ulong = 0xC018_5879;
    let mut range = [u64::MAX, 0, 0];
    // SAFETY: `struct fstrim_range` is three 64-bit numbers, read and written by the kernel.
    let ret = unsafe { libc::ioctl(directory.as_fd().as_raw_fd(), FITRIM, range.as_mut_ptr()) };
    reached(crate::check(ret.into()), &[libc::EINVAL, libc::EOPNOTSUPP])
}

/// What a driver answers to a request it does not have, or does not offer any more.
const DRIVER_ANSWERS: [i32; 3] = [libc::ENOTTY, libc::EINVAL, libc::EIO];

/// Types one character into a terminal as if a person had.
pub fn type_into_terminal(terminal: impl AsFd) -> io::Result<()> {
    const TIOCSTI: libc::c_ulong = 0x5412;
    let character = b' ';
    // SAFETY: the driver reads one byte that outlives the call.
    let ret = unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), TIOCSTI, &raw const character) };
    reached(crate::check(ret.into()), &DRIVER_ANSWERS)
}

/// Asks a console for its shift state.
pub fn drive_console(terminal: impl AsFd) -> io::Result<()> {
    const TIOCLINUX: libc::c_ulong = 0x541C;
    let mut command: [u8; 16] = [6; 16];
    // SAFETY: this subcommand reads one byte and writes one.
    let ret = unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), TIOCLINUX, command.as_mut_ptr()) };
    reached(crate::check(ret.into()), &DRIVER_ANSWERS)
}

/// Sets the line discipline a terminal has anyway.
pub fn set_line_discipline(terminal: impl AsFd) -> io::Result<()> {
    const TIOCSETD: libc::c_ulong = 0x5423;
    let ordinary: libc::c_int = 0;
    // SAFETY: the driver reads one int that outlives the call.
    let ret = unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), TIOCSETD, &raw const ordinary) };
    reached(crate::check(ret.into()), &DRIVER_ANSWERS)
}
