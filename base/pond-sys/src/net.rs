//! Network interfaces of the calling process's network namespace.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Brings the loopback interface up. `socket` is any socket of the namespace.
pub fn loopback_up(socket: impl AsFd) -> io::Result<()> {
    // SAFETY: `ifreq` is plain data for which all-zero bytes are a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(*b"lo") {
        *slot = libc::c_char::try_from(byte).map_err(|_| crate::out_of_range())?;
    }
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).map_err(|_| crate::out_of_range())?;
    // SAFETY: `request` is a live, fully initialised `ifreq` with a NUL-terminated name.
    let ret = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    crate::check(ret.into()).map(|_| ())
}
