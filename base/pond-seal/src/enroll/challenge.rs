//! Challenge and proof: the server's nonce, sealed to the key that is claimed, signed by the token and by the identity.

use serde::{Deserialize, Serialize};

use super::{EnrollFault, Identity, IdentityKeys, JoinToken, TokenHash};
use crate::digest::Digest;
use crate::key::PublicKey;
use crate::pem::{from_base64, to_base64};
use crate::random;
use crate::seal::Sealed;
use crate::transcript::Transcript;

/// A number used once, of the server's making. The store keeps it between the two calls of an enrollment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nonce(Digest);

/// What the control plane asks of who wants to enroll.
#[derive(Debug)]
pub struct Challenge {
    /// Stays with the server.
    pub nonce: Nonce,
    /// Goes to the worker; opens with the private half of the key it claims.
    pub sealed: Sealed,
}

/// The worker's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    token: String,
    token_signature: String,
    identity_signature: String,
}

impl Challenge {
    pub fn issue(token: &TokenHash, keys: &IdentityKeys) -> Result<Self, EnrollFault> {
        let random = random::bytes::<32>().map_err(EnrollFault::Random)?;
        let nonce = Nonce(Digest::of(random.as_slice()));
        let sealed = Sealed::make(nonce.0.as_bytes(), &keys.seal, &info(token, keys));
        Ok(Self { nonce, sealed: sealed.map_err(EnrollFault::Challenge)? })
    }
}

/// What the worker does with a challenge: the nonce it was asked, and the proof that it could read it.
pub fn answer(
    sealed: &Sealed,
    token: &JoinToken,
    identity: &Identity,
) -> Result<(Nonce, Proof), EnrollFault> {
    let keys = identity.keys();
    let opened =
        sealed.open(&identity.opening, &info(&token.hash(), &keys)).map_err(EnrollFault::Unopened)?;
    let nonce: [u8; 32] = opened.expose().try_into().map_err(|_| EnrollFault::NotANonce)?;
    let nonce = Nonce(Digest::from(nonce));
    let signed = signed(&nonce, &keys, &token.hash());
    let proof = Proof {
        token: token.public().to_hex(),
        token_signature: to_base64(&token.sign(&signed)),
        identity_signature: to_base64(&identity.signing.sign(&signed)),
    };
    Ok((nonce, proof))
}

impl Proof {
    /// Whether who answered holds the token and both keys.
    pub fn verify(&self, nonce: &Nonce, token: &TokenHash, keys: &IdentityKeys) -> Result<(), EnrollFault> {
        let public = PublicKey::parse(&self.token)?;
        if TokenHash::of(&public) != *token {
            return Err(EnrollFault::OtherToken);
        }
        let signed = signed(nonce, keys, token);
        let holds = |key: &PublicKey, signature: &str| {
            from_base64(signature).map(|bytes| key.holds(&signed, &bytes)).ok_or(EnrollFault::Signature)
        };
        if !holds(&public, &self.token_signature)? {
            return Err(EnrollFault::TokenProof);
        }
        if !holds(&keys.signing, &self.identity_signature)? {
            return Err(EnrollFault::IdentityProof);
        }
        Ok(())
    }
}

fn info(token: &TokenHash, keys: &IdentityKeys) -> Vec<u8> {
    keys.write(Transcript::new("pond/enroll/challenge/v1").digest(&token.0)).finish()
}

fn signed(nonce: &Nonce, keys: &IdentityKeys, token: &TokenHash) -> Vec<u8> {
    keys.write(Transcript::new("pond/enroll/proof/v1").digest(&nonce.0)).digest(&token.0).finish()
}
