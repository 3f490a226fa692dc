//! Becoming a worker: two calls, after which both sides know each other's keys. Nothing is kept unless the answer is signed with
//! the key whose id stands in the token.

use std::time::Duration;

use http::Request;
use http::header::CONTENT_TYPE;
use pond_seal::enroll::{EnrollFault, Grant, Identity, JoinToken, Joined, answer};
use pond_seal::key::PublicKey;
use pond_seal::seal::Sealed;
use pond_wire::orch::{
    self, Blob, Body, EnrollBegin, EnrollChallenge, EnrollFinish, EnrollReply, Few, Hash, NotAValue, Route,
    Version,
};
use serde::Serialize;

use super::session::{CallFault, accepted};
use crate::link::{Link, LinkFault, whole};

const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum JoinFault {
    #[error("the enrollment does not hold")]
    Enroll(#[from] EnrollFault),
    #[error("asking the control plane")]
    Call(#[from] CallFault),
    #[error("the challenge is none")]
    Challenge(#[source] serde_json::Error),
    #[error("writing the proof")]
    Proof(#[source] serde_json::Error),
    #[error("a value that no body can hold")]
    Value(#[from] NotAValue),
}

/// Enrolls these keys with this token: the control plane's key, to be pinned, and what was granted.
pub async fn join(
    link: &Link,
    token: &JoinToken,
    identity: &Identity,
    capabilities: Vec<String>,
) -> Result<(PublicKey, Grant), JoinFault> {
    let keys = identity.keys();
    let begin = EnrollBegin {
        version: Version,
        token: Hash::try_from(token.public().to_hex())?,
        signing_key: Hash::try_from(keys.signing.to_hex())?,
        seal_key: Hash::try_from(keys.seal.to_hex())?,
    };
    let challenge: EnrollChallenge = ask(link, Route::EnrollBegin, &begin).await?;
    let sealed: Sealed = serde_json::from_slice(challenge.sealed.as_bytes()).map_err(JoinFault::Challenge)?;
    let (nonce, proof) = answer(&sealed, token, identity)?;
    let finish = EnrollFinish {
        version: Version,
        enrollment: challenge.enrollment,
        proof: Blob::new(serde_json::to_vec(&proof).map_err(JoinFault::Proof)?)?,
        capabilities: Few::try_from(capabilities)?,
    };
    let reply: EnrollReply = ask(link, Route::EnrollFinish, &finish).await?;
    let joined = Joined { control: reply.control.as_str().to_owned(), envelope: reply.joined.into_bytes() };
    Ok(joined.verify(token, &keys, nonce)?)
}

/// A call that is proved by the token inside its body.
async fn ask<T: Body>(link: &Link, route: Route, body: &impl Serialize) -> Result<T, CallFault> {
    let body = serde_json::to_vec(body)?;
    let request = Request::post(route.path()).header(CONTENT_TYPE, "application/json").body(whole(body));
    let reply = link.send(request.map_err(LinkFault::Request)?, PATIENCE).await?;
    Ok(orch::decode(&accepted(reply).await?.bytes(T::MOST_BYTES, PATIENCE).await?)?)
}
