//! Requests of an enrolled worker, signed: method, path, body, time and a number used once, for one control plane.
//!
//! HOSTILE until [`SignedHead::verify`] returned. What is signed is rebuilt from the request as it arrived, so a head moved to
//! another path or body does not hold. A request is taken once: its nonce is remembered for as long as its time would pass,
//! and a memory that is full refuses rather than forgets. The clock is the server's and is passed in.

mod seen;

pub use seen::SeenNonces;

use std::fmt;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::digest::{Digest, from_hex, to_hex};
use crate::key::{KeyId, PublicKey, SigningKey};
use crate::pem::{from_base64, to_base64};
use crate::random;
use crate::transcript::Transcript;

/// How far a worker's clock may be from the server's, in seconds, either way.
pub const WINDOW_SECONDS: u64 = 120;
/// The name of the header that carries a [`SignedHead`].
pub const HEADER: &str = "pond-request";
const VERSION: &str = "v1";
const MOST_HEAD_BYTES: usize = 512;

/// A number used once, of the worker's making.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestNonce(Digest);

/// What is asked, as it arrived or as it will be sent.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub method: &'a str,
    /// With its query, byte for byte.
    pub path: &'a str,
    pub body: Digest,
}

/// Who says it asks, and the signature: one header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedHead {
    worker: String,
    time: u64,
    nonce: RequestNonce,
    signature: [u8; 64],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestFault {
    #[error("getting random bytes from the kernel")]
    Random(#[source] Errno),
    #[error("not a signed head: {VERSION}, worker, time, nonce, signature")]
    Malformed,
    #[error("the time is more than {WINDOW_SECONDS} seconds from the server's, which is {now}")]
    Time { now: u64 },
    #[error("the signature does not hold for this request")]
    Signature,
    #[error("the request was made before")]
    Replayed,
    #[error("too many requests within {WINDOW_SECONDS} seconds")]
    Full,
}

impl RequestFault {
    /// Stable; the documents list it.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Random(_) => "no_random_bytes",
            Self::Malformed => "request_head_malformed",
            Self::Time { .. } => "request_time",
            Self::Signature => "request_signature",
            Self::Replayed => "request_replayed",
            Self::Full => "request_flood",
        }
    }
}

impl RequestNonce {
    pub fn generate() -> Result<Self, RequestFault> {
        random::bytes::<32>().map(|bytes| Self(Digest::from(*bytes))).map_err(RequestFault::Random)
    }
}

impl SignedHead {
    /// The worker's side. `time` is in seconds of the worker's clock.
    #[must_use]
    pub fn sign(
        request: &Request<'_>,
        worker: &str,
        control: KeyId,
        time: u64,
        nonce: RequestNonce,
        key: &SigningKey,
    ) -> Self {
        let mut head = Self { worker: worker.to_owned(), time, nonce, signature: [0; 64] };
        head.signature = key.sign(&head.signed(request, control));
        head
    }

    /// The value of the header.
    #[must_use]
    pub fn to_text(&self) -> String {
        let Self { worker, time, nonce, signature } = self;
        format!("{VERSION} {worker} {time} {nonce} {}", to_base64(signature))
    }

    pub fn parse(text: &str) -> Result<Self, RequestFault> {
        if text.len() > MOST_HEAD_BYTES {
            return Err(RequestFault::Malformed);
        }
        let words: Vec<&str> = text.split(' ').collect();
        let [VERSION, worker, time, nonce, signature] = words.as_slice() else {
            return Err(RequestFault::Malformed);
        };
        let head = (|| {
            let seconds = time.parse::<u64>().ok().filter(|seconds| seconds.to_string() == *time)?;
            let nonce = RequestNonce(Digest::from(from_hex(nonce)?));
            let bytes: [u8; 64] = from_base64(signature)?.try_into().ok()?;
            // One spelling: either alphabet would decode, only one is written.
            let signature = Some(bytes).filter(|bytes| to_base64(bytes) == *signature)?;
            (!worker.is_empty()).then(|| Self {
                worker: (*worker).to_owned(),
                time: seconds,
                nonce,
                signature,
            })
        })();
        head.ok_or(RequestFault::Malformed)
    }

    /// Who says it asks; says which key to verify with, and nothing before that.
    #[must_use]
    pub fn worker(&self) -> &str {
        &self.worker
    }

    #[must_use]
    pub fn nonce(&self) -> RequestNonce {
        self.nonce
    }

    /// The server's side: in time, signed with the pinned key, and never seen before. Only then is it remembered, so that
    /// nobody without the key can fill the memory.
    pub fn verify(
        &self,
        request: &Request<'_>,
        key: &PublicKey,
        control: KeyId,
        now: u64,
        seen: &mut SeenNonces,
    ) -> Result<(), RequestFault> {
        if self.time.abs_diff(now) > WINDOW_SECONDS {
            return Err(RequestFault::Time { now });
        }
        if !key.holds(&self.signed(request, control), &self.signature) {
            return Err(RequestFault::Signature);
        }
        seen.admit(self.nonce, self.time.saturating_add(WINDOW_SECONDS), now)
    }

    fn signed(&self, request: &Request<'_>, control: KeyId) -> Vec<u8> {
        Transcript::new("pond/request/v1")
            .digest(&control.0)
            .text(&self.worker)
            .number(self.time)
            .digest(&self.nonce.0)
            .text(request.method)
            .text(request.path)
            .digest(&request.body)
            .finish()
    }
}

impl fmt::Display for RequestNonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(self.0.as_bytes()))
    }
}

impl fmt::Debug for RequestNonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests;
