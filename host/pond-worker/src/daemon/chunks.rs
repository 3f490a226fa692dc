//! A job's streams on their way to the control plane: every piece once and in order, whatever gets lost on the way. Nothing is
//! dropped while the lease holds: who reads slowly slows the job down.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pond_seal::chain::Chain;
use pond_seal::result;
use pond_wire::orch::{
    self, Blob, Chunk, ChunkReply, Hash, Last, Lease, MOST_CHUNK_BYTES, NotAValue, Route, Version,
};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::hold::Held;
use super::pace::Pace;
use super::session::CallFault;

/// No server may make a worker wait longer than this at once.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum ChunkFault {
    #[error("sending output")]
    Call(#[from] CallFault),
    #[error("reading output")]
    Read(#[source] std::io::Error),
    #[error("the control plane expects piece {seq} at {offset}, which was sent long ago or never")]
    OutOfStep { seq: u64, offset: u64 },
    #[error("a value that no body can hold")]
    Value(#[from] NotAValue),
}

/// One stream.
pub(super) struct Outgoing<'s> {
    held: &'s Held<'s>,
    lease: Lease,
    stream: orch::Stream,
    chain: Chain,
    is_full: bool,
}

impl<'s> Outgoing<'s> {
    pub(super) fn new(held: &'s Held<'s>, stream: orch::Stream) -> Self {
        let lease = held.lease.clone();
        let chain = Chain::begin(lease.job.as_str(), lease.epoch, of(stream));
        Self { held, lease, stream, chain, is_full: false }
    }

    /// Bytes that were taken.
    pub(super) fn sent(&self) -> u64 {
        self.chain.at().offset
    }

    /// Whether something was not taken any more.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Sends everything there is to read, and counts it.
    pub(super) async fn forward(
        &mut self,
        mut from: impl AsyncRead + Unpin,
        count: &AtomicU64,
    ) -> Result<(), ChunkFault> {
        let mut piece = vec![0; MOST_CHUNK_BYTES];
        loop {
            let length = from.read(&mut piece).await.map_err(ChunkFault::Read)?;
            if length == 0 {
                return Ok(());
            }
            count.fetch_add(u64::try_from(length).unwrap_or(u64::MAX), Ordering::Relaxed);
            self.send(piece.get(..length).unwrap_or_default()).await?;
        }
    }

    /// The next piece, for who sends it with the end of the job.
    pub(super) fn last(&self, bytes: Vec<u8>) -> Result<Last, NotAValue> {
        let link = self.chain.at().link(&bytes);
        let head = Hash::try_from(link.head.to_string())?;
        Ok(Last { seq: link.seq, offset: link.offset, bytes: Blob::new(bytes)?, head })
    }

    /// Sends one piece, until it is stored or refused.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), ChunkFault> {
        if self.is_full {
            return Ok(());
        }
        let place = self.chain.at();
        let link = place.link(bytes);
        let chunk = Chunk {
            version: Version,
            lease: self.lease.clone(),
            stream: self.stream,
            seq: link.seq,
            offset: link.offset,
            bytes: Blob::new(bytes.to_vec())?,
            head: Hash::try_from(link.head.to_string())?,
        };
        self.held.begin().await?;
        let mut pace = Pace::default();
        loop {
            match self.held.daemon.session.call(Route::Chunks, &chunk).await {
                Ok(ChunkReply::Stored { pause_milliseconds, cancel, .. }) => {
                    self.chain.extend(bytes);
                    if cancel {
                        self.held.beat.notify_one();
                    }
                    let pause = Duration::from_millis(pause_milliseconds.into()).min(LONGEST_PAUSE);
                    tokio::time::sleep(pause).await;
                    return Ok(());
                }
                // It was stored, and the answer got lost.
                Ok(ChunkReply::Expected { seq, .. }) if seq == place.seq.saturating_add(1) => {
                    self.chain.extend(bytes);
                    return Ok(());
                }
                Ok(ChunkReply::Expected { seq, offset, .. })
                    if (seq, offset) != (place.seq, place.offset) =>
                {
                    return Err(ChunkFault::OutOfStep { seq, offset });
                }
                Ok(ChunkReply::Expected { .. }) => pace.wait().await,
                Ok(ChunkReply::Full { .. }) => {
                    self.is_full = true;
                    self.held.beat.notify_one();
                    return Ok(());
                }
                Err(fault) if fault.may_pass() => pace.wait().await,
                Err(fault) => return Err(fault.into()),
            }
        }
    }
}

fn of(stream: orch::Stream) -> result::Stream {
    match stream {
        orch::Stream::Stdout => result::Stream::Stdout,
        orch::Stream::Stderr => result::Stream::Stderr,
        orch::Stream::Terminal => result::Stream::Terminal,
        orch::Stream::Result => result::Stream::Result,
    }
}
