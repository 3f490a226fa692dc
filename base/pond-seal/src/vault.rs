//! Secrets at rest: each value under a key of its own (DEK), that key wrapped under one of the operator's ring (KEK).
//!
//! A record is `version · kid · nonce · wrapped DEK · nonce · ciphertext`. Both layers are XChaCha20-Poly1305 and bound to the
//! place the record stands in: moved to another row, column, table or tenant it does not open. Rotation wraps the DEK anew and
//! leaves the payload alone. Invariants: random nonces of 24 bytes, never reused by construction; a ring always has an active
//! key; a key that records still name is not dropped; nothing here prints a key or a plaintext.

mod fernet;
mod ring;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use crate::fresh::{self, NoRandomness};

pub use fernet::{FernetFault, FernetKey};
pub use ring::{KeyRing, Kid, RingFault};

const VERSION: u8 = 1;
const NONCE: usize = 24;
const TAG: usize = 16;
const KEY: usize = 32;
const WRAPPED: usize = KEY + TAG;
/// Everything before the payload's ciphertext: version, kid, the DEK's nonce, the wrapped DEK, the payload's nonce.
const HEAD: usize = 1 + Kid::BYTES + NONCE + WRAPPED + NONCE;
/// No credential is larger; files do not belong here.
pub const MOST_BYTES: usize = 1 << 20;

/// Where a record stands. It opens nowhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    pub table: &'a str,
    pub row: &'a str,
    pub column: &'a str,
    pub tenant: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VaultFault {
    #[error("drawing a key or a nonce")]
    Random(#[source] NoRandomness),
    #[error("the value has more than {MOST_BYTES} bytes")]
    TooLarge,
    #[error("not a record of the vault")]
    Malformed,
    #[error("the record is under the key {0}, which is not in the ring")]
    KeyMissing(Kid),
    #[error("the record does not open here: it was changed, or moved from another place")]
    Sealed,
}

/// Which key a record is under.
pub fn kid_of(record: &[u8]) -> Result<Kid, VaultFault> {
    Ok(Parts::split(record)?.kid)
}

impl KeyRing {
    /// A record of `secret` for this place, under the active key.
    pub fn seal(&self, place: Place<'_>, secret: &[u8]) -> Result<Vec<u8>, VaultFault> {
        if secret.len() > MOST_BYTES {
            return Err(VaultFault::TooLarge);
        }
        let dek = fresh::bytes::<KEY>().map_err(VaultFault::Random)?;
        let mut record = self.wrap(place, &dek)?;
        let nonce = fresh::bytes::<NONCE>().map_err(VaultFault::Random)?;
        record.extend_from_slice(nonce.as_slice());
        record.extend_from_slice(&encrypt(&dek, &nonce, secret, &bound(place, b"value"))?);
        Ok(record)
    }

    pub fn open(&self, place: Place<'_>, record: &[u8]) -> Result<Zeroizing<Vec<u8>>, VaultFault> {
        let parts = Parts::split(record)?;
        let dek = self.unwrap_key(place, &parts)?;
        decrypt(&dek, parts.nonce, parts.ciphertext, &bound(place, b"value"))
    }

    /// The same record under the active key; nothing if it already is.
    pub fn rewrap(&self, place: Place<'_>, record: &[u8]) -> Result<Option<Vec<u8>>, VaultFault> {
        let parts = Parts::split(record)?;
        if parts.kid == self.active() {
            return Ok(None);
        }
        let dek = self.unwrap_key(place, &parts)?;
        let mut fresh = self.wrap(place, &dek)?;
        fresh.extend_from_slice(parts.nonce);
        fresh.extend_from_slice(parts.ciphertext);
        Ok(Some(fresh))
    }

    /// The head of a record, up to the wrapped DEK.
    fn wrap(&self, place: Place<'_>, dek: &[u8; KEY]) -> Result<Vec<u8>, VaultFault> {
        let (kid, kek) = self.active_key();
        let nonce = fresh::bytes::<NONCE>().map_err(VaultFault::Random)?;
        let wrapped = encrypt(kek, &nonce, dek, &bound(place, b"key"))?;
        Ok([&[VERSION][..], kid.as_bytes(), nonce.as_slice(), &wrapped].concat())
    }

    fn unwrap_key(&self, place: Place<'_>, parts: &Parts<'_>) -> Result<Zeroizing<[u8; KEY]>, VaultFault> {
        let kek = self.key(parts.kid).ok_or(VaultFault::KeyMissing(parts.kid))?;
        let dek = decrypt(kek, parts.dek_nonce, parts.wrapped, &bound(place, b"key"))?;
        <[u8; KEY]>::try_from(dek.as_slice()).map(Zeroizing::new).map_err(|_| VaultFault::Malformed)
    }
}

struct Parts<'a> {
    kid: Kid,
    dek_nonce: &'a [u8; NONCE],
    wrapped: &'a [u8],
    nonce: &'a [u8; NONCE],
    ciphertext: &'a [u8],
}

impl<'a> Parts<'a> {
    fn split(record: &'a [u8]) -> Result<Self, VaultFault> {
        if record.len() > HEAD + MOST_BYTES + TAG {
            return Err(VaultFault::Malformed);
        }
        Self::take(record).ok_or(VaultFault::Malformed)
    }

    fn take(record: &'a [u8]) -> Option<Self> {
        let ([VERSION], rest) = record.split_first_chunk()? else { return None };
        let (kid, rest) = rest.split_first_chunk()?;
        let (dek_nonce, rest) = rest.split_first_chunk()?;
        let (wrapped, rest) = rest.split_at_checked(WRAPPED)?;
        let (nonce, ciphertext) = rest.split_first_chunk()?;
        Some(Self { kid: Kid::new(*kid), dek_nonce, wrapped, nonce, ciphertext })
    }
}

/// What both layers authenticate: the version, the layer, and the place, each part with its length.
fn bound(place: Place<'_>, layer: &[u8]) -> Vec<u8> {
    let parts = [
        layer,
        place.table.as_bytes(),
        place.row.as_bytes(),
        place.column.as_bytes(),
        place.tenant.as_bytes(),
    ];
    let mut bytes = vec![VERSION];
    for part in parts {
        bytes.extend_from_slice(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

fn encrypt(key: &[u8; KEY], nonce: &[u8; NONCE], msg: &[u8], aad: &[u8]) -> Result<Vec<u8>, VaultFault> {
    let cipher = XChaCha20Poly1305::new(key.into());
    cipher.encrypt(<&XNonce>::from(nonce), Payload { msg, aad }).map_err(|_| VaultFault::TooLarge)
}

fn decrypt(
    key: &[u8; KEY],
    nonce: &[u8; NONCE],
    msg: &[u8],
    aad: &[u8],
) -> Result<Zeroizing<Vec<u8>>, VaultFault> {
    let cipher = XChaCha20Poly1305::new(key.into());
    let opened = cipher.decrypt(<&XNonce>::from(nonce), Payload { msg, aad });
    opened.map(Zeroizing::new).map_err(|_| VaultFault::Sealed)
}

#[cfg(test)]
mod tests;
