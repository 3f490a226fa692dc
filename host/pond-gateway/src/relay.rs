//! Bytes between two sockets, both ways, until one of many ends. Zone: host; the bytes are opaque and belong to the job and
//! the far side.
//!
//! Invariants: at most 256 KiB are held per direction, and nothing while it is quiet; every byte is claimed before it is
//! read; whichever way it ends, both sockets are closed by their owner and the reason is known.

mod counted;
mod meter;
mod pool;
mod splice;

use std::io;
use std::os::fd::AsFd;
use std::pin::pin;
use std::time::Duration;

use pond_wire::gateway::Close;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, sockopt};
use tokio::io::Interest;
use tokio::net::TcpStream;

pub(crate) use counted::Counted;
pub(crate) use meter::{Meter, Moved};
pub(crate) use pool::Pool;

use meter::{Flow, Side};

/// A direction that has moved this much is worth a pipe of its own.
const BUSY: u64 = 4 << 20;
/// Reads in a row before other tunnels get their turn.
const TURN: u32 = 16;
/// Once one side is done, how long the other may say nothing.
const LINGER: Duration = Duration::from_secs(60);
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Relays until the tunnel ends. `first` is what the client has sent already.
pub(crate) async fn relay(
    client: &TcpStream,
    upstream: &TcpStream,
    first: Vec<u8>,
    meter: &Meter,
    pool: &Pool,
) -> Close {
    // Pinned where they stand: each time a future is moved into another, an idle tunnel holds the room for it once more.
    let up = pin!(async {
        let flow = Flow::new(meter, Side::Client);
        send_first(upstream, flow, &first).await?;
        drop(first);
        pump(client, upstream, flow, pool).await
    });
    let down = pin!(pump(upstream, client, Flow::new(meter, Side::Upstream), pool));
    let both = async { tokio::try_join!(up, down) };
    tokio::select! {
        ended = both => match ended {
            Ok(((), ())) => Close::Finished,
            Err(close) => close,
        },
        close = watch(meter, upstream) => close,
    }
}

/// What the client has sent already, counted as everything else is.
async fn send_first(upstream: &TcpStream, flow: Flow<'_>, mut first: &[u8]) -> Result<(), Close> {
    while !first.is_empty() {
        let claim = flow.claim(first.len()).await?;
        let (now, later) = first.split_at(claim.size());
        flow.moves(claim, now.len());
        write_all(upstream, now).await.map_err(|_| flow.sink_lost())?;
        first = later;
    }
    Ok(())
}

/// Ends the tunnel when it is quiet or old. Looks at least once a minute, because a tunnel that is half closed meanwhile may
/// not be quiet for as long; and has a far side that vanished noticed, which only long tunnels need.
async fn watch(meter: &Meter, upstream: &TcpStream) -> Close {
    let mut kept_alive = false;
    loop {
        let quiet = if meter.half_closed() { meter.idle().min(LINGER) } else { meter.idle() };
        let left = quiet.saturating_sub(meter.quiet_for());
        if left.is_zero() {
            return Close::Idle;
        }
        if meter.life_left().is_zero() {
            return Close::Lifetime;
        }
        tokio::time::sleep(left.min(meter.life_left()).min(LINGER)).await;
        if !std::mem::replace(&mut kept_alive, true) && keep_alive(upstream).is_err() {
            return Close::UpstreamReset;
        }
    }
}

/// Has the kernel ask a silent peer whether it is still there.
pub(crate) fn keep_alive(socket: impl AsFd) -> Result<(), Errno> {
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(&socket, KEEPALIVE)
}

/// One direction, until its source has no more to say.
async fn pump(from: &TcpStream, to: &TcpStream, flow: Flow<'_>, pool: &Pool) -> Result<(), Close> {
    while flow.moved() < BUSY {
        from.readable().await.map_err(|_| flow.source_lost())?;
        let mut buffer = pool.buffer();
        let source = copy(from, to, flow, &mut buffer).await?;
        pool.give_back(buffer);
        if source == Source::Ended {
            return finish(to, flow);
        }
    }
    match pool.pipe() {
        Some(pipe) => splice::pump(from, to, flow, pool, pipe).await?,
        None => copy_on(from, to, flow, pool).await?,
    }
    finish(to, flow)
}

/// The rest of a busy direction, when there is no pipe for it.
async fn copy_on(from: &TcpStream, to: &TcpStream, flow: Flow<'_>, pool: &Pool) -> Result<(), Close> {
    loop {
        from.readable().await.map_err(|_| flow.source_lost())?;
        let mut buffer = pool.buffer();
        let source = copy(from, to, flow, &mut buffer).await?;
        pool.give_back(buffer);
        if source == Source::Ended {
            return Ok(());
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Quiet,
    Ended,
}

/// Moves what has arrived, but no more than one turn's worth.
async fn copy(from: &TcpStream, to: &TcpStream, flow: Flow<'_>, buffer: &mut [u8]) -> Result<Source, Close> {
    for _ in 0..TURN {
        let claim = flow.claim(buffer.len()).await?;
        let allowed = claim.size();
        let part = buffer.get_mut(..allowed).ok_or(Close::TunnelBytes)?;
        let count = match read(from, part) {
            Ok(0) => return Ok(Source::Ended),
            Ok(count) => count,
            Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => return Ok(Source::Quiet),
            Err(_) => return Err(flow.source_lost()),
        };
        flow.moves(claim, count);
        write_all(to, part.get(..count).unwrap_or_default()).await.map_err(|_| flow.sink_lost())?;
        if count < allowed {
            return Ok(Source::Quiet);
        }
    }
    tokio::task::yield_now().await;
    Ok(Source::Quiet)
}

/// Reads once. A read that does not fill its buffer has emptied the socket, which is the same news as one that finds
/// nothing: the runtime is told, and waits for more instead of asking again.
fn read(from: &TcpStream, part: &mut [u8]) -> io::Result<usize> {
    let (room, mut taken) = (part.len(), None);
    let once = || {
        let (count, _) = rustix::net::recv(from, &mut *part, RecvFlags::empty())?;
        taken = Some(count);
        if (1..room).contains(&count) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    };
    let told = from.try_io(Interest::READABLE, once);
    taken.map_or_else(|| told.map(|()| 0), Ok)
}

/// Writes all of `bytes` through a shared reference, which the standard extension traits cannot.
pub(crate) async fn write_all(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}

/// Tells the sink that no more will come; the other direction goes on.
fn finish(to: &TcpStream, flow: Flow<'_>) -> Result<(), Close> {
    if flow.end() {
        // Both directions are done: the sockets are about to be closed, which says the same.
        return Ok(());
    }
    match rustix::net::shutdown(to, Shutdown::Write) {
        // A side that is gone altogether needs no notice.
        Ok(()) | Err(Errno::NOTCONN) => Ok(()),
        Err(_) => Err(flow.sink_lost()),
    }
}
