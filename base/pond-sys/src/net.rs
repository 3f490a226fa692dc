//! What a network namespace is told through its sockets.

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

/// Lets a listener take connections that were made to any address (`IP_TRANSPARENT`). Needs power over the namespace.
pub fn accept_for_any_address(socket: impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).map_err(|_| crate::out_of_range())?;
    // SAFETY: the kernel reads `length` bytes from `on`, which is alive and exactly that long.
    let ret = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_IP,
            libc::IP_TRANSPARENT,
            (&raw const on).cast(),
            length,
        )
    };
    crate::check(ret.into()).map(|_| ())
}
