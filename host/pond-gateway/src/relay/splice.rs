//! A busy direction, moved inside the kernel: socket to pipe, pipe to socket, no copy through this process.
//!
//! Invariant: the pipe is drained before it is filled again, so what it holds is one read's worth and a full pipe can never
//! be mistaken for a quiet source.

use std::io;

use pond_wire::gateway::Close;
use rustix::pipe::{SpliceFlags, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::meter::Flow;
use super::pool::{Loan, PIPE, Pool};
use super::{TURN, copy_on};

/// Moves bytes until the source has no more to say.
pub(super) async fn pump(
    from: &TcpStream,
    to: &TcpStream,
    flow: Flow<'_>,
    pool: &Pool,
    loan: Loan<'_>,
) -> Result<(), Close> {
    let Some(pipe) = loan.pipe() else { return copy_on(from, to, flow, pool).await };
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    let mut turn = 0;
    loop {
        let allowed = flow.allowance(PIPE)?;
        let fill = || Ok(splice(from, None, &pipe.writer, None, allowed, flags)?);
        let mut held = retrying(from, Interest::READABLE, fill).await.map_err(|_| flow.source_lost())?;
        if held == 0 {
            break;
        }
        flow.add(held);
        while held > 0 {
            let drain = || Ok(splice(&pipe.reader, None, to, None, held, flags)?);
            match retrying(to, Interest::WRITABLE, drain).await {
                Ok(count) if count > 0 => held = held.saturating_sub(count),
                Ok(_) | Err(_) => return Err(flow.sink_lost()),
            }
        }
        turn += 1;
        if turn % TURN == 0 {
            tokio::task::yield_now().await;
        }
    }
    loan.give();
    Ok(())
}

async fn retrying(
    socket: &TcpStream,
    interest: Interest,
    mut call: impl FnMut() -> io::Result<usize>,
) -> io::Result<usize> {
    socket.async_io(interest, &mut call).await
}
