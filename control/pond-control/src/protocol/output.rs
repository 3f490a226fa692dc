//! What a job wrote, piece by piece: stored under the lease it came with, in order, chained, under caps. Never read here.

use axum::http::StatusCode;
use pond_seal::Digest;
use pond_wire::orch::{self, ChunkReply, Version};

use super::gate::Caller;
use super::hold::lease_of;
use super::problem::Problem;
use crate::plane::Plane;
use crate::store::{Chunk, LogFault, Moment, Stream};

pub(super) async fn chunk(
    plane: &Plane,
    caller: &Caller,
    body: &orch::Chunk,
    now: Moment,
) -> Result<ChunkReply, Problem> {
    let lease = lease_of(caller, &body.lease)?;
    let broken = |code, detail| Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail));
    let Ok(chain) = Digest::try_from(body.head.as_str().to_owned()) else {
        return broken("chunk_hash", "not a digest");
    };
    let chunk = Chunk {
        stream: stream(body.stream),
        sequence: body.seq,
        offset: body.offset,
        bytes: body.bytes.as_bytes(),
        chain,
    };
    match plane.store.append_log(&lease, chunk, now).await {
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
