//! A source bundle under a key of its own: XChaCha20-Poly1305 in the STREAM construction, chunk by chunk in bounded memory.
//!
//! HOSTILE on the reading side: it was stored and relayed by others. A chunk authenticates its position and whether it is the
//! last, so a bundle that was cut, extended, reordered or mixed with another does not pass. What is read before the end is
//! authentic and may be incomplete: only a reader that came to its end without a fault has the whole, and the tree unpacked from
//! it is compared with the offer's input hash before a job sees it. The key travels inside a seal, never beside the bundle.

mod read;
mod write;

pub use read::Decrypting;
pub use write::Encrypting;

use aead_stream::{NewStream, StreamBE32};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::random;
use crate::secret::Secret;

/// Plain bytes per chunk. Every chunk but the last is full.
pub const CHUNK_BYTES: usize = 64 << 10;
const TAG_BYTES: usize = 16;
const SEALED_BYTES: usize = CHUNK_BYTES + TAG_BYTES;
/// What a bundle begins with, version included; authenticated with every chunk.
const MAGIC: [u8; 8] = *b"pondbnd1";
/// XChaCha's nonce less the counter and the mark of the last chunk.
const PREFIX_BYTES: usize = 19;
const HEADER_BYTES: usize = MAGIC.len() + PREFIX_BYTES;

type Stream = StreamBE32<XChaCha20Poly1305>;

/// The key of one bundle.
#[expect(missing_debug_implementations, reason = "a secret has no printable form")]
pub struct DataKey(Zeroizing<[u8; 32]>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BundleFault {
    #[error("getting random bytes from the kernel")]
    Random(#[source] Errno),
    #[error("not a key of 32 bytes")]
    NotAKey,
    #[error("not a bundle of a version this pond knows")]
    Header,
    #[error("the bundle ends before its last chunk")]
    Cut,
    #[error("chunk {0} is not what was written there")]
    Chunk(u32),
    #[error("the bundle is larger than {0} bytes")]
    TooLarge(u64),
    #[error("the bundle failed before and is not read on")]
    Failed,
}

impl BundleFault {
    /// Stable; the documents list it.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Random(_) => "no_random_bytes",
            Self::NotAKey => "bundle_key",
            Self::Header => "bundle_header",
            Self::Cut => "bundle_cut",
            Self::Chunk(_) => "bundle_chunk",
            Self::TooLarge(_) => "bundle_too_large",
            Self::Failed => "bundle_failed",
        }
    }
}

impl DataKey {
    pub fn generate() -> Result<Self, BundleFault> {
        random::bytes().map(Self).map_err(BundleFault::Random)
    }

    pub fn from_secret(secret: &Secret) -> Result<Self, BundleFault> {
        let bytes = secret.expose().try_into().map_err(|_| BundleFault::NotAKey)?;
        Ok(Self(Zeroizing::new(bytes)))
    }

    /// As what a release seals.
    #[must_use]
    pub fn to_secret(&self) -> Secret {
        Secret::new(self.0.to_vec())
    }

    fn stream(&self, prefix: &[u8; PREFIX_BYTES]) -> Stream {
        let key: &[u8; 32] = &self.0;
        Stream::from_aead(XChaCha20Poly1305::new(key.into()), &(*prefix).into())
    }
}

#[cfg(test)]
mod tests;
