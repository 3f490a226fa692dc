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
        from.readable().await.map_err(|_| flow.source_lost())?;
        let claim = flow.claim(PIPE).await?;
        let fill = || Ok(splice(from, None, &pipe.writer, None, claim.size(), flags)?);
        let mut held = match from.try_io(Interest::READABLE, fill) {
            Ok(0) => break,
            Ok(held) => held,
            Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => return Err(flow.source_lost()),
        };
        flow.moves(claim, held);
        while held > 0 {
            let drain = || Ok(splice(&pipe.reader, None, to, None, held, flags)?);
            match to.async_io(Interest::WRITABLE, drain).await {
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
