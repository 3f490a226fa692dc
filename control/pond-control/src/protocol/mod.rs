//! The workers' protocol, judged: the ten calls under `/orch`.
//!
//! TRUSTED, before hostile callers: whoever relays the calls may read, replay, reorder and change them. In this order: the size of
//! the body, then who signed this very request, then its shape, then the lease it names, then whatever the call is about. A call
//! that fails changes nothing but the audit log (and, where a result was refused, its stage). No reply holds a secret in the
//! clear: the types of `pond_wire::orch` cannot carry one.

mod complete;
pub mod feed;
mod gate;
mod grant;
mod hold;
mod inherit;
mod intake;
mod issued;
mod join;
mod notes;
mod output;
mod parsed;
mod poll;
mod problem;
mod release;
mod rerun;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use pond_wire::orch::{self, Route};
use serde::Serialize;

use crate::plane::Plane;
use crate::store::{Actor, Moment};
use gate::Gate;
pub use grant::Judged;
use notes::Notes;
pub use notes::noting;
use problem::Problem;

/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);
const JSON: HeaderValue = HeaderValue::from_static("application/json");

struct Door {
    plane: Arc<Plane>,
    gate: Gate,
    notes: Notes,
}

/// All calls of workers. A poll is answered at once; whoever holds polls open stands before this.
pub fn router(plane: Arc<Plane>) -> Router {
    let door = Arc::new(Door { plane, gate: Gate::default(), notes: Notes::default() });
    let calls = Route::ALL.into_iter().fold(Router::new(), |router, route| {
        let call = move |State(door): State<Arc<Door>>, request: Request| serve(door, route, request);
        router.route(route.path(), post(call))
    });
    calls.with_state(door)
}

async fn serve(door: Arc<Door>, route: Route, request: Request) -> Response {
    match answer(&door, route, request).await {
        Ok(response) => response,
        Err((actor, problem)) => {
            door.notes.refused(&door.plane, &actor, route.path(), &problem).await;
            problem.into_response()
        }
    }
}

type Refused = (Actor, Problem);

async fn answer(door: &Door, route: Route, request: Request) -> Result<Response, Refused> {
    let (parts, body) = request.into_parts();
    let nobody = |problem: Problem| (Actor::Nobody, problem);
    let bytes = read(body, route.most_bytes()).await.map_err(nobody)?;
    // Not before: a body may have taken half a minute, and a lease may have lapsed meanwhile.
    let (plane, now) = (&door.plane, door.plane.now());
    match route {
        Route::EnrollBegin => begin(plane, &bytes, now).await.map_err(nobody),
        Route::EnrollFinish => finish(plane, &bytes, now).await.map_err(nobody),
        Route::Rotate
        | Route::Poll
        | Route::Acknowledge
        | Route::Seal
        | Route::Redeem
        | Route::Heartbeat
        | Route::Chunks
        | Route::Complete
        | Route::Decline => {
            let mut caller = door.gate.admit(plane, (route, &parts), &bytes, now).await.map_err(nobody)?;
            let answered = signed(plane, route, &mut caller, &bytes, now).await;
            answered.map_err(|problem| (caller.actor(), problem))
        }
    }
}

async fn begin(plane: &Plane, bytes: &[u8], now: Moment) -> Result<Response, Problem> {
    json(&join::begin(plane, &orch::decode(bytes)?, now).await?)
}

async fn finish(plane: &Plane, bytes: &[u8], now: Moment) -> Result<Response, Problem> {
    json(&join::finish(plane, &orch::decode(bytes)?, now).await?)
}

/// The calls of a worker that has proved who it is.
async fn signed(
    plane: &Arc<Plane>,
    route: Route,
    caller: &mut gate::Caller,
    bytes: &[u8],
    now: Moment,
) -> Result<Response, Problem> {
    match route {
        Route::EnrollBegin => begin(plane, bytes, now).await,
        Route::EnrollFinish => finish(plane, bytes, now).await,
        Route::Rotate => json(&join::rotate(plane, caller, orch::decode(bytes)?, now).await?),
        Route::Poll => json(&poll::poll(plane, caller, &orch::decode(bytes)?, now).await?),
        Route::Acknowledge => json(&hold::acknowledge(plane, caller, &orch::decode(bytes)?, now).await?),
        Route::Seal => json(&release::seal(plane, caller, &orch::decode(bytes)?, now).await?),
        Route::Redeem => release::redeem(plane, caller, &orch::decode(bytes)?, now).await,
        Route::Heartbeat => json(&hold::heartbeat(plane, caller, &orch::decode(bytes)?, now).await?),
        Route::Chunks => json(&output::chunk(plane, caller, &orch::decode(bytes)?, now).await?),
        Route::Complete => json(&complete::complete(plane, caller, &orch::decode(bytes)?, now).await?),
        Route::Decline => json(&hold::decline(plane, caller, &orch::decode(bytes)?, now).await?),
    }
}

async fn read(body: Body, most: usize) -> Result<axum::body::Bytes, Problem> {
    let too_large = |_| {
        let detail = format!("the body is larger than {most} bytes, or did not arrive whole");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
    };
    match tokio::time::timeout(BODY_TIME, axum::body::to_bytes(body, most)).await {
        Ok(bytes) => bytes.map_err(too_large),
        Err(_) => {
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body_late", "the body did not arrive in time"))
        }
    }
}

fn json(reply: &impl Serialize) -> Result<Response, Problem> {
    let bytes = serde_json::to_vec(reply).map_err(|_| Problem::internal("message_encoding"))?;
    Ok(([(header::CONTENT_TYPE, JSON)], bytes).into_response())
}
