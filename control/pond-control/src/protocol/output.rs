//! What a job wrote, piece by piece: stored under the lease it came with, in order, chained, under caps. Never read here.

use axum::http::StatusCode;
use pond_policy::run::Budget;
use pond_seal::Digest;
use pond_wire::orch::{self, ChunkReply, Last, Version};

use super::gate::Caller;
use super::hold::lease_of;
use super::problem::Problem;
use crate::plane::Plane;
use crate::store::{Chunk, Lease, LogFault, Moment, Stream};

pub(super) async fn chunk(
    plane: &Plane,
    caller: &Caller,
    body: &orch::Chunk,
    now: Moment,
) -> Result<ChunkReply, Problem> {
    let lease = lease_of(caller, &body.lease)?;
    let chunk = Chunk {
        stream: stream(body.stream),
        sequence: body.seq,
        offset: body.offset,
        bytes: body.bytes.as_bytes(),
        chain: chain(&body.head)?,
    };
    store(plane, &lease, chunk, now).await
}

/// The piece that came with the end of its job.
pub(super) fn last(piece: &Last) -> Result<Chunk<'_>, Problem> {
    Ok(Chunk {
        stream: Stream::Result,
        sequence: piece.seq,
        offset: piece.offset,
        bytes: piece.bytes.as_bytes(),
        chain: chain(&piece.head)?,
    })
}

/// Stores it before anything else is looked at. What a piece by itself would be told is a refusal here: the end does not count either.
pub(super) async fn store_last(
    plane: &Plane,
    lease: &Lease,
    piece: Chunk<'_>,
    now: Moment,
) -> Result<(), Problem> {
    match store(plane, lease, piece, now).await? {
        ChunkReply::Stored { .. } => Ok(()),
        ChunkReply::Expected { seq, offset, .. } => {
            broken("chunk_out_of_place", &format!("expected piece {seq} at offset {offset}"))
        }
        ChunkReply::Full { .. } => broken(Budget::Artifacts.code(), "the run may keep no more"),
    }
}

fn chain(head: &orch::Hash) -> Result<Digest, Problem> {
    let digest = Digest::try_from(head.as_str().to_owned());
    digest.map_err(|_| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "chunk_hash", "not a digest"))
}

fn broken<T>(code: &'static str, detail: &str) -> Result<T, Problem> {
    Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail))
}

async fn store(plane: &Plane, lease: &Lease, chunk: Chunk<'_>, now: Moment) -> Result<ChunkReply, Problem> {
    match plane.store.append_log(lease, chunk, now).await {
        Ok(stored) => {
            plane.bell.ring();
            Ok(ChunkReply::Stored { version: Version, pause_milliseconds: 0, cancel: stored.cancel })
        }
        Err(LogFault::Gap(at)) => {
            Ok(ChunkReply::Expected { version: Version, seq: at.next_sequence, offset: at.next_offset })
        }
        Err(LogFault::BudgetSpent) => {
            plane.bell.ring();
            Ok(ChunkReply::Full { version: Version })
        }
        Err(LogFault::StreamFull(_)) => Ok(ChunkReply::Full { version: Version }),
        Err(LogFault::Stale) => Err(Problem::stale()),
        Err(LogFault::Size) => broken("chunk_empty", "a piece has at least one byte"),
        Err(LogFault::Conflict) => {
            broken("chunk_out_of_place", "the piece is there already, with other content")
        }
        Err(LogFault::Chain) => broken("chunk_hash", "the chain does not fit what was sent"),
        Err(LogFault::Store(fault)) => Err(fault.into()),
    }
}

const fn stream(named: orch::Stream) -> Stream {
    match named {
        orch::Stream::Stdout => Stream::Stdout,
        orch::Stream::Stderr => Stream::Stderr,
        orch::Stream::Terminal => Stream::Terminal,
        orch::Stream::Result => Stream::Result,
    }
}
