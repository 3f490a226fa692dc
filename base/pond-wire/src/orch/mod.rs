//! The boundary between worker and control plane, with the orchestrator between them: bodies of the calls under `/orch`.
//!
//! Trust zone: all three; every byte is hostile to who reads it. Invariants: a size cap before every decoder; unknown fields and
//! versions are refused; what is signed or sealed travels as bytes this crate cannot read ([`Blob`]), so that a reader of
//! these types, the orchestrator above all, holds nothing that opens or signs anything. No type here can carry a secret in the clear.

mod chunk;
mod enroll;
mod lease;
mod poll;
mod seal;
mod value;

pub use chunk::{
    Chunk, ChunkReply, Complete, CompleteReply, Last, MOST_CHUNK_BYTES, MOST_LAST_BYTES, Next, Stream,
};
pub use enroll::{EnrollBegin, EnrollChallenge, EnrollFinish, EnrollReply, Rotate, RotateReply};
pub use lease::{
    Acknowledge, AcknowledgeReply, Decline, DeclineReply, Declined, Heartbeat, HeartbeatReply, Lease,
    Verdict, Wanted,
};
pub use poll::{MOST_OFFER_BYTES, MOST_WAIT_SECONDS, Poll, PollReply};
pub use seal::{Redeem, RedeemReply, Seal, SealReply};
pub use value::{Blob, Code, Few, Hash, Id, NotAValue, Version};

use serde::de::DeserializeOwned;

/// One call of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Route {
    EnrollBegin,
    EnrollFinish,
    Rotate,
    Poll,
    Acknowledge,
    Seal,
    Redeem,
    Heartbeat,
    Chunks,
    Complete,
    Decline,
}

/// Who may make a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proven {
    /// By the join token, inside the body.
    ByToken,
    /// By the worker's pinned key, in the header.
    BySignature,
    /// By the worker's pinned key, and the lease the body names must be its own and current.
    BySignatureAndLease,
}

impl Route {
    pub const ALL: [Self; 11] = [
        Self::EnrollBegin,
        Self::EnrollFinish,
        Self::Rotate,
        Self::Poll,
        Self::Acknowledge,
        Self::Seal,
        Self::Redeem,
        Self::Heartbeat,
        Self::Chunks,
        Self::Complete,
        Self::Decline,
    ];

    /// The path; all are POST.
    pub const fn path(self) -> &'static str {
        match self {
            Self::EnrollBegin => "/orch/enroll",
            Self::EnrollFinish => "/orch/enroll/proof",
            Self::Rotate => "/orch/rotate",
            Self::Poll => "/orch/poll",
            Self::Acknowledge => "/orch/acknowledge",
            Self::Seal => "/orch/seal",
            Self::Redeem => "/orch/bundle/redeem",
            Self::Heartbeat => "/orch/heartbeat",
            Self::Chunks => "/orch/chunks",
            Self::Complete => "/orch/complete",
            Self::Decline => "/orch/decline",
        }
    }

    pub fn from_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|route| route.path() == path)
    }

    /// The most bytes of a call's body.
    pub const fn most_bytes(self) -> usize {
        match self {
            Self::EnrollBegin => EnrollBegin::MOST_BYTES,
            Self::EnrollFinish => EnrollFinish::MOST_BYTES,
            Self::Rotate => Rotate::MOST_BYTES,
            Self::Poll => Poll::MOST_BYTES,
            Self::Acknowledge => Acknowledge::MOST_BYTES,
            Self::Seal => Seal::MOST_BYTES,
            Self::Redeem => Redeem::MOST_BYTES,
            Self::Heartbeat => Heartbeat::MOST_BYTES,
            Self::Chunks => Chunk::MOST_BYTES,
            Self::Complete => Complete::MOST_BYTES,
            Self::Decline => Decline::MOST_BYTES,
        }
    }

    pub const fn proven(self) -> Proven {
        match self {
            Self::EnrollBegin | Self::EnrollFinish => Proven::ByToken,
            Self::Rotate | Self::Poll => Proven::BySignature,
            Self::Acknowledge
            | Self::Seal
            | Self::Redeem
            | Self::Heartbeat
            | Self::Chunks
            | Self::Complete
            | Self::Decline => Proven::BySignatureAndLease,
        }
    }
}

/// A body, with the most bytes it may have.
pub trait Body: DeserializeOwned {
    const MOST_BYTES: usize;
}

#[derive(Debug, thiserror::Error)]
pub enum BodyFault {
    #[error("the body has {has} bytes; the most is {most}")]
    TooLarge { has: usize, most: usize },
    #[error("the body is not what this call takes")]
    Malformed(#[source] serde_json::Error),
}

impl BodyFault {
    /// Stable; the documents list it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "body_too_large",
            Self::Malformed(_) => "body_malformed",
        }
    }
}

/// Decodes a body, or says why not.
pub fn decode<T: Body>(bytes: &[u8]) -> Result<T, BodyFault> {
    if bytes.len() > T::MOST_BYTES {
        return Err(BodyFault::TooLarge { has: bytes.len(), most: T::MOST_BYTES });
    }
    serde_json::from_slice(bytes).map_err(BodyFault::Malformed)
}

const fn with_blobs(blobs: usize) -> usize {
    // Base64 takes four bytes for three; the rest of a body is small.
    blobs / 3 * 4 + (4 << 10)
}

macro_rules! bodies {
    ($($type:ty: $most:expr),+ $(,)?) => { $( impl Body for $type { const MOST_BYTES: usize = $most; } )+ };
}

bodies! {
    EnrollBegin: 1 << 10,
    EnrollChallenge: with_blobs(1 << 10),
    EnrollFinish: with_blobs(2 << 10),
    EnrollReply: with_blobs(32 << 10),
    Rotate: with_blobs(8 << 10),
    RotateReply: 1 << 10,
    Poll: 4 << 10,
    PollReply: with_blobs(poll::MOST_OFFER_BYTES),
    Acknowledge: 1 << 10,
    AcknowledgeReply: 1 << 10,
    Seal: 1 << 10,
    SealReply: with_blobs(seal::MOST_RELEASE_BYTES),
    Redeem: 1 << 10,
    RedeemReply: with_blobs(seal::MOST_RELEASE_BYTES),
    Heartbeat: 1 << 10,
    HeartbeatReply: 1 << 10,
    Chunk: with_blobs(MOST_CHUNK_BYTES),
    ChunkReply: 1 << 10,
    Complete: with_blobs(chunk::MOST_STATEMENT_BYTES + MOST_LAST_BYTES),
    CompleteReply: with_blobs(poll::MOST_OFFER_BYTES),
    Decline: 1 << 10,
    DeclineReply: 1 << 10,
}

#[cfg(test)]
mod no_secret;
#[cfg(test)]
mod tests;
