//! New keys for a worker that is enrolled: signed with the old identity, and by the new one as a proof that it exists.

use serde::{Deserialize, Serialize};

use super::{EnrollFault, Identity, IdentityKeys};
use crate::envelope::{Envelope, Purpose, seal_as};
use crate::key::{PublicKey, SigningKey};
use crate::pem::{from_base64, to_base64};
use crate::transcript::Transcript;

/// A signed statement of rotation, as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation(pub Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    worker: String,
    /// How many times the keys have changed, this one included: an old statement cannot bring old keys back.
    generation: u64,
    keys: IdentityKeys,
    /// The new signing key's signature over all of the above.
    proof: String,
}

impl Rotation {
    pub fn sign(
        old: &SigningKey,
        new: &Identity,
        worker: &str,
        generation: u64,
    ) -> Result<Self, EnrollFault> {
        let keys = new.keys();
        let proof = to_base64(&new.signing.sign(&signed(worker, generation, &keys)));
        let payload = Payload { worker: worker.to_owned(), generation, keys, proof };
        let payload = serde_json::to_vec(&payload).map_err(EnrollFault::Encode)?;
        seal_as(Purpose::Rotation, &payload, old).map(Self).map_err(EnrollFault::Encode)
    }

    /// The keys to pin from now on. `generation` is the one that comes next.
    pub fn verify(
        &self,
        old: &PublicKey,
        worker: &str,
        generation: u64,
    ) -> Result<IdentityKeys, EnrollFault> {
        let envelope = Envelope::parse(&self.0)?;
        let verified = envelope.verify_as(Purpose::Rotation, old)?;
        let payload: Payload = serde_json::from_slice(verified.payload()).map_err(EnrollFault::Malformed)?;
        if payload.worker != worker || payload.generation != generation {
            return Err(EnrollFault::OutOfTurn);
        }
        let proof = from_base64(&payload.proof).ok_or(EnrollFault::Signature)?;
        if !payload.keys.signing.holds(&signed(worker, generation, &payload.keys), &proof) {
            return Err(EnrollFault::IdentityProof);
        }
        Ok(payload.keys)
    }
}

fn signed(worker: &str, generation: u64, keys: &IdentityKeys) -> Vec<u8> {
    keys.write(Transcript::new("pond/rotation/v1").text(worker).number(generation)).finish()
}
