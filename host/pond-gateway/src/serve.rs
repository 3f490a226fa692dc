//! The doors, open: one task per listener and one per connection. Zone: host. Tunnels are served on two threads, all else on the
//! first, which accepts everything.
//!
//! Invariants: a listener outlives every failure to accept; connections are bounded in number, so a job cannot fill this
//! process with silence; the host hears `serving` only when every door is being watched.

use std::io;
use std::net::UdpSocket as StdUdpSocket;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pond_wire::gateway::{Door, Event};
use rustix::net::SocketFlags;
use thiserror::Error;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpStream, UdpSocket};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, watch};

use crate::aliases::Aliases;
use crate::broker::BrokerFault;
use crate::client::Client;
use crate::control::{Control, ControlFault, QUEUE, watched};
use crate::dial::OwnAddresses;
use crate::gateway::Gateway;
use crate::git::{self, LentFault};
use crate::ledger::Ledger;
use crate::names::Names;
use crate::outbox::Outbox;
use crate::passage::{Passage, tune};
use crate::relay::Pool;
use crate::second::Threads;
use crate::start::Start;
use crate::tunnels::Tunnels;
use crate::{anywhere, front, models, proxy, responder};

/// When the process or the machine is out of descriptors: long enough for tunnels to end, short enough to go unnoticed.
const BACK_OFF: Duration = Duration::from_millis(50);

/// Connections of a door beyond the tunnels: those that are being read, judged or refused. Further ones wait to be accepted.
const WITHOUT_TUNNEL: usize = 256;
/// More than the broker serves, because it refuses the surplus in words.
const BROKER_SEATS: usize = 2048;

