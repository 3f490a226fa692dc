//! A job's output, piece by piece: in order, without gaps, under caps, each piece chained to all before it.
//!
//! HOSTILE BYTES: stored and handed out, never read. A piece that is sent again is taken as the one that is there if it is the
//! same; otherwise it is refused. The answer to a gap says where to go on.

use pond_policy::run::Budget;
use pond_seal::Digest;
use pond_seal::chain::{Chain, Place};
pub use pond_seal::result::Stream;

use super::Store;
use super::budget::{self, Taken};
use super::engine::{Fault, Row, Tx, args};
use super::flow::HeldRun;
use super::id::{JobId, Moment};
use super::lease::Lease;
use super::together::{MOST_PIECE, Piece};

/// Bytes of one piece.
pub const MOST_CHUNK: usize = 256 << 10;
/// Bytes of one stream of a job's output.
pub const MOST_STREAM: u64 = 64 << 20;
/// Bytes of the packed result of a job.
pub const MOST_RESULT: u64 = 256 << 20;

/// What a piece counts for at least: a row costs as much, however little is in it.
const LEAST_PIECE: u64 = 256;

/// One piece, and where the sender says it belongs.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    pub stream: Stream,
    pub sequence: u64,
    pub offset: u64,
    pub bytes: &'a [u8],
    /// The chain after this piece, as the sender computes it.
    pub chain: Digest,
}

/// Where the next piece begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub next_sequence: u64,
    pub next_offset: u64,
    pub chain: Digest,
}

/// A piece that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    pub next: Appended,
    /// The job is to be stopped.
    pub cancel: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPiece {
    pub sequence: u64,
    pub offset: u64,
    pub bytes: Vec<u8>,
}

/// A piece for who reads by bytes. When the epoch is another one, so is the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPart {
    pub epoch: u64,
    pub offset: u64,
    pub bytes: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum LogFault {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error("the lease is over")]
    Stale,
    #[error("a piece has 1 to {MOST_CHUNK} bytes")]
    Size,
    #[error("the stream has at most {0} bytes")]
    StreamFull(u64),
    #[error("the run has used up what it may write")]
    BudgetSpent,
    #[error("expected piece {} at offset {}", .0.next_sequence, .0.next_offset)]
    Gap(Appended),
    #[error("the piece is there already, with other content")]
    Conflict,
    #[error("the chain does not fit what was sent")]
    Chain,
}

/// How much of a stream is kept.
#[must_use]
pub const fn most_of(stream: Stream) -> u64 {
    match stream {
        Stream::Stdout | Stream::Stderr | Stream::Terminal => MOST_STREAM,
        Stream::Result => MOST_RESULT,
    }
}

const fn budget_of(stream: Stream) -> Budget {
    match stream {
        Stream::Stdout | Stream::Stderr | Stream::Terminal => Budget::Output,
        Stream::Result => Budget::Artifacts,
    }
}

impl Store {
    /// Stores a piece, and counts it for the run: the one that carries it over a budget ends the run.
    pub async fn append_log(&self, lease: &Lease, chunk: Chunk<'_>, now: Moment) -> Result<Stored, LogFault> {
        if !(1..=MOST_CHUNK).contains(&chunk.bytes.len()) {
            return Err(LogFault::Size);
        }
        if chunk.sequence == 0
            && let Some(stored) = self.append_first(lease, chunk).await?
        {
            return Ok(stored);
        }
        let mut tx = self.engine.write().await?;
        let mut run = HeldRun::of_job(&mut tx, &lease.job).await?.ok_or(LogFault::Stale)?;
        let sql = tx.dialect().hold_lease();
        let held = tx.row(sql, args![&lease.job, &lease.worker, lease.epoch]).await?;
        let cancel = held.ok_or(LogFault::Stale)?.int("cancel")? != 0;
        let head = head(&mut tx, lease, chunk.stream).await?;
        if chunk.sequence < head.next_sequence {
            return compare(tx, lease, chunk, head).await.map(|next| Stored { next, cancel });
        }
        if (chunk.sequence, chunk.offset) != (head.next_sequence, head.next_offset) {
            return Err(LogFault::Gap(head));
        }
        let next = head.after(chunk)?;
        let size = next.next_offset.saturating_sub(head.next_offset);
        let taken = budget::take_output(&mut tx, &mut run, budget_of(chunk.stream), size).await?;
        if let Taken::NoRoom(crossed) = taken {
            budget::cross(&mut tx, &mut run, crossed, now).await?;
            tx.commit().await?;
            return Err(LogFault::BudgetSpent);
        }
        if !insert(&mut tx, lease, chunk).await? {
            return compare(tx, lease, chunk, head).await.map(|next| Stored { next, cancel });
        }
        if let Taken::Crossed(crossed) = taken {
            budget::cross(&mut tx, &mut run, crossed, now).await?;
        }
        tx.commit().await?;
        Ok(Stored { next, cancel: cancel || run.cancel.is_some() })
    }

