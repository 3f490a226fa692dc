//! The calls of an enrolled worker: each signed, each reply bounded, none trusted for more than it is.
//!
//! A refusal of the control plane's is an answer and is not repeated; whatever else goes wrong may pass, and who calls decides
//! how long to try.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Request as HttpRequest, StatusCode};
use pond_seal::Digest;
use pond_seal::enroll::Identity;
use pond_seal::key::{PublicKey, SigningKey};
use pond_seal::request::{HEADER, Request, RequestFault, RequestNonce, SignedHead};
use pond_wire::orch::{self, Body, BodyFault, Route};
use serde::{Deserialize, Serialize};

use crate::link::{Link, LinkFault, Reply, whole};

/// How long a call may take that the server answers at once.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
const MOST_PROBLEM: usize = 64 << 10;
/// Refusals that do not last: a clock that is off is set right, a memory that is full empties, and a request that somebody sent
/// twice on the way is sent anew under another number. Anything else stays refused.
const PASSING: [&str; 3] = ["request_time", "request_flood", "request_replayed"];

/// Who this worker is, and whom it believes.
#[derive(Debug)]
pub struct Session {
    pub link: Link,
    pub worker: String,
    pub identity: Identity,
    /// The control plane's key, pinned at enrollment.
    pub control: PublicKey,
    /// The wall clock in seconds, as the program reads it.
    pub clock: fn() -> u64,
}

#[derive(Debug, thiserror::Error)]
pub enum CallFault {
    #[error("the control plane refused: {code}")]
    Refused { status: StatusCode, code: String },
    #[error("the server is not ready: {0}")]
    Unready(StatusCode),
    #[error("calling the control plane")]
    Link(#[from] LinkFault),
    #[error("the answer is none")]
    Answer(#[from] BodyFault),
    #[error("signing the request")]
    Sign(#[from] RequestFault),
    #[error("writing the request")]
    Write(#[from] serde_json::Error),
}

impl CallFault {
    /// Whether the same call may go well later.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::Write(_) => false,
            Self::Unready(_) | Self::Link(_) | Self::Answer(_) | Self::Sign(_) => true,
        }
    }
}

/// A refusal, as far as a worker reads it.
#[derive(Deserialize)]
struct Problem {
    code: String,
}

impl Session {
    /// One call with one answer.
    pub async fn call<T: Body>(&self, route: Route, body: &impl Serialize) -> Result<T, CallFault> {
        self.call_as(&self.identity.signing, route, body).await
    }

    /// The same, and the number it was made under: what an offer in the answer must name.
    pub(super) async fn ask<T: Body>(
        &self,
        route: Route,
        body: &impl Serialize,
        patience: Duration,
    ) -> Result<(T, RequestNonce), CallFault> {
        let (reply, nonce) = self.send(route, body, patience).await?;
        Ok((orch::decode(&reply.bytes(T::MOST_BYTES, patience).await?)?, nonce))
    }

    /// One call, signed with keys that are not this session's yet.
    pub async fn call_as<T: Body>(
        &self,
        key: &SigningKey,
        route: Route,
        body: &impl Serialize,
    ) -> Result<T, CallFault> {
        let (reply, _) = self.send_as(key, route, body, PATIENCE).await?;
        Ok(orch::decode(&reply.bytes(T::MOST_BYTES, PATIENCE).await?)?)
    }

    /// A call whose answer is read by the caller, and the number it was made under.
    pub(super) async fn send(
        &self,
        route: Route,
        body: &impl Serialize,
        patience: Duration,
    ) -> Result<(Reply<'_>, RequestNonce), CallFault> {
        self.send_as(&self.identity.signing, route, body, patience).await
    }

    async fn send_as(
        &self,
        key: &SigningKey,
        route: Route,
        body: &impl Serialize,
        patience: Duration,
    ) -> Result<(Reply<'_>, RequestNonce), CallFault> {
        let body = serde_json::to_vec(body)?;
        let request = Request { method: "POST", path: route.path(), body: Digest::of(&body) };
        let nonce = RequestNonce::generate()?;
        let control = self.control.id();
        let head = SignedHead::sign(&request, &self.worker, control, (self.clock)(), nonce, key);
        let request = HttpRequest::post(route.path())
            .header(CONTENT_TYPE, "application/json")
            .header(HEADER, head.to_text())
            .body(whole(body))
            .map_err(LinkFault::Request)?;
        let reply = self.link.send(request, patience).await?;
        Ok((accepted(reply).await?, nonce))
    }
}

/// The reply, unless it is a refusal.
pub(super) async fn accepted(reply: Reply<'_>) -> Result<Reply<'_>, CallFault> {
    let status = reply.status();
    if status.is_success() {
        return Ok(reply);
    }
    let is_refusal = status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS;
    let body = reply.bytes(MOST_PROBLEM, PATIENCE).await?;
    match serde_json::from_slice::<Problem>(&body) {
        Ok(Problem { code }) if is_refusal && !PASSING.contains(&code.as_str()) => {
            Err(CallFault::Refused { status, code })
        }
        Ok(_) | Err(_) => Err(CallFault::Unready(status)),
    }
}
