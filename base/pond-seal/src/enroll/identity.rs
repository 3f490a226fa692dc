//! The two keys of a worker, made on the worker and kept there.

use serde::{Deserialize, Serialize};

use super::EnrollFault;
use crate::key::{PublicKey, SigningKey};
use crate::seal::{OpenKey, SealKey};
use crate::transcript::Transcript;

/// The private halves. Each has a PEM file of its own; who keeps the files refuses them when others may read them.
#[derive(Debug)]
pub struct Identity {
    pub signing: SigningKey,
    pub opening: OpenKey,
}

/// The public halves, as the control plane pins them. A value exists only after a trial seal, and only with a key that is not weak.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct IdentityKeys {
    pub signing: PublicKey,
    pub seal: SealKey,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    signing: String,
    seal: String,
}

impl Identity {
    pub fn generate() -> Result<Self, EnrollFault> {
        Ok(Self { signing: SigningKey::generate()?, opening: OpenKey::generate()? })
    }

    #[must_use]
    pub fn keys(&self) -> IdentityKeys {
        IdentityKeys { signing: self.signing.public(), seal: self.opening.public() }
    }
}

impl IdentityKeys {
    /// From hexadecimal digits.
    pub fn parse(signing: &str, seal: &str) -> Result<Self, EnrollFault> {
        Ok(Self { signing: PublicKey::parse(signing)?, seal: SealKey::parse(seal)? })
    }

    pub(super) fn write(&self, transcript: Transcript) -> Transcript {
        transcript.digest(&self.signing.id().0).digest(&self.seal.id().0)
    }
}

impl TryFrom<Written> for IdentityKeys {
    type Error = EnrollFault;

    fn try_from(written: Written) -> Result<Self, EnrollFault> {
        Self::parse(&written.signing, &written.seal)
    }
}

impl From<IdentityKeys> for Written {
    fn from(keys: IdentityKeys) -> Self {
        Self { signing: keys.signing.to_hex(), seal: keys.seal.to_hex() }
    }
}
