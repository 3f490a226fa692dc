//! A secret sealed to one worker for one job: HPKE (RFC 9180), base mode, single shot.
//!
//! Everything the secret is for stands in HPKE's `info`, so a box opens for the job, lease and worker it was made for and for
//! no other. Anybody can seal to a public key, so the box travels signed: [`Release::open`] opens nothing the control plane did
//! not sign. Without a pinned key there is a refusal and nothing else: no type here could carry a secret in the clear.
//! `Sealed` is the only form of a secret that serialises.

mod context;
mod key;

pub use context::{SealContext, Subject};
pub use key::{OpenKey, SealKey, SealKeyFault};

use hpke::aead::ChaCha20Poly1305;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable, Kem, OpModeR, OpModeS, Serializable, single_shot_open, single_shot_seal};
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::envelope::{Envelope, EnvelopeFault, Purpose, seal_as};
use crate::key::{PublicKey, SigningKey};
use crate::pem::{from_base64, to_base64};
use crate::secret::Secret;

/// The largest secret: a file of credentials, not a source tree.
pub const MOST_SECRET_BYTES: usize = 64 << 10;
/// What the cipher adds.
const TAG_BYTES: usize = 16;

/// Which primitives, on the wire from the first day, so that another set can stand beside this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    /// DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20Poly1305.
    X25519ChaCha,
}

impl Suite {
    #[must_use]
    pub const fn id(self) -> u16 {
        match self {
            Self::X25519ChaCha => 1,
        }
    }

