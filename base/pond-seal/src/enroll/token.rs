//! The join token: a secret a person carries from the control plane to a new worker. It holds no authority that can be read
//! off it: tier, tenant and life time stand in the store, under the token's hash.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::EnrollFault;
use crate::digest::{Digest, from_hex, to_hex};
use crate::key::{KeyId, PublicKey, SigningKey};

const PREFIX: &str = "pond_join_";

/// What the store knows a token by: the SHA-256 of its public half. Who reads it can enroll nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TokenHash(pub(super) Digest);

/// A token in a worker's hands.
pub struct JoinToken {
    control: KeyId,
    key: SigningKey,
}

impl JoinToken {
    pub fn issue(control: &PublicKey) -> Result<Self, EnrollFault> {
        Ok(Self { control: control.id(), key: SigningKey::generate()? })
    }

    pub fn parse(text: &str) -> Result<Self, EnrollFault> {
        let (control, seed) =
            text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')).ok_or(EnrollFault::NotAToken)?;
        let control = Digest::try_from(control.to_owned()).map_err(|_| EnrollFault::NotAToken)?;
        let seed = Zeroizing::new(from_hex(seed).ok_or(EnrollFault::NotAToken)?);
        Ok(Self { control: KeyId(control), key: SigningKey::from_seed(&seed) })
    }

    /// What a person is shown, once.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let seed = Zeroizing::new(to_hex(self.key.seed().as_slice()));
        Zeroizing::new(format!("{PREFIX}{}_{}", self.control, seed.as_str()))
    }

    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(&self.key.public())
    }

    /// The control plane that issued it.
    #[must_use]
    pub fn control(&self) -> KeyId {
        self.control
    }

    /// The half that is sent.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.key.public()
    }

    pub(super) fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        self.key.sign(bytes)
    }
}

impl TokenHash {
    #[must_use]
    pub fn of(public: &PublicKey) -> Self {
        Self(public.id().0)
    }
}

impl From<Digest> for TokenHash {
    fn from(stored: Digest) -> Self {
        Self(stored)
    }
}

impl From<TokenHash> for Digest {
    fn from(hash: TokenHash) -> Self {
        hash.0
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({})", self.hash())
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
