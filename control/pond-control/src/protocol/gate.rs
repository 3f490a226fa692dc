//! Who calls: the signature of a pinned key over this very request, in time, and never seen before.
//!
//! HOSTILE until [`Gate::admit`] returned. Only a request whose signature holds is remembered, so nobody without a key can
//! fill the memory; each worker fills its own, up to a bound, and refuses itself beyond it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use axum::http::request::Parts;
use pond_seal::Digest;
use pond_seal::key::PublicKey;
use pond_seal::request::{
    HEADER, Request, RequestFault, RequestNonce, SeenNonces, SignedHead, WINDOW_SECONDS,
};
use pond_seal::seal::SealKey;
use pond_wire::orch::Route;

use super::parsed::Parsed;
use super::problem::Problem;
use crate::plane::Plane;
use crate::store::{Actor, Moment, WorkerId, WorkerState, WorkerView};

/// Requests of one worker within the time a request passes: a thousand a second, and twice that.
const MOST_PER_WORKER: usize = 1 << 18;

/// A worker that has proved who it is.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) worker: WorkerView,
    pub(super) key: PublicKey,
    /// What is for it alone is sealed to this. Without one it gets neither work nor secrets.
    pub(super) seal_key: Option<SealKey>,
    pub(super) nonce: RequestNonce,
}

#[derive(Debug, Default)]
pub(super) struct Gate {
    seen: Mutex<Seen>,
    signing: Parsed<PublicKey>,
    sealing: Parsed<SealKey>,
}

#[derive(Debug, Default)]
struct Seen {
    workers: HashMap<WorkerId, Arc<Mutex<SeenNonces>>>,
    /// When what can no longer pass was last let go, in seconds.
    swept: u64,
}

impl Caller {
    pub(super) fn actor(&self) -> Actor {
        Actor::Worker(self.worker.id.clone())
    }
}

/// Whether a call is answered with something of worth by nobody who looks at the worker's row itself. Then that is done here. Where
/// something is only handed in, under a lease that a revoked worker does not have, what was known half a second ago will do; and a
/// job is taken by a statement that looks whether the worker is active and has these keys.
const fn gives(route: Route) -> bool {
    match route {
        Route::EnrollBegin | Route::EnrollFinish => true,
        Route::Rotate | Route::Seal | Route::Redeem => true,
        Route::Poll => false,
        Route::Acknowledge | Route::Heartbeat | Route::Chunks | Route::Complete | Route::Decline => false,
    }
}

impl Gate {
    pub(super) async fn admit(
        &self,
        plane: &Plane,
        (route, parts): (Route, &Parts),
        body: &[u8],
        now: Moment,
    ) -> Result<Caller, Problem> {
        let head = parts.headers.get(HEADER).and_then(|value| value.to_str().ok());
        let head = SignedHead::parse(head.ok_or(RequestFault::Malformed)?)?;
        let unknown = || Problem::new(StatusCode::UNAUTHORIZED, "worker_unknown", "there is no such worker");
        let id = WorkerId::parse(head.worker()).ok_or_else(unknown)?;
        let worker = match gives(route) {
            true => plane.store.worker(&id).await?,
            false => plane.store.known_worker(&id).await?,
        };
        let worker = worker.ok_or_else(unknown)?;
        let key = self.signing.of(&worker.sign_key, PublicKey::parse).map_err(|_| unknown())?;
        self.verify(plane, &head, (parts, body), &key, &worker.id, now)?;
        if worker.state == WorkerState::Revoked {
            return Err(Problem::new(StatusCode::FORBIDDEN, "worker_revoked", "the worker was revoked"));
        }
        let seal_key = self.sealing.of(&worker.seal_key, SealKey::parse).ok();
        Ok(Caller { worker, key, seal_key, nonce: head.nonce() })
    }

    fn verify(
        &self,
        plane: &Plane,
        head: &SignedHead,
        (parts, body): (&Parts, &[u8]),
        key: &PublicKey,
        worker: &WorkerId,
        now: Moment,
    ) -> Result<(), RequestFault> {
        let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
        let request = Request { method: parts.method.as_str(), path, body: Digest::of(body) };
        let seconds = u64::try_from(now.0 / 1000).unwrap_or(0);
        let nonces = self.nonces(worker, seconds);
        let mut nonces = nonces.lock().unwrap_or_else(PoisonError::into_inner);
        head.verify(&request, key, plane.key.public().id(), seconds, &mut nonces)
    }

    /// The memory of one worker. Those of workers that have not called for a while go.
    fn nonces(&self, worker: &WorkerId, seconds: u64) -> Arc<Mutex<SeenNonces>> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.swept.abs_diff(seconds) > WINDOW_SECONDS {
            seen.swept = seconds;
            seen.workers.retain(|_, nonces| {
                // One that is in use is about to remember something.
                if Arc::strong_count(nonces) > 1 {
                    return true;
                }
                let mut nonces = nonces.lock().unwrap_or_else(PoisonError::into_inner);
                nonces.forget(seconds);
                !nonces.is_empty()
            });
        }
        let fresh = || Arc::new(Mutex::new(SeenNonces::new(MOST_PER_WORKER)));
        Arc::clone(seen.workers.entry(worker.clone()).or_insert_with(fresh))
    }
}