    const fn from_id(id: u16) -> Option<Self> {
        match id {
            1 => Some(Self::X25519ChaCha),
            _ => None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SealFault {
    #[error("the worker has no pinned key to seal to")]
    NoPinnedKey,
    #[error("the pinned key is another one than the context names")]
    OtherKey,
    #[error("the secret has more than {MOST_SECRET_BYTES} bytes")]
    TooLarge,
    #[error("sealing to the worker's key")]
    Encapsulate,
    #[error("writing the signed box")]
    Encode(#[source] serde_json::Error),
}

impl SealFault {
    /// Stable; the documents list it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoPinnedKey => "no_pinned_key",
            Self::OtherKey => "other_key",
            Self::TooLarge => "secret_too_large",
            Self::Encapsulate => "seal_failed",
            Self::Encode(_) => "seal_encoding",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OpenFault {
    #[error("the release is not signed by the control plane")]
    Envelope(#[from] EnvelopeFault),
    #[error("the release is malformed")]
    Malformed(#[source] serde_json::Error),
    #[error("the release is for another job, lease, worker or secret")]
    OtherContext,
    #[error("the box does not open")]
    Unopened,
}

impl OpenFault {
    /// Stable; the documents list it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Envelope(fault) => fault.code(),
            Self::Malformed(_) => "release_malformed",
            Self::OtherContext => "release_context",
            Self::Unopened => "release_unopened",
        }
    }
}

/// A sealed box: what HPKE calls the encapsulated key and the ciphertext.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Sealed {
    suite: Suite,
    enc: [u8; 32],
    ct: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    suite: u16,
    enc: String,
    ct: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotSealed {
    #[error("a suite this pond does not know")]
    Suite,
    #[error("not an encapsulated key of 32 bytes in base64")]
    Encapsulated,
    #[error("not a ciphertext of {TAG_BYTES} to {} bytes in base64", MOST_SECRET_BYTES + TAG_BYTES)]
    Ciphertext,
}

impl TryFrom<Stored> for Sealed {
    type Error = NotSealed;

    fn try_from(stored: Stored) -> Result<Self, NotSealed> {
        let suite = Suite::from_id(stored.suite).ok_or(NotSealed::Suite)?;
        let enc = from_base64(&stored.enc).and_then(|enc| enc.try_into().ok());
        let enc = enc.ok_or(NotSealed::Encapsulated)?;
        let sizes = TAG_BYTES..=MOST_SECRET_BYTES + TAG_BYTES;
        let ct = from_base64(&stored.ct).filter(|ct| sizes.contains(&ct.len()));
        Ok(Self { suite, enc, ct: ct.ok_or(NotSealed::Ciphertext)? })
    }
}

impl From<Sealed> for Stored {
    fn from(sealed: Sealed) -> Self {
        let Sealed { suite, enc, ct } = sealed;
        Self { suite: suite.id(), enc: to_base64(&enc), ct: to_base64(&ct) }
    }
}

impl Sealed {
    pub(crate) fn make(secret: &[u8], key: &SealKey, info: &[u8]) -> Result<Self, SealFault> {
        if secret.len() > MOST_SECRET_BYTES {
            return Err(SealFault::TooLarge);
        }
        let sealed = single_shot_seal::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
            &OpModeS::Base,
            key.inner(),
            info,
            secret,
            b"",
        );
        let (enc, ct) = sealed.map_err(|_| SealFault::Encapsulate)?;
        Ok(Self { suite: Suite::X25519ChaCha, enc: enc.to_bytes().into(), ct })
    }

    pub(crate) fn open(&self, key: &OpenKey, info: &[u8]) -> Result<Secret, OpenFault> {
        let Suite::X25519ChaCha = self.suite;
        let enc = <X25519HkdfSha256 as Kem>::EncappedKey::from_bytes(&self.enc);
        let enc = enc.map_err(|_| OpenFault::Unopened)?;
        let opened = single_shot_open::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
            &OpModeR::Base,
            key.inner(),
            &enc,
            info,
            &self.ct,
            b"",
        );
        opened.map(Secret::new).map_err(|_| OpenFault::Unopened)
    }
}

/// A sealed box with the control plane's signature: what `/orch/seal` and `/orch/bundle/redeem` answer. Anybody may read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release(Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    /// The digest of the context, so that a box that was moved is told from one that was damaged.
    context: Digest,
    sealed: Sealed,
}

impl Release {
    /// Seals `secret` to the key that was pinned for the worker, if there is one.
    pub fn issue(
        secret: &Secret,
        pinned: Option<&SealKey>,
        context: &SealContext,
        control: &SigningKey,
    ) -> Result<Self, SealFault> {
        let key = pinned.ok_or(SealFault::NoPinnedKey)?;
        if key.id() != context.worker_key {
            return Err(SealFault::OtherKey);
        }
        let sealed = Sealed::make(secret.expose(), key, &context.info())?;
        Self::sign(sealed, context, control)
    }

    /// Signs a box that was made elsewhere.
    pub fn sign(sealed: Sealed, context: &SealContext, control: &SigningKey) -> Result<Self, SealFault> {
        let payload = Payload { context: Digest::of(&context.info()), sealed };
        let payload = serde_json::to_vec(&payload).map_err(SealFault::Encode)?;
        seal_as(Purpose::Release, &payload, control).map(Self).map_err(SealFault::Encode)
    }

    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The box inside, for who may not open it.
    pub fn sealed(&self, control: &PublicKey) -> Result<Sealed, OpenFault> {
        self.payload(control).map(|payload| payload.sealed)
    }

    /// The secret, if the control plane released it to this key for exactly this context.
    pub fn open(
        &self,
        control: &PublicKey,
        key: &OpenKey,
        context: &SealContext,
    ) -> Result<Secret, OpenFault> {
        let payload = self.payload(control)?;
        let info = context.info();
        if payload.context != Digest::of(&info) {
            return Err(OpenFault::OtherContext);
        }
        payload.sealed.open(key, &info)
    }

    fn payload(&self, control: &PublicKey) -> Result<Payload, OpenFault> {
        let envelope = Envelope::parse(&self.0)?;
        let verified = envelope.verify_as(Purpose::Release, control)?;
        serde_json::from_slice(verified.payload()).map_err(OpenFault::Malformed)
    }
}

#[cfg(test)]
mod tests;
