//! X25519 keys: the half a worker opens with, and the half the control plane pins and seals to.
//!
//! A key of small order parses like any other and fails only when something is sealed to it; so a [`SealKey`] exists only
//! after a trial seal. Files hold PKCS#8 version 1 and SubjectPublicKeyInfo as PEM (RFC 8410); a key's id is the SHA-256 of the latter.

use std::fmt;

use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable, Kem, Serializable};
use rustix::io::Errno;
use zeroize::Zeroizing;

use super::Sealed;
use crate::digest::{Digest, from_hex, to_hex};
use crate::key::KeyId;
use crate::{pem, random};

const PRIVATE: &str = "PRIVATE KEY";
const PRIVATE_DER: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x6e, 0x04, 0x22, 0x04, 0x20];
const PUBLIC_DER: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x6e, 0x03, 0x21, 0x00];

type Public = <X25519HkdfSha256 as Kem>::PublicKey;
type Private = <X25519HkdfSha256 as Kem>::PrivateKey;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealKeyFault {
    #[error("getting random bytes from the kernel")]
    Random(#[source] Errno),
    #[error("not an X25519 private key in PKCS#8 version 1, as PEM")]
    NotPrivate,
    #[error("not an X25519 public key, as 64 lower-case hexadecimal digits")]
    NotPublic,
    #[error("a public key that nothing can be sealed to")]
    Unsealable,
}

impl SealKeyFault {
    /// Stable; the documents list it.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Random(_) => "no_random_bytes",
            Self::NotPrivate => "seal_key_private",
            Self::NotPublic => "seal_key_malformed",
            Self::Unsealable => "seal_key_unsealable",
        }
    }
}

/// The key that opens. It is zeroed when dropped.
pub struct OpenKey(Private);

/// A key that something was sealed to once.
#[derive(Clone, PartialEq, Eq)]
pub struct SealKey(Public);

impl OpenKey {
    pub fn generate() -> Result<Self, SealKeyFault> {
        let seed = random::bytes::<32>().map_err(SealKeyFault::Random)?;
        Self::from_seed(seed.as_slice())
    }

    pub fn from_pem(text: &str) -> Result<Self, SealKeyFault> {
        let der = pem::decode(PRIVATE, text).ok_or(SealKeyFault::NotPrivate)?;
        Self::from_seed(der.strip_prefix(&PRIVATE_DER).ok_or(SealKeyFault::NotPrivate)?)
    }

    fn from_seed(seed: &[u8]) -> Result<Self, SealKeyFault> {
        Private::from_bytes(seed).map(Self).map_err(|_| SealKeyFault::NotPrivate)
    }

    #[must_use]
    pub fn to_pem(&self) -> Zeroizing<String> {
        let seed: Zeroizing<[u8; 32]> = Zeroizing::new(self.0.to_bytes().into());
        let der = Zeroizing::new([PRIVATE_DER.as_slice(), seed.as_slice()].concat());
        pem::encode(PRIVATE, &der)
    }

    #[must_use]
    pub fn public(&self) -> SealKey {
        // A key made from its private half is of full order.
        SealKey(X25519HkdfSha256::sk_to_pk(&self.0))
    }

    pub(super) fn inner(&self) -> &Private {
        &self.0
    }
}

impl SealKey {
    /// From hexadecimal digits, after a trial seal.
    pub fn parse(text: &str) -> Result<Self, SealKeyFault> {
        let bytes = from_hex(text).ok_or(SealKeyFault::NotPublic)?;
        let key = Public::from_bytes(&bytes).map(Self).map_err(|_| SealKeyFault::NotPublic)?;
        match Sealed::make(b"trial", &key, b"pond/trial/v1") {
            Ok(_) => Ok(key),
            Err(_) => Err(SealKeyFault::Unsealable),
        }
    }

    #[must_use]
    pub fn to_hex(&self) -> String {
        to_hex(&self.0.to_bytes())
    }

    #[must_use]
    pub fn id(&self) -> KeyId {
        KeyId(Digest::of(&[PUBLIC_DER.as_slice(), &self.0.to_bytes()].concat()))
    }

    pub(super) fn inner(&self) -> &Public {
        &self.0
    }
}

impl fmt::Debug for OpenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenKey({})", self.public().id())
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealKey({})", self.id())
    }
}
