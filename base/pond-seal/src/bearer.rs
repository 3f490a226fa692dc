//! Tokens people and programs show to the control plane: `pond_<kind>_<id>_<secret>`.
//!
//! The store finds a token by its id and holds the SHA-256 of its secret, which is 256 random bits and needs no slow hash.
//! Comparing takes the same time whatever differs. A token does not print itself; who issues it shows it once.

use std::fmt;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::digest::{Digest, from_hex, to_hex};
use crate::random;

const ID_BYTES: usize = 16;
const MOST_TEXT: usize = 128;

/// What a token is for. A token of one kind is never taken for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The user's API, within its scopes.
    Api,
    /// An orchestrator, at the control plane.
    Relay,
    /// One source bundle, once. It fetches ciphertext and nothing else.
    Bundle,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Api, Self::Relay, Self::Bundle];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Relay => "relay",
            Self::Bundle => "bundle",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BearerFault {
    #[error("getting random bytes from the kernel")]
    Random(#[source] Errno),
    #[error("not a token: pond_, its kind, its id, its secret")]
    Malformed,
}

/// A token as its holder has it.
pub struct Bearer {
    kind: Kind,
    id: String,
    secret: Zeroizing<[u8; 32]>,
}

/// A token as the store has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredBearer {
    pub kind: Kind,
    pub id: String,
    pub sha256: Digest,
}

impl Bearer {
    pub fn generate(kind: Kind) -> Result<Self, BearerFault> {
        let id = random::bytes::<ID_BYTES>().map_err(BearerFault::Random)?;
        let secret = random::bytes().map_err(BearerFault::Random)?;
        Ok(Self { kind, id: to_hex(id.as_slice()), secret })
    }

    pub fn parse(text: &str) -> Result<Self, BearerFault> {
        Self::read(text).ok_or(BearerFault::Malformed)
    }

    fn read(text: &str) -> Option<Self> {
        let mut words = Some(text).filter(|text| text.len() <= MOST_TEXT)?.split('_');
        let (pond, kind, id, secret) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let kind = Kind::from_name(kind)?;
        let plain = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
        let fits = pond == "pond" && words.next().is_none();
        let fits = fits && id.len() == 2 * ID_BYTES && id.bytes().all(plain);
        let secret = Zeroizing::new(from_hex(secret)?);
        fits.then(|| Self { kind, id: id.to_owned(), secret })
    }

    /// What its holder is shown, once.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let secret = Zeroizing::new(to_hex(self.secret.as_slice()));
        Zeroizing::new(format!("pond_{}_{}_{}", self.kind.name(), self.id, secret.as_str()))
    }

    #[must_use]
    pub fn stored(&self) -> StoredBearer {
        StoredBearer { kind: self.kind, id: self.id.clone(), sha256: Digest::of(self.secret.as_slice()) }
    }

    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What the store looks it up by. Not a secret.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl StoredBearer {
    /// Whether this is the token that was stored.
    #[must_use]
    pub fn admits(&self, shown: &Bearer) -> bool {
        let same = Digest::of(shown.secret.as_slice()).as_bytes().ct_eq(self.sha256.as_bytes());
        bool::from(same) && shown.kind == self.kind && shown.id == self.id
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bearer(pond_{}_{})", self.kind.name(), self.id)
    }
}

#[cfg(test)]
mod tests;
