//! The control plane's answer to an enrollment: who the worker is from now on, what it was granted, and by whom.

use serde::{Deserialize, Serialize};

use super::{EnrollFault, IdentityKeys, JoinToken, Nonce};
use crate::envelope::{Envelope, Purpose, seal_as};
use crate::key::{KeyId, PublicKey, SigningKey};

/// What was granted. Nothing in it was the worker's to choose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    pub worker: String,
    pub tenant: Option<String>,
    pub tags: Vec<String>,
}

/// The grant, signed, with the key that signed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// As hexadecimal digits; believed only if it is the key the token names.
    pub control: String,
    pub envelope: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    nonce: Nonce,
    signing_key: KeyId,
    seal_key: KeyId,
    grant: Grant,
}

impl Joined {
    pub fn sign(
        grant: Grant,
        keys: &IdentityKeys,
        nonce: Nonce,
        control: &SigningKey,
    ) -> Result<Self, EnrollFault> {
        let payload = Payload { nonce, signing_key: keys.signing.id(), seal_key: keys.seal.id(), grant };
        let payload = serde_json::to_vec(&payload).map_err(EnrollFault::Encode)?;
        let envelope = seal_as(Purpose::Joined, &payload, control).map_err(EnrollFault::Encode)?;
        Ok(Self { control: control.public().to_hex(), envelope })
    }

    /// The worker's side: the control plane's key, to be pinned, and the grant.
    pub fn verify(
        &self,
        token: &JoinToken,
        keys: &IdentityKeys,
        nonce: Nonce,
    ) -> Result<(PublicKey, Grant), EnrollFault> {
        let control = PublicKey::parse(&self.control)?;
        if control.id() != token.control() {
            return Err(EnrollFault::OtherControl);
        }
        let envelope = Envelope::parse(&self.envelope)?;
        let verified = envelope.verify_as(Purpose::Joined, &control)?;
        let payload: Payload = serde_json::from_slice(verified.payload()).map_err(EnrollFault::Malformed)?;
        let mine = payload.nonce == nonce
            && payload.signing_key == keys.signing.id()
            && payload.seal_key == keys.seal.id();
        if mine { Ok((control, payload.grant)) } else { Err(EnrollFault::OtherEnrollment) }
    }
}
