//! Ed25519 keys. Files hold PKCS#8 version 1 and SubjectPublicKeyInfo as PEM, which every other tool reads.
//!
//! A private key is zeroed when it is dropped and has no printable form but its file's. A public key that lets anybody sign
//! (a point of small order) is refused when it is read. A key's id is the SHA-256 of its SubjectPublicKeyInfo.

use std::fmt;

use ed25519_dalek::{Signature, Signer, VerifyingKey};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::digest::{Digest, from_hex, to_hex};
use crate::{pem, random};

const PRIVATE: &str = "PRIVATE KEY";
const PUBLIC: &str = "PUBLIC KEY";
/// Everything that precedes the 32 bytes of an Ed25519 key in its DER form (RFC 8410), which is of fixed length.
const PRIVATE_DER: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
const PUBLIC_DER: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    #[error("getting random bytes from the kernel")]
    Random(#[source] Errno),
    #[error("not an Ed25519 private key in PKCS#8 version 1, as PEM")]
    NotPrivate,
    #[error("not an Ed25519 public key, as PEM or as 64 lower-case hexadecimal digits")]
    NotPublic,
    #[error("a public key under which anybody could sign")]
    Weak,
}

/// A key that signs. It is zeroed when dropped.
pub struct SigningKey(ed25519_dalek::SigningKey);

/// A key that verifies.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

/// Which key: the SHA-256 of its SubjectPublicKeyInfo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyId(pub(crate) Digest);

impl SigningKey {
    pub fn generate() -> Result<Self, KeyFault> {
        random::bytes().map(|seed| Self::from_seed(&seed)).map_err(KeyFault::Random)
    }

    pub(crate) fn from_seed(seed: &[u8; 32]) -> Self {
        Self(ed25519_dalek::SigningKey::from_bytes(seed))
    }

    pub(crate) fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_bytes())
    }

    pub fn from_pem(text: &str) -> Result<Self, KeyFault> {
        let der = pem::decode(PRIVATE, text).ok_or(KeyFault::NotPrivate)?;
        let seed = der.strip_prefix(&PRIVATE_DER).and_then(|seed| <&[u8; 32]>::try_from(seed).ok());
        seed.map(Self::from_seed).ok_or(KeyFault::NotPrivate)
    }

    #[must_use]
    pub fn to_pem(&self) -> Zeroizing<String> {
        let der = Zeroizing::new([PRIVATE_DER.as_slice(), self.seed().as_slice()].concat());
        pem::encode(PRIVATE, &der)
    }

    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    pub(crate) fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        self.0.sign(bytes).to_bytes()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public().id())
    }
}

impl PublicKey {
    /// As PEM or as hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, KeyFault> {
        let bytes = match from_hex(text.trim()) {
            Some(bytes) => bytes,
            None => from_pem(text).ok_or(KeyFault::NotPublic)?,
        };
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| KeyFault::NotPublic)?;
        if key.is_weak() { Err(KeyFault::Weak) } else { Ok(Self(key)) }
    }

    #[must_use]
    pub fn to_pem(&self) -> String {
        pem::encode(PUBLIC, &self.der()).as_str().to_owned()
    }

    #[must_use]
    pub fn to_hex(&self) -> String {
        to_hex(self.0.as_bytes())
    }

    #[must_use]
    pub fn id(&self) -> KeyId {
        KeyId(Digest::of(&self.der()))
    }

    /// Strict: no signature or key that another verifier might take differently.
    pub(crate) fn holds(&self, bytes: &[u8], signature: &[u8]) -> bool {
        Signature::from_slice(signature)
            .is_ok_and(|signature| self.0.verify_strict(bytes, &signature).is_ok())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    fn der(&self) -> Vec<u8> {
        [PUBLIC_DER.as_slice(), self.0.as_bytes()].concat()
    }
}

fn from_pem(text: &str) -> Option<[u8; 32]> {
    pem::decode(PUBLIC, text)?.strip_prefix(&PUBLIC_DER)?.try_into().ok()
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.id())
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first vector of RFC 8032, section 7.1.
    const SEED: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    const PUBLIC_HEX: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    const EMPTY_SIGNED: &str = concat!(
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155",
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    );

    fn vector() -> SigningKey {
        SigningKey(ed25519_dalek::SigningKey::from_bytes(&from_hex(SEED).unwrap()))
    }

    #[test]
    fn the_published_vector_is_signed_and_verified() {
        let key = vector();
        assert_eq!(key.public().to_hex(), PUBLIC_HEX);
        assert_eq!(to_hex(&key.sign(b"")), EMPTY_SIGNED);
        assert!(key.public().holds(b"", &key.sign(b"")) && !key.public().holds(b"x", &key.sign(b"")));
    }

    #[test]
    fn keys_survive_their_files_and_nothing_else_is_a_key() {
        let key = SigningKey::generate().unwrap();
        let again = SigningKey::from_pem(&key.to_pem()).unwrap();
        assert_eq!(again.public(), key.public());
        assert_eq!(PublicKey::parse(&key.public().to_pem()), Ok(key.public()));
        assert_eq!(PublicKey::parse(&key.public().to_hex()), Ok(key.public()));
        let pem = key.to_pem();
        let twice = format!("{}{}", pem.as_str(), pem.as_str());
        for text in
            ["", "-----BEGIN PRIVATE KEY-----", &key.public().to_pem(), &pem.replace('M', "N"), &twice]
        {
            assert_eq!(
                SigningKey::from_pem(text).map(|key| key.public()),
                Err(KeyFault::NotPrivate),
                "{text}"
            );
        }
        for text in ["", "00", &pem, &key.public().to_hex().to_uppercase()] {
            assert_eq!(PublicKey::parse(text), Err(KeyFault::NotPublic), "{text}");
        }
    }

    #[test]
    fn a_key_under_which_anybody_could_sign_is_refused() {
        let neutral = "0100000000000000000000000000000000000000000000000000000000000000";
        assert_eq!(PublicKey::parse(neutral), Err(KeyFault::Weak));
    }

    #[test]
    fn a_private_key_does_not_print_itself() {
        let shown = format!("{:?}", vector());
        assert!(!shown.contains("9d61b1") && shown.starts_with("SigningKey("), "{shown}");
    }
}