    /// The first piece of a stream, where that can be stored at once.
    async fn append_first(&self, lease: &Lease, chunk: Chunk<'_>) -> Result<Option<Stored>, LogFault> {
        let Some((piece, next)) = beginning(lease, chunk) else { return Ok(None) };
        Ok(self.append_together(piece).await.map(|cancel| Stored { next, cancel }))
    }

    /// What the worker's last lease on a job wrote, from piece `from` on.
    pub async fn log(
        &self,
        job: &JobId,
        stream: Stream,
        from: u64,
        limit: u32,
    ) -> Result<Vec<LogPiece>, Fault> {
        let rows = self
            .engine
            .rows(
                "SELECT seq, start, bytes FROM log_chunk WHERE job_id = $1 AND stream = $2 AND seq >= $3
                   AND epoch = (SELECT max(epoch) FROM log_chunk WHERE job_id = $1)
                 ORDER BY seq LIMIT $4",
                args![job, stream.name(), from, i64::from(limit)],
            )
            .await?;
        rows.iter().map(LogPiece::read).collect()
    }

    /// What the worker's last lease on a job wrote, from the piece that holds byte `offset` on.
    pub async fn log_at(
        &self,
        job: &JobId,
        stream: Stream,
        offset: u64,
        limit: u32,
    ) -> Result<Vec<LogPart>, Fault> {
        let rows = self
            .engine
            .rows(
                "SELECT epoch, start, bytes FROM log_chunk WHERE job_id = $1 AND stream = $2 AND start + size > $3
                   AND epoch = (SELECT max(epoch) FROM log_chunk WHERE job_id = $1)
                 ORDER BY seq LIMIT $4",
                args![job, stream.name(), offset, i64::from(limit)],
            )
            .await?;
        rows.iter().map(LogPart::read).collect()
    }

    /// What was stored under one lease, from piece `from` on.
    pub async fn lease_log(
        &self,
        lease: &Lease,
        stream: Stream,
        from: u64,
        limit: u32,
    ) -> Result<Vec<LogPiece>, Fault> {
        let sql = "SELECT seq, start, bytes FROM log_chunk
                   WHERE job_id = $1 AND epoch = $2 AND stream = $3 AND seq >= $4 ORDER BY seq LIMIT $5";
        let args = args![&lease.job, lease.epoch, stream.name(), from, i64::from(limit)];
        self.engine.rows(sql, args).await?.iter().map(LogPiece::read).collect()
    }

    /// All that was stored under one lease, stream by stream, if it is no more than `most` pieces.
    pub async fn lease_output(
        &self,
        lease: &Lease,
        most: u32,
    ) -> Result<Option<Vec<(Stream, LogPiece)>>, Fault> {
        let sql = "SELECT stream, seq, start, bytes FROM log_chunk WHERE job_id = $1 AND epoch = $2
                   ORDER BY stream, seq LIMIT $3";
        let rows = self.engine.rows(sql, args![&lease.job, lease.epoch, i64::from(most) + 1]).await?;
        if u32::try_from(rows.len()).is_ok_and(|pieces| pieces > most) {
            return Ok(None);
        }
        let piece = |row: &Row| Ok((row.read("stream", Stream::from_name)?, LogPiece::read(row)?));
        rows.iter().map(piece).collect::<Result<_, _>>().map(Some)
    }

    /// Which streams have a piece under this lease.
    pub async fn lease_streams(&self, lease: &Lease) -> Result<Vec<Stream>, Fault> {
        let sql = "SELECT DISTINCT stream FROM log_chunk WHERE job_id = $1 AND epoch = $2";
        let rows = self.engine.rows(sql, args![&lease.job, lease.epoch]).await?;
        rows.iter().map(|row| row.read("stream", Stream::from_name)).collect()
    }

    /// Where a stream of this lease stands: what a result has to agree with.
    pub async fn log_head(&self, lease: &Lease, stream: Stream) -> Result<Appended, Fault> {
        let mut tx = self.engine.read().await?;
        head(&mut tx, lease, stream).await
    }
}

