//! Published ports: listeners on 127.0.0.1 of the host and nowhere else, each leading to one port of the sandbox's own loopback.
//! The connection inside is made by pid 1, in the sandbox's network, and handed out; no packet crosses by itself.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use pond_policy::life::State;
use pond_policy::sandboxes::Published;
use pond_wire::jail::Report;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::hub::{Ear, Hub};
use super::protocol::Refusal;
use super::serve::BREATH;

/// How long pid 1 and the program behind the port may take.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
const STACK: usize = 64 << 10;

/// Before anything is made: a port that somebody else has is a refusal.
pub(super) fn bind(ports: &[Published]) -> Result<Vec<(TcpListener, u16)>, Refusal> {
    let bind = |port: &Published| match TcpListener::bind((Ipv4Addr::LOCALHOST, port.host)) {
        Ok(listener) => Ok((listener, port.sandbox)),
        Err(fault) => {
            let message = format!("port {} of 127.0.0.1 cannot be published: {fault}", port.host);
            Err(Refusal::new("port_in_use", message))
        }
    };
    ports.iter().map(bind).collect()
}

/// From now to the end of this process.
pub(super) fn serve(hub: &Arc<Hub>, listeners: Vec<(TcpListener, u16)>) -> io::Result<()> {
    for (listener, port) in listeners {
        let hub = Arc::clone(hub);
        spawn(move || {
            for visitor in listener.incoming() {
                let Ok(visitor) = visitor else {
                    // Out of descriptors; visitors that leave give theirs back.
                    std::thread::sleep(BREATH);
                    continue;
                };
                let hub = Arc::clone(&hub);
                // Without a thread to be had the visitor is turned away.
                if let Err(_busy) = spawn(move || if let Err(_closed) = lead(&hub, visitor, port) {}) {}
            }
        })?;
    }
    Ok(())
}

fn spawn(act: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().stack_size(STACK).spawn(act).map(drop)
}

fn lead(hub: &Hub, visitor: TcpStream, port: u16) -> io::Result<()> {
    if hub.now() != State::Ready {
        return Ok(());
    }
    let refused = |refusal: Refusal| io::Error::other(refusal);
    let (call, ear) = hub.listen(false).map_err(refused)?;
    let inside = hub
        .ask(|serving| serving.connect(call, port))
        .map_err(io::Error::other)
        .and_then(|()| connected(&ear))
        .and_then(|inside| relay(&visitor, &TcpStream::from(inside)));
    hub.forget(call);
    inside
}

fn connected(ear: &Ear) -> io::Result<OwnedFd> {
    if poll(&mut [PollFd::new(ear, PollFlags::IN)], Some(&PATIENCE))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let Some((Report::Connected, descriptors)) = ear.hear() else {
        return Err(io::ErrorKind::ConnectionRefused.into());
    };
    let socket = descriptors.into_iter().next().ok_or(io::ErrorKind::InvalidData)?;
    // It was begun without waiting: writable means that it came to be, or why not.
    poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&PATIENCE))?;
    rustix::net::sockopt::socket_error(socket.as_fd())??;
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket)
}

/// Both ways until both have ended.
fn relay(visitor: &TcpStream, inside: &TcpStream) -> io::Result<()> {
    for stream in [visitor, inside] {
        stream.set_write_timeout(Some(Duration::from_secs(60)))?;
    }
    std::thread::scope(|scope| {
        let out =
            std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || one_way(inside, visitor))?;
        let brought = one_way(visitor, inside);
        let taken = out.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        brought.and(taken)
    })
}

fn one_way(mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
    let copied = io::copy(&mut from, &mut to);
    // Its end goes on to the other side; after a failure, both ways end.
    let how = if copied.is_ok() { Shutdown::Write } else { Shutdown::Both };
    if let Err(_closed) = to.shutdown(how) {}
    copied.map(drop)
}
