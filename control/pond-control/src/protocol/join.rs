//! Machines become workers and change their keys. What they may do is granted here, from the token's row, and nowhere else.

use axum::http::StatusCode;
use pond_policy::capability::Capability;
use pond_seal::Digest;
use pond_seal::enroll::{
    Challenge, EnrollFault, Grant, IdentityKeys, Joined, Nonce, Proof, Rotation, TokenHash,
};
use pond_seal::key::PublicKey;
use pond_wire::orch::{
    Blob, EnrollBegin, EnrollChallenge, EnrollFinish, EnrollReply, Hash, Id, NotAValue, Rotate, RotateReply,
    Version,
};
use serde::{Deserialize, Serialize};

use super::gate::Caller;
use super::problem::Problem;
use crate::plane::Plane;
use crate::store::{self, Moment, NewWorker, WorkerFault, WorkerView};

/// What a machine was asked, as the store keeps it until the answer comes.
#[derive(Serialize, Deserialize)]
struct Asked {
    nonce: Nonce,
    keys: IdentityKeys,
}

pub(super) async fn begin(
    plane: &Plane,
    body: &EnrollBegin,
    now: Moment,
) -> Result<EnrollChallenge, Problem> {
    let public = PublicKey::parse(body.token.as_str()).map_err(EnrollFault::from)?;
    let token = TokenHash::of(&public);
    // Parsed with a trial seal: a key nothing can be sealed to is refused here.
    let keys = IdentityKeys::parse(body.signing_key.as_str(), body.seal_key.as_str())?;
    let challenge = Challenge::issue(&token, &keys)?;
    let asked =
        serde_json::to_string(&Asked { nonce: challenge.nonce, keys }).map_err(EnrollFault::Encode)?;
    plane.store.challenge(&digest(token), &asked, now).await?;
    let sealed = serde_json::to_vec(&challenge.sealed).map_err(EnrollFault::Encode)?;
    let enrollment = Id::try_from(token.to_string()).map_err(unwritten)?;
    Ok(EnrollChallenge { version: Version, enrollment, sealed: Blob::new(sealed).map_err(unwritten)? })
}

pub(super) async fn finish(plane: &Plane, body: &EnrollFinish, now: Moment) -> Result<EnrollReply, Problem> {
    let unknown = || Problem::from(EnrollFault::OtherToken);
    let token = Digest::try_from(body.enrollment.as_str().to_owned()).map_err(|_| unknown())?;
    let asked = plane.store.challenged(&token).await?.ok_or_else(unknown)?;
    let Asked { nonce, keys } = serde_json::from_str(&asked).map_err(EnrollFault::Malformed)?;
    let proof: Proof = serde_json::from_slice(body.proof.as_bytes()).map_err(EnrollFault::Malformed)?;
    proof.verify(&nonce, &TokenHash::from(token), &keys)?;
    let (sign_key, seal_key) = (keys.signing.to_hex(), keys.seal.to_hex());
    let name = format!("worker-{}", sign_key.get(..8).unwrap_or_default());
    let capabilities = known(body.capabilities.as_slice());
    let new =
        NewWorker { name: &name, sign_key: &sign_key, seal_key: &seal_key, capabilities: &capabilities };
    let id = plane.store.enroll(&token, new, now).await?;
    let worker = plane.store.worker(&id).await?.ok_or_else(unknown)?;
    plane.bell.ring();
    let joined = Joined::sign(granted(&worker), &keys, nonce, &plane.key)?;
    let control = Hash::try_from(joined.control).map_err(unwritten)?;
    Ok(EnrollReply { version: Version, control, joined: Blob::new(joined.envelope).map_err(unwritten)? })
}

/// Every key it had is remembered.
const MOST_GENERATIONS: u64 = 256;

pub(super) async fn rotate(
    plane: &Plane,
    caller: &Caller,
    body: Rotate,
    now: Moment,
) -> Result<RotateReply, Problem> {
    let worker = &caller.worker;
    if worker.generation >= MOST_GENERATIONS {
        let detail = "the keys changed too often; join anew";
        return Err(Problem::new(StatusCode::CONFLICT, "rotation_out_of_turn", detail));
    }
    let rotation = Rotation(body.rotation.into_bytes());
    let keys = rotation.verify(&caller.key, worker.id.as_str(), worker.generation + 1)?;
    let (sign_key, seal_key) = (keys.signing.to_hex(), keys.seal.to_hex());
    let generation = plane.store.rotate_worker(worker, (&sign_key, &seal_key), now).await?;
    Ok(RotateReply { version: Version, generation })
}

/// What a worker says it can enforce, as far as this control plane knows the names.
pub(super) fn known(capabilities: &[String]) -> Vec<Capability> {
    let mut known: Vec<Capability> = capabilities.iter().filter_map(|text| Capability::parse(text)).collect();
    known.sort_by_key(ToString::to_string);
    known.dedup();
    known
}

fn granted(worker: &WorkerView) -> Grant {
    let tenant = worker.have.tags.iter().find_map(|tag| tag.as_str().strip_prefix("tenant:"));
    Grant {
        worker: worker.id.to_string(),
        tenant: tenant.map(str::to_owned),
        tags: worker.have.tags.iter().map(ToString::to_string).collect(),
    }
}

fn digest(token: TokenHash) -> Digest {
    token.into()
}

/// What is written here always fits; if it did not, nothing is sent.
fn unwritten(_: NotAValue) -> Problem {
    Problem::internal("message_encoding")
}

impl From<store::EnrollFault> for Problem {
    fn from(fault: store::EnrollFault) -> Self {
        match fault {
            store::EnrollFault::Store(fault) => fault.into(),
            store::EnrollFault::Token | store::EnrollFault::Grant => {
                Self::new(StatusCode::FORBIDDEN, "token_unknown", "the token is unknown, used or expired")
            }
            store::EnrollFault::KeyTaken => {
                Self::new(StatusCode::CONFLICT, "key_taken", "a worker with this key is enrolled already")
            }
        }
    }
}

impl From<WorkerFault> for Problem {
    fn from(fault: WorkerFault) -> Self {
        match fault {
            WorkerFault::Store(fault) => fault.into(),
            WorkerFault::Unknown(_) | WorkerFault::Is(_) => {
                Self::new(StatusCode::CONFLICT, "worker_changed", "the worker is no longer what it was")
            }
        }
    }
}
