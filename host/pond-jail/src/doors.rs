//! The network a job sees: a loopback interface, and on it the listeners of its gateway. There is no other interface and no
//! packet path; what reaches the listeners is all that can leave. A route, where there is one, ends at the loopback too.
//!
//! Made by pid 1 while it still has power over its own namespace, because some of the ports are low ones, and handed out
//! at once, so that the gateway gets ready while the root is built.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pond_wire::gateway::doors::{ANY, BROKER, DNS, GIT, PROXY};
use pond_wire::jail::{Door, Report, Step};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::everywhere;
use crate::fault::{At, Failure};

/// Connections that may wait while the gateway is busy with others.
const BACKLOG: i32 = 512;

/// Every sandbox has this much of a network.
pub(crate) fn loopback() -> Result<(), Failure> {
    let socket = socket(SocketType::DGRAM).at(Step::Loopback)?;
    pond_sys::net::loopback_up(&socket).at(Step::Loopback)
}

pub(crate) fn open(doors: &[Door], report: BorrowedFd<'_>) -> Result<(), Failure> {
    if doors.is_empty() {
        return Ok(());
    }
    let mut listeners = Vec::new();
    for door in doors {
        match door {
            Door::Proxy => listeners.push(listen(PROXY).at(Step::Doors)?),
            Door::Broker => listeners.push(listen(BROKER).at(Step::Doors)?),
            Door::Git => listeners.push(listen(GIT).at(Step::Doors)?),
            Door::Front { port } => {
                listeners.push(listen(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, *port)).at(Step::Doors)?);
            }
            Door::Any => listeners.push(everywhere()?),
            Door::Dns => {
                listeners.push(bound(SocketType::DGRAM, DNS).at(Step::Doors)?);
                listeners.push(listen(DNS).at(Step::Doors)?);
            }
        }
    }
    let descriptors: Vec<_> = listeners.iter().map(AsFd::as_fd).collect();
    pond_sys::socket::send(report, &Report::Doors.encode(), &descriptors).at(Step::Doors)
}

/// Where every connection to an address outside loopback ends.
fn everywhere() -> Result<OwnedFd, Failure> {
    let socket = socket(SocketType::STREAM).at(Step::Doors)?;
    pond_sys::net::accept_for_any_address(&socket).at(Step::Everywhere)?;
    rustix::net::bind(&socket, &ANY).at(Step::Doors)?;
    rustix::net::listen(&socket, BACKLOG).at(Step::Doors)?;
    everywhere::lead_to(ANY).at(Step::Everywhere)?;
    Ok(socket)
}

fn socket(kind: SocketType) -> Result<OwnedFd, Errno> {
    // Not blocking: whoever serves them waits for readiness, and the flag travels with the descriptor.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::INET, kind, flags, None)
}

fn bound(kind: SocketType, address: SocketAddrV4) -> Result<OwnedFd, Errno> {
    let socket = socket(kind)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

fn listen(address: SocketAddrV4) -> Result<OwnedFd, Errno> {
    let socket = bound(SocketType::STREAM, address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}
