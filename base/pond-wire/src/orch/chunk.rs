//! What a job wrote, piece by piece, and its end, with which a worker may ask for its next job. The pieces form a chain whose
//! head the signed statement repeats.

use serde::{Deserialize, Serialize};

use super::lease::Lease;
use super::poll::MOST_OFFER_BYTES;
use super::value::{Blob, Few, Hash, Version};

/// The most output in one call.
pub const MOST_CHUNK_BYTES: usize = 256 << 10;
/// The most of a packed result that comes with the end of its job.
pub const MOST_LAST_BYTES: usize = 16 << 10;
pub(super) const MOST_STATEMENT_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    Stdout,
    Stderr,
    Terminal,
    /// The packed tree of what came of the job ([`crate::tree`]): all of it is sent before the job is complete, or the
    /// last piece with its end.
    Result,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chunk {
    pub version: Version,
    pub lease: Lease,
    pub stream: Stream,
    pub seq: u64,
    pub offset: u64,
    pub bytes: Blob<MOST_CHUNK_BYTES>,
    /// The SHA-256 over this chunk, its place and the chain before it.
    pub head: Hash,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "kind")]
pub enum ChunkReply {
    /// Stored, now or before. A server that is behind asks for a pause; one that cancels says so before the next heartbeat.
    Stored { version: Version, pause_milliseconds: u32, cancel: bool },
    /// Not what comes next: this does.
    Expected { version: Version, seq: u64, offset: u64 },
    /// The stream is at its limit; the rest is dropped, and the statement says so.
    Full { version: Version },
}

/// The job is over, and has begun before that, whether or not anybody said so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Complete {
    pub version: Version,
    pub lease: Lease,
    /// The last piece of the packed result, if it was not sent before: what is small needs no call of its own.
    #[serde(deserialize_with = "Option::deserialize")]
    pub last: Option<Last>,
    /// What happened, signed with the worker's pinned key.
    pub statement: Blob<MOST_STATEMENT_BYTES>,
    /// The worker also asks for its next job, as a poll that does not wait.
    #[serde(deserialize_with = "Option::deserialize")]
    pub next: Option<Next>,
}

/// A worker that hands a job in and asks for the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Next {
    /// As a [`super::Poll`] has them.
    pub capabilities: Few<String, 16>,
}

/// A piece of the packed result, as a [`Chunk`] has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Last {
    pub seq: u64,
    pub offset: u64,
    pub bytes: Blob<MOST_LAST_BYTES>,
    pub head: Hash,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "kind")]
pub enum CompleteReply {
    /// The result counts, now or since an earlier call with the same bytes.
    Accepted {
        version: Version,
        /// The next job, where one was asked for and there is one: an offer that answers this call, as it would answer a poll.
        #[serde(deserialize_with = "Option::deserialize")]
        next: Option<Blob<MOST_OFFER_BYTES>>,
    },
}
