//! Network interfaces of the calling process's network namespace.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};

/// Brings the loopback interface up. `socket` is any socket of the namespace.
pub fn loopback_up(socket: impl AsFd) -> io::Result<()> {
    let mut request = named(b"lo")?;
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).map_err(|_| crate::out_of_range())?;
    ask(socket, libc::SIOCSIFFLAGS, &request)
}

/// Gives the loopback interface a second address. Being a loopback interface, it then takes the whole block for its own.
pub fn loopback_block(socket: impl AsFd, address: Ipv4Addr, mask: Ipv4Addr) -> io::Result<()> {
    let mut request = named(b"lo:0")?;
    request.ifr_ifru.ifru_addr = plain(address)?;
    ask(&socket, libc::SIOCSIFADDR, &request)?;
    request.ifr_ifru.ifru_netmask = plain(mask)?;
    ask(&socket, libc::SIOCSIFNETMASK, &request)
}

fn named(name: &[u8]) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is plain data for which all-zero bytes are a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(name) {
        *slot = libc::c_char::try_from(*byte).map_err(|_| crate::out_of_range())?;
    }
    Ok(request)
}

/// An IPv4 address in the shape the old interface calls take: family, no port, four bytes.
fn plain(address: Ipv4Addr) -> io::Result<libc::sockaddr> {
    let mut shape = libc::sockaddr {
        sa_family: libc::sa_family_t::try_from(libc::AF_INET).map_err(|_| crate::out_of_range())?,
        sa_data: [0; 14],
    };
    for (slot, byte) in shape.sa_data.iter_mut().skip(2).zip(address.octets()) {
        *slot = libc::c_char::from_ne_bytes([byte]);
    }
    Ok(shape)
}

fn ask(socket: impl AsFd, what: libc::Ioctl, request: &libc::ifreq) -> io::Result<()> {
    // SAFETY: `request` is a live, fully initialised `ifreq` with a NUL-terminated name, which these calls only read.
    let ret = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), what, std::ptr::from_ref(request)) };
    crate::check(ret.into()).map(|_| ())
}
