//! How a worker and the control plane come to trust each other's keys, with somebody in between who reads and changes what
//! they say.
//!
//! The token of a person's `pond worker join` is never sent: it is the seed of a key, the store holds the SHA-256 of its public
//! half, and the worker signs with it. Tier, tenant and tags stand in the store; the token's text names only the control plane's key, so
//! that the worker cannot be told another. The server's nonce arrives sealed to the claimed X25519 key and comes back inside
//! two signatures: that proves all three private halves at once. Using a token once is the store's work.

mod challenge;
mod identity;
mod joined;
mod rotation;
mod token;

pub use challenge::{Challenge, Nonce, Proof, answer};
pub use identity::{Identity, IdentityKeys};
pub use joined::{Grant, Joined};
pub use rotation::Rotation;
pub use token::{JoinToken, TokenHash};

use rustix::io::Errno;

use crate::envelope::EnvelopeFault;
use crate::key::KeyFault;
use crate::seal::{OpenFault, SealFault, SealKeyFault};

#[derive(Debug, thiserror::Error)]
pub enum EnrollFault {
    #[error("getting random bytes from the kernel")]
    Random(#[source] Errno),
    #[error("not a join token: pond_join_, the control plane's key id, the token")]
    NotAToken,
    #[error("the Ed25519 key")]
    SigningKey(#[from] KeyFault),
    #[error("the X25519 key")]
    SealKey(#[from] SealKeyFault),
    #[error("sealing the challenge")]
    Challenge(#[source] SealFault),
    #[error("opening the challenge")]
    Unopened(#[source] OpenFault),
    #[error("the challenge is not 32 bytes")]
    NotANonce,
    #[error("the proof is of another token")]
    OtherToken,
    #[error("the token's signature does not hold")]
    TokenProof,
    #[error("the signature of the worker's key does not hold")]
    IdentityProof,
    #[error("a signature is not 64 bytes in base64")]
    Signature,
    #[error("the answer is signed with another key than the token names")]
    OtherControl,
    #[error("the message is not signed as it should be")]
    Envelope(#[from] EnvelopeFault),
    #[error("the message is malformed")]
    Malformed(#[source] serde_json::Error),
    #[error("writing the message")]
    Encode(#[source] serde_json::Error),
    #[error("the answer is about another enrollment")]
    OtherEnrollment,
    #[error("the new keys are for another worker, or do not follow the present ones")]
    OutOfTurn,
}

impl EnrollFault {
    /// Stable; the documents list it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Random(_) => "no_random_bytes",
            Self::NotAToken => "token_malformed",
            Self::SigningKey(KeyFault::Weak) => "signing_key_weak",
            Self::SigningKey(KeyFault::Random(_) | KeyFault::NotPrivate | KeyFault::NotPublic) => {
                "signing_key_malformed"
            }
            Self::SealKey(fault) => fault.code(),
            Self::Challenge(fault) => fault.code(),
            Self::Unopened(_) => "challenge_unopened",
            Self::NotANonce => "challenge_malformed",
            Self::OtherToken => "token_unknown",
            Self::TokenProof => "token_proof",
            Self::IdentityProof => "identity_proof",
            Self::Signature => "signature_encoding",
            Self::OtherControl => "control_key",
            Self::Envelope(fault) => fault.code(),
            Self::Malformed(_) => "message_malformed",
            Self::Encode(_) => "message_encoding",
            Self::OtherEnrollment => "enrollment_other",
            Self::OutOfTurn => "rotation_out_of_turn",
        }
    }
}

#[cfg(test)]
mod tests;