/// The first piece of a stream, small and where it belongs, as it is stored together with others; and what comes after it.
pub(super) fn beginning(lease: &Lease, chunk: Chunk<'_>) -> Option<(Piece, Appended)> {
    if !(1..=MOST_PIECE).contains(&chunk.bytes.len()) || (chunk.sequence, chunk.offset) != (0, 0) {
        return None;
    }
    let head = Appended { next_sequence: 0, next_offset: 0, chain: begin(lease, chunk.stream) };
    let next = head.after(chunk).ok()?;
    let piece = Piece {
        lease: lease.clone(),
        stream: chunk.stream.name(),
        of_result: budget_of(chunk.stream) == Budget::Artifacts,
        size: next.next_offset,
        chain: *chunk.chain.as_bytes(),
        bytes: chunk.bytes.to_vec(),
    };
    Some((piece, next))
}

impl Appended {
    fn after(self, chunk: Chunk<'_>) -> Result<Self, LogFault> {
        let size = u64::try_from(chunk.bytes.len()).map_err(|_| LogFault::Size)?;
        let next_offset = self.next_offset.saturating_add(size);
        let most = most_of(chunk.stream);
        if next_offset > most || chunk.sequence >= most / LEAST_PIECE {
            return Err(LogFault::StreamFull(most));
        }
        let place = Place { seq: chunk.sequence, offset: chunk.offset, head: self.chain };
        let chain = place.link(chunk.bytes).head;
        if chain != chunk.chain {
            return Err(LogFault::Chain);
        }
        Ok(Self { next_sequence: self.next_sequence + 1, next_offset, chain })
    }
}

impl LogPart {
    fn read(row: &Row) -> Result<Self, Fault> {
        Ok(Self { epoch: row.count("epoch")?, offset: row.count("start")?, bytes: row.bytes("bytes")? })
    }
}

impl LogPiece {
    fn read(row: &Row) -> Result<Self, Fault> {
        Ok(Self { sequence: row.count("seq")?, offset: row.count("start")?, bytes: row.bytes("bytes")? })
    }
}

async fn head(tx: &mut Tx, lease: &Lease, stream: Stream) -> Result<Appended, Fault> {
    let row = tx
        .row(
            "SELECT seq, start + size AS finish, chain FROM log_chunk
             WHERE job_id = $1 AND epoch = $2 AND stream = $3 ORDER BY seq DESC LIMIT 1",
            args![&lease.job, lease.epoch, stream.name()],
        )
        .await?;
    Ok(match row {
        None => Appended { next_sequence: 0, next_offset: 0, chain: begin(lease, stream) },
        Some(row) => Appended {
            next_sequence: row.count("seq")? + 1,
            next_offset: row.count("finish")?,
            chain: row.digest("chain")?,
        },
    })
}

/// The chain before the first piece, as whoever signs the result computes it.
fn begin(lease: &Lease, stream: Stream) -> Digest {
    Chain::begin(lease.job.as_str(), lease.epoch, stream).at().head
}

/// False when another request put a piece there first.
async fn insert(tx: &mut Tx, lease: &Lease, chunk: Chunk<'_>) -> Result<bool, Fault> {
    let size = u64::try_from(chunk.bytes.len()).unwrap_or(u64::MAX);
    let inserted = tx
        .run(
            "INSERT INTO log_chunk (job_id, epoch, stream, seq, start, size, chain, bytes)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING",
            args![
                &lease.job,
                lease.epoch,
                chunk.stream.name(),
                chunk.sequence,
                chunk.offset,
                size,
                &chunk.chain,
                chunk.bytes
            ],
        )
        .await?;
    Ok(inserted == 1)
}

/// A piece that is there already: the same, or not. The chain covers content and place.
async fn compare(mut tx: Tx, lease: &Lease, chunk: Chunk<'_>, head: Appended) -> Result<Appended, LogFault> {
    let row = tx
        .row(
            "SELECT chain, start, bytes FROM log_chunk WHERE job_id = $1 AND epoch = $2 AND stream = $3 AND seq = $4",
            args![&lease.job, lease.epoch, chunk.stream.name(), chunk.sequence],
        )
        .await?
        .ok_or(LogFault::Gap(head))?;
    let same = row.digest("chain")? == chunk.chain
        && row.count("start")? == chunk.offset
        && row.bytes("bytes")? == chunk.bytes;
    if !same {
        return Err(LogFault::Conflict);
    }
    tx.commit().await?;
    Ok(head)
}
