//! The socket in a sandbox's directory at which its keeper is called. Only the owner and root are heard: the directory lets nobody
//! else in, and the kernel says who calls.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

const NAME: &str = "socket";
const BACKLOG: i32 = 128;

/// A fresh socket under its name; one of a keeper that died before is replaced.
pub(super) fn open(directory: &Path) -> io::Result<OwnedFd> {
    let socket = socket()?;
    // A socket's file takes its mode from the socket.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    close(directory)?;
    at(directory, |address| rustix::net::bind(&socket, address))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

pub(super) fn close(directory: &Path) -> io::Result<()> {
    match std::fs::remove_file(directory.join(NAME)) {
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The next caller who may call at all.
pub(super) fn visitor(socket: &OwnedFd) -> io::Result<Option<UnixStream>> {
    let caller = loop {
        match rustix::net::accept_with(socket, SocketFlags::CLOEXEC) {
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            accepted => break accepted?,
        }
    };
    let uid = sockopt::socket_peercred(&caller)?.uid;
    let may = uid.is_root() || uid == rustix::process::geteuid();
    Ok(may.then(|| UnixStream::from(caller)))
}

pub(super) fn call(directory: &Path) -> io::Result<UnixStream> {
    let socket = socket()?;
    at(directory, |address| rustix::net::connect(&socket, address))?;
    Ok(UnixStream::from(socket))
}

fn socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// The address, which is short wherever the directory is.
fn at(directory: &Path, act: impl FnOnce(&SocketAddrUnix) -> rustix::io::Result<()>) -> io::Result<()> {
    let directory = File::open(directory)?;
    let path = format!("/proc/self/fd/{}/{NAME}", directory.as_raw_fd());
    Ok(act(&SocketAddrUnix::new(path)?)?)
}
