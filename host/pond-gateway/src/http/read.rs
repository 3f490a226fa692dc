//! Reading a head from a connection, within its limits of size and time.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::fault::HeadFault;
use super::head::{RequestHead, tokenize};
use super::scan::Scan;
use super::{HEAD_TIME, MAX_HEAD};

const STEP: usize = 4 << 10;

/// Reads one head. `buffer` holds what was read before and, afterwards, whatever followed the head.
pub async fn read_head<R: AsyncRead + Unpin>(
    stream: &mut R,
    buffer: &mut Vec<u8>,
) -> Result<RequestHead, HeadFault> {
    tokio::time::timeout(HEAD_TIME, whole_head(stream, buffer)).await.unwrap_or(Err(HeadFault::Late))
}

/// Waits until `buffer` holds a byte; `false` if the connection ended, or stayed silent for `idle`.
pub async fn await_byte<R: AsyncRead + Unpin>(stream: &mut R, buffer: &mut Vec<u8>, idle: Duration) -> bool {
    if !buffer.is_empty() {
        return true;
    }
    matches!(tokio::time::timeout(idle, more(stream, buffer)).await, Ok(Ok(())))
}

async fn whole_head<R: AsyncRead + Unpin>(
    stream: &mut R,
    buffer: &mut Vec<u8>,
) -> Result<RequestHead, HeadFault> {
    let mut scan = Scan::default();
    loop {
        if let Some(length) = scan.advance(buffer)? {
            let head = tokenize(buffer.get(..length).unwrap_or_default())?;
            buffer.drain(..length.min(buffer.len()));
            return Ok(head);
        }
        more(stream, buffer).await?;
    }
}

/// Reads some more, never past the longest head.
async fn more<R: AsyncRead + Unpin>(stream: &mut R, buffer: &mut Vec<u8>) -> Result<(), HeadFault> {
    let room = MAX_HEAD.saturating_sub(buffer.len()).min(STEP);
    buffer.reserve(room);
    let limit = u64::try_from(room).unwrap_or(u64::MAX);
    match stream.take(limit).read_buf(buffer).await.map_err(HeadFault::Read)? {
        0 => Err(HeadFault::Closed),
        _ => Ok(()),
    }
}
