//! Bytes between two sockets, both ways, until one of many ends. Zone: host; the bytes are opaque and belong to the job and
//! the far side.
//!
//! Invariants: at most 256 KiB are held per direction, and nothing while it is quiet; every byte is counted before it is
//! read; whichever way it ends, both sockets are closed by their owner and the reason is known.

mod meter;
mod pool;
mod splice;

use std::io;
use std::time::Duration;

use pond_wire::gateway::Close;
use rustix::net::Shutdown;
use tokio::net::TcpStream;

pub(crate) use meter::{Meter, Moved};
pub(crate) use pool::Pool;

use meter::{Flow, Side};

/// A direction that has moved this much is worth a pipe of its own.
const BUSY: u64 = 4 << 20;
/// Reads in a row before other tunnels get their turn.
const TURN: u32 = 16;
/// Once one side is done, how long the other may say nothing.
const LINGER: Duration = Duration::from_secs(60);

/// Relays until the tunnel ends. `first` is what the client has sent already; `revoked` resolves when the tunnel no longer
/// may go on.
pub(crate) async fn relay(
    client: &TcpStream,
    upstream: &TcpStream,
    first: Vec<u8>,
    meter: &Meter,
    pool: &Pool,
    revoked: impl Future<Output = Close>,
) -> Close {
    let up = async {
        let flow = Flow::new(meter, Side::Client);
        flow.add(first.len());
        write_all(upstream, &first).await.map_err(|_| flow.sink_lost())?;
        drop(first);
        pump(client, upstream, flow, pool).await
    };
    let down = pump(upstream, client, Flow::new(meter, Side::Upstream), pool);
    let both = async { tokio::try_join!(up, down) };
    tokio::select! {
        ended = both => match ended {
            Ok(((), ())) => Close::Finished,
            Err(close) => close,
        },
        close = watch(meter) => close,
        close = revoked => close,
    }
}

/// Ends the tunnel when it is quiet or old.
async fn watch(meter: &Meter) -> Close {
    loop {
        let quiet = if meter.half_closed() { meter.idle().min(LINGER) } else { meter.idle() };
        let left = quiet.saturating_sub(meter.quiet_for());
        if left.is_zero() {
            return Close::Idle;
        }
        if meter.life_left().is_zero() {
            return Close::Lifetime;
        }
        tokio::time::sleep(left.min(meter.life_left())).await;
    }
}

/// One direction, until its source has no more to say.
async fn pump(from: &TcpStream, to: &TcpStream, flow: Flow<'_>, pool: &Pool) -> Result<(), Close> {
    while flow.moved() < BUSY {
        from.readable().await.map_err(|_| flow.source_lost())?;
        let mut buffer = pool.buffer();
        match copy(from, to, flow, &mut buffer).await? {
            Source::Quiet => pool.give_back(buffer),
            Source::Ended => return finish(to, flow),
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
        match copy(from, to, flow, &mut buffer).await? {
            Source::Quiet => pool.give_back(buffer),
            Source::Ended => return Ok(()),
        }
    }
}

enum Source {
    Quiet,
    Ended,
}

/// Moves what has arrived, but no more than one turn's worth.
async fn copy(from: &TcpStream, to: &TcpStream, flow: Flow<'_>, buffer: &mut [u8]) -> Result<Source, Close> {
    for _ in 0..TURN {
        let allowed = flow.allowance(buffer.len())?;
        let part = buffer.get_mut(..allowed).ok_or(Close::TunnelBytes)?;
        match from.try_read(part) {
            Ok(0) => return Ok(Source::Ended),
            Ok(count) => {
                flow.add(count);
                write_all(to, part.get(..count).unwrap_or_default()).await.map_err(|_| flow.sink_lost())?;
            }
            Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => return Ok(Source::Quiet),
            Err(_) => return Err(flow.source_lost()),
        }
    }
    tokio::task::yield_now().await;
    Ok(Source::Quiet)
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
    flow.end();
    match rustix::net::shutdown(to, Shutdown::Write) {
        // A side that is gone altogether needs no notice.
        Ok(()) | Err(rustix::io::Errno::NOTCONN) => Ok(()),
        Err(_) => Err(flow.sink_lost()),
    }
}