/// Why the gateway stopped serving.
#[derive(Debug, Error)]
pub(crate) enum ServeFault {
    #[error("opening the door {door:?}")]
    Door { door: Door, source: io::Error },
    #[error("preparing the broker")]
    Broker(#[from] BrokerFault),
    #[error("preparing the door for git")]
    Git(#[from] LentFault),
    #[error("the conversation with the host")]
    Control(#[from] ControlFault),
}

/// Serves until the host says that the job is over.
pub(crate) async fn serve(
    start: Start,
    socket: OwnedFd,
    listeners: Vec<(Door, OwnedFd)>,
    second: Handle,
) -> Result<(), ServeFault> {
    let (queue, events) = mpsc::channel(QUEUE);
    let gateway = Arc::new(Gateway {
        ledger: Ledger::new(&start.order.job, Outbox::new(queue, start.journal)),
        rules: watch::Sender::new(Arc::new(start.stance)),
        tunnels: Tunnels::new(start.order.caps),
        names: Names::default(),
        aliases: Aliases::default(),
        own: OwnAddresses::default(),
        resolver: start.resolver,
        pool: Pool::shared(),
        nat64: start.nat64,
        git: git::Hosts::new(&start.order.git, start.git_keys)?,
        broker: OnceLock::new(),
    });
    let tunnels = usize::try_from(start.order.caps.tunnels).unwrap_or(usize::MAX);
    let seats = tunnels.saturating_add(WITHOUT_TUNNEL).min(Semaphore::MAX_PERMITS);
    if let Some(order) = &start.order.broker {
        models::install(&gateway, order, start.keys)?;
    }
    let control = Control::new(socket, second.clone())?;
    let threads = Threads::new(second);
    for (door, listener) in listeners {
        open(&gateway, &threads, seats, door, listener)
            .map_err(|source| ServeFault::Door { door, source })?;
    }
    control.send(Event::Serving).await?;
    Ok(control.run(&gateway, events).await?)
}

fn open(
    gateway: &Arc<Gateway>,
    threads: &Threads,
    seats: usize,
    door: Door,
    listener: OwnedFd,
) -> io::Result<()> {
    let (gateway, threads) = (Arc::clone(gateway), threads.clone());
    let share = |seats| Host { gateway: Arc::clone(&gateway), threads: threads.clone(), seats, spread: true };
    let keep = |seats| Host { spread: false, ..share(seats) };
    match door {
        Door::Proxy => {
            tokio::spawn(accept(share(seats), tcp(listener)?, |gateway, stream| {
                carried(Box::pin(proxy::open(gateway, stream)))
            }));
        }
        Door::Tls => {
            tokio::spawn(accept(share(seats), tcp(listener)?, |gateway, stream| {
                carried(Box::pin(front::open(gateway, stream)))
            }));
        }
        Door::Any => {
            tokio::spawn(accept(share(seats), tcp(listener)?, |gateway, stream| {
                carried(Box::pin(anywhere::open(gateway, stream)))
            }));
        }
        Door::DnsTcp => {
            tokio::spawn(accept(keep(seats), tcp(listener)?, responder::serve_tcp));
        }
        Door::DnsUdp => {
            let socket = StdUdpSocket::from(listener);
            socket.set_nonblocking(true)?;
            tokio::spawn(responder::serve_udp(gateway, UdpSocket::from_std(socket)?));
        }
        Door::Git => {
            tokio::spawn(accept(keep(BROKER_SEATS), tcp(listener)?, git::serve));
        }
        Door::Broker => {
            tokio::spawn(accept(keep(BROKER_SEATS), tcp(listener)?, models::serve));
        }
    }
    Ok(())
}

fn tcp(listener: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    rustix::io::ioctl_fionbio(&listener, true)?;
    tune(&listener)?;
    watched(listener, Interest::READABLE)
}

/// Who receives the connections of a door.
struct Host {
    gateway: Arc<Gateway>,
    threads: Threads,
    seats: usize,
    /// Whether they are served on both threads.
    spread: bool,
}

/// Accepts for as long as the process lives.
async fn accept<F>(
    host: Host,
    listener: AsyncFd<OwnedFd>,
    serve: impl Fn(Arc<Gateway>, TcpStream) -> F + Copy + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let seats = Arc::new(Semaphore::new(host.seats));
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    while let Ok(seat) = Arc::clone(&seats).acquire_owned().await {
        let next = |listener: &OwnedFd| Ok(rustix::net::accept_with(listener, flags)?);
        match listener.async_io(Interest::READABLE, next).await {
            Ok(accepted) => {
                let gateway = Arc::clone(&host.gateway);
                let connection = async move {
                    // Watched by the runtime that serves it, and in a box: what a task is made from, it has room for twice.
                    if let Ok(stream) = TcpStream::from_std(accepted.into()) {
                        Box::pin(serve(gateway, stream)).await;
                    }
                    drop(seat);
                };
                if host.spread { host.threads.share(connection) } else { host.threads.keep(connection) }
            }
            // EMFILE and ENFILE pass; a connection that was reset in the queue is no news at all.
            Err(_) => tokio::time::sleep(BACK_OFF).await,
        }
    }
}

/// Carries a tunnel once it is open. All that only its beginning needs is gone by then: most tunnels are idle.
async fn carried<F>(opening: Pin<Box<F>>)
where
    F: Future<Output = Option<(Client, Passage)>>,
{
    if let Some((client, passage)) = opening.await {
        passage.carry(client.stream, client.early).await;
    }
}

#[cfg(test)]
mod tests {
    //! What a tunnel holds while it is idle.
    use super::*;

    fn carried_size<F>(_open: fn(Arc<Gateway>, TcpStream) -> F) -> usize
    where
        F: Future<Output = Option<(Client, Passage)>>,
    {
        fn of<A, R>(_made: fn(A) -> R) -> usize {
            std::mem::size_of::<R>()
        }
        of(carried::<F>)
    }

    #[test]
    fn an_idle_tunnel_holds_less_than_a_page() {
        let sizes = [carried_size(proxy::open), carried_size(front::open), carried_size(anywhere::open)];
        assert!(sizes.iter().all(|size| *size < 4096), "{sizes:?}");
    }
}
