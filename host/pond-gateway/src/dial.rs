//! The only place that connects to the outside: pinned addresses in, one connected socket out. Zone: host.
//!
//! Invariants: the addresses come from a `Pinned` and no other is dialled; all of them together get ten seconds.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pond_policy::egress::Pinned;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const TOTAL: Duration = Duration::from_secs(10);
/// How long one address is tried alone before the next one is tried beside it.
const HEAD_START: Duration = Duration::from_millis(250);
/// How long it is remembered whether an address is this machine's, and of how many.
const MEMORY: Duration = Duration::from_secs(1);
const MAX_KNOWN: usize = 1024;

/// Why no address answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DialFault {
    #[error("every address refused the connection")]
    Refused,
    #[error("no address answered in time")]
    Timeout,
}

/// Connects to the first pinned address that answers.
pub(crate) async fn dial(pinned: &Pinned) -> Result<(TcpStream, SocketAddr), DialFault> {
    tokio::time::timeout(TOTAL, race(pinned.addresses())).await.unwrap_or(Err(DialFault::Timeout))
}

async fn race(addresses: &[SocketAddr]) -> Result<(TcpStream, SocketAddr), DialFault> {
    // One address needs no race, and no timer that would wake the whole gateway.
    if let [only] = addresses {
        let stream = connect(*only).await.map_err(|_| DialFault::Refused)?;
        return Ok((stream, *only));
    }
    let mut waiting = addresses.iter().copied();
    let mut attempts = JoinSet::new();
    loop {
        if let Some(address) = waiting.next() {
            attempts.spawn(async move { connect(address).await.map(|stream| (stream, address)) });
        }
        let ended = async {
            while let Some(ended) = attempts.join_next().await {
                if let Ok(Ok(connected)) = ended {
                    return Some(connected);
                }
                if waiting.len() > 0 {
                    break;
                }
            }
            None
        };
        match tokio::time::timeout(HEAD_START, ended).await {
            Ok(Some(connected)) => return Ok(connected),
            Ok(None) if waiting.len() == 0 && attempts.is_empty() => return Err(DialFault::Refused),
            Ok(None) | Err(_) => {}
        }
    }
}

/// Connects. A host that is near answers before the call is over: asked a second time the kernel says so, and nobody has to
/// wait for the event.
async fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    let connected = match rustix::net::connect(&socket, &to) {
        Err(Errno::INPROGRESS) => rustix::net::connect(&socket, &to),
        other => other,
    };
    let stream = TcpStream::from_std(socket.into())?;
    match connected {
        Ok(()) => Ok(stream),
        Err(Errno::ALREADY) => {
            stream.writable().await?;
            stream.take_error()?.map_or(Ok(stream), Err)
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Which addresses belong to this machine, remembered for a moment: many tunnels lead to few addresses. An address the
/// machine got meanwhile is recognised by [`is_to_itself`], before a byte has passed.
#[derive(Debug, Default)]
pub(crate) struct OwnAddresses(Mutex<HashMap<IpAddr, Known>>);

#[derive(Debug, Clone, Copy)]
struct Known {
    own: bool,
    since: Instant,
}

impl OwnAddresses {
    /// Those of `addresses` that are this machine's.
    pub(crate) fn among(&self, addresses: &[IpAddr]) -> io::Result<Vec<IpAddr>> {
        let now = Instant::now();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > MAX_KNOWN {
            known.clear();
        }
        let mut own = Vec::new();
        for address in addresses {
            let fresh = known.get(address).filter(|known| now.duration_since(known.since) < MEMORY);
            let is_ours = match fresh {
                Some(known) => known.own,
                None => is_own(*address)?,
            };
            if fresh.is_none() {
                known.insert(*address, Known { own: is_ours, since: now });
            }
            if is_ours {
                own.push(*address);
            }
        }
        Ok(own)
    }
}

/// Whether a connection leads to the machine it started from: the kernel answers from the address that was called.
pub(crate) fn is_to_itself(stream: &TcpStream, to: SocketAddr) -> io::Result<bool> {
    Ok(stream.local_addr()?.ip().to_canonical() == to.ip().to_canonical())
}

/// A datagram socket pointed at one of our own addresses sends from that very address. No packet is sent.
#[expect(clippy::disallowed_methods, reason = "points a datagram socket at an address; nothing is sent")]
fn is_own(address: IpAddr) -> io::Result<bool> {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = match std::net::UdpSocket::bind((any, 0)) {
        // A machine without this family has no address of it.
        Err(fault) if fault.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error()) => {
            return Ok(false);
        }
        other => other?,
    };
    // An address without a route cannot be reached, so it need not be recognised either.
    if socket.connect((address, 9)).is_err() {
        return Ok(false);
    }
    Ok(socket.local_addr()?.ip().to_canonical() == address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c58_an_address_of_this_machine_is_recognised() {
        let ours: IpAddr = "127.0.0.1".parse().unwrap();
        let not_ours: IpAddr = "192.0.2.77".parse().unwrap();
        let own = OwnAddresses::default();
        for _again in 0..2 {
            assert_eq!(own.among(&[ours, not_ours]).unwrap(), [ours]);
        }
    }

    #[tokio::test]
    async fn c58_a_connection_to_this_machine_is_recognised_too() {
        let here = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let listener = tokio::net::TcpListener::bind(here).await.unwrap();
        let there = listener.local_addr().unwrap();
        let stream = TcpStream::connect(there).await.unwrap();
        assert!(is_to_itself(&stream, there).unwrap());
        assert!(!is_to_itself(&stream, "192.0.2.7:443".parse().unwrap()).unwrap());
    }
}
