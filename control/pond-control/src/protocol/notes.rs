//! Refusals, written down as far as there is room: nobody fills the audit log by being refused. What is not written is refused
//! all the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use serde_json::json;

use super::problem::Problem;
use crate::plane::Plane;
use crate::store::{Action, Actor, Moment};

/// Refused calls that are written down in a minute; the rest are counted.
const MOST: u32 = 600;
const MINUTE: i64 = 60_000;

/// How many were written down since when.
#[derive(Debug, Default)]
pub(super) struct Notes {
    since: AtomicI64,
    written: AtomicU32,
}

impl Notes {
    pub(super) async fn refused(&self, plane: &Plane, actor: &Actor, path: &str, problem: &Problem) {
        let now = plane.now();
        if problem.status == StatusCode::SERVICE_UNAVAILABLE || !self.has_room(now) {
            return;
        }
        let detail = json!({"code": problem.code, "status": problem.status.as_u16()});
        let note = plane.store.note((actor, Action::RequestRefused), path, detail, now);
        if let Err(_refused_all_the_same) = note.await {}
    }

    fn has_room(&self, now: Moment) -> bool {
        // Also when the clock went back.
        if now.0.abs_diff(self.since.load(Ordering::Relaxed)) > MINUTE.unsigned_abs() {
            self.since.store(now.0, Ordering::Relaxed);
            self.written.store(0, Ordering::Relaxed);
        }
        self.written.fetch_add(1, Ordering::Relaxed) < MOST
    }
}

/// Writes down what an orchestrator in this process refuses by itself, before it asks: bodies that are too large or too slow.
pub fn noting(plane: Arc<Plane>, orchestrator: Router) -> Router {
    let state = Arc::new((plane, Notes::default()));
    orchestrator.layer(from_fn_with_state(state, note))
}

async fn note(State(state): State<Arc<(Arc<Plane>, Notes)>>, request: Request, next: Next) -> Response {
    let (plane, notes) = &*state;
    let path = request.uri().path().to_owned();
    let response = next.run(request).await;
    let code = match response.status() {
        StatusCode::PAYLOAD_TOO_LARGE => "body_too_large",
        StatusCode::REQUEST_TIMEOUT => "body_late",
        _ => return response,
    };
    let problem = Problem::new(response.status(), code, "");
    notes.refused(plane, &Actor::Nobody, &path, &problem).await;
    response
}
