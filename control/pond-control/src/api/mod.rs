//! The user's API: `/v1`, its description, and what those who watch a control plane ask for.
//!
//! TRUSTED, and every byte of a request is hostile. Invariants: one table ([`Route`]) says what there is, who may and how much
//! may be sent, and router, OpenAPI document and the tests of authorisation are made from it; nobody is answered before his
//! token, its scope and its project were judged; whatever fails is a problem with a code; a refused call is written down, at a
//! bounded rate; no reply shows a secret but the ones that are shown once.

mod admit;
mod audit;
mod call;
mod exec;
mod limit;
mod metrics;
mod openapi;
mod problem;
mod project;
mod route;
mod run;
mod sandbox;
mod secret;
mod source;
mod system;
mod token;
mod watch;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request};
use axum::http::header::{CACHE_CONTROL, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use pond_policy::name::Project;
use pond_wire::api::ProblemCode;
use serde_json::json;
use tokio::sync::{Mutex, Semaphore};

pub use limit::{Peer, Rate, Rates};
pub use openapi::document as openapi_document;
pub use problem::Refused;
pub use route::{Need, Reach, Route, Takes};
pub use secret::{VaultFileFault, renew_vault};
pub use source::forget_unfinished;
pub(crate) use source::{forget_unused, intake};

use crate::keeper::Keeper;
use crate::plane::Plane;
use crate::store::{Action, Actor};
use call::Call;
use limit::{Key, Limiter};
use metrics::Metrics;

/// How long a call may take, its body included; streams are written after it.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the store may take to say who calls.
const KNOWN: Duration = Duration::from_secs(10);

type PathParams = Result<RawPathParams, RawPathParamsRejection>;

/// Sources that arrive at once; each has a thread and an open file.
const MOST_UPLOADS: usize = 8;

/// What all calls share.
#[derive(Debug)]
pub(crate) struct Api {
    plane: Arc<Plane>,
    limiter: Limiter,
    metrics: Metrics,
    uploads: Arc<Semaphore>,
    keeper: Option<Arc<dyn Keeper>>,
    /// Held while the vault's file and its records change together.
    rotation: Mutex<()>,
}

/// Everything under `/v1`, and beside it `/openapi.json`, `/healthz`, `/readyz` and `/metrics`.
pub fn router(plane: Arc<Plane>, rates: Rates) -> Router {
    router_with(plane, rates, None)
}

/// The same with somebody who keeps sandboxes.
pub fn router_with(plane: Arc<Plane>, rates: Rates, keeper: Option<Arc<dyn Keeper>>) -> Router {
    let api = Arc::new(Api {
        plane,
        limiter: Limiter::new(rates),
        metrics: Metrics::default(),
        uploads: Arc::new(Semaphore::new(MOST_UPLOADS)),
        keeper,
        rotation: Mutex::default(),
    });
    Route::ALL.iter().fold(Router::new(), |router, route| {
        let api = Arc::clone(&api);
        let serve = move |params, request| answer(Arc::clone(&api), *route, params, request);
        router.route(route.path(), on(route.method(), serve))
    })
}

/// For paths that nobody serves.
pub async fn nothing_here() -> Response {
    Refused::new(ProblemCode::NotFound, "no such path; /openapi.json lists what there is").into_response()
}

/// For methods that a path does not take.
pub async fn wrong_method() -> Response {
    Refused::new(ProblemCode::MethodNotAllowed, "no such method here; /openapi.json lists what there is")
        .into_response()
}

async fn answer(api: Arc<Api>, route: Route, params: PathParams, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let (actor, project, outcome) = match tokio::time::timeout(KNOWN, admit::admit(&api, route, &parts)).await
    {
        Err(_late) => (Actor::System, None, Err(too_late())),
        Ok(Err(turned)) => (turned.actor, None, Err(turned.why)),
        Ok(Ok(caller)) => {
            let (actor, project) = (caller.actor.clone(), caller.project().cloned());
            (actor, project, in_time(route, serve(&api, route, caller, (params, parts, body))).await)
        }
    };
    let mut response = match outcome {
        Ok(response) => response,
        // Nobody was refused anything, and a store that does not answer keeps no note of it either.
        Err(refused) if refused.code() == ProblemCode::Unavailable => refused.into_response(),
        Err(refused) => {
            write_down(&api, route, (&actor, project.as_ref()), &refused).await;
            refused.into_response()
        }
    };
    api.metrics.served(route, response.status());
    // Some of what is shown is a job's own output; no browser is to make anything of it, and nobody is to keep it.
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A store that hangs does not take its callers along. A source may take as long as it keeps arriving.
async fn in_time(
    route: Route,
    serving: impl Future<Output = Result<Response, Refused>>,
) -> Result<Response, Refused> {
    if route == Route::SendSource {
        return serving.await;
    }
    tokio::time::timeout(PATIENCE, serving).await.map_err(|_late| too_late())?
}

fn too_late() -> Refused {
    Refused::after(ProblemCode::Unavailable, "the store takes too long", 5)
}

async fn serve(
    api: &Arc<Api>,
    route: Route,
    caller: admit::Caller,
    (params, parts, body): (PathParams, Parts, Body),
) -> Result<Response, Refused> {
    let params =
        params.map_err(|_| Refused::new(ProblemCode::ParameterInvalid, "a part of the path is not UTF-8"))?;
    let call = Call { api: Arc::clone(api), route, caller, params, parts };
    match route {
        Route::Health => Ok(system::health()),
        Route::Ready => system::ready(&call).await,
        Route::Metrics => system::metrics(&call).await,
        Route::OpenApi => Ok(system::openapi()),
        Route::Preflight => run::preflight(&call, body).await,
        Route::Submit => run::submit(&call, body).await,
        Route::SendSource => source::send(&call, body).await,
        Route::Runs => run::list(&call).await,
        Route::Run => run::show(&call).await,
        Route::Cancel => run::cancel(&call, body).await,
        Route::Events => watch::events(&call).await,
        Route::Logs => watch::logs(&call).await,
        Route::Statement => run::statement(&call).await,
        Route::Result => watch::result(&call).await,
        Route::Proof => audit::proof(&call).await,
        Route::MakeSandbox => sandbox::create(&call, body).await,
        Route::Sandboxes => sandbox::list(&call).await,
        Route::Sandbox => sandbox::show(&call).await,
        Route::RemoveSandbox => sandbox::delete(&call).await,
        Route::StopSandbox => sandbox::stop(&call).await,
        Route::ResumeSandbox => sandbox::resume(&call).await,
        Route::SandboxEvents => exec::events(&call).await,
        Route::Exec => exec::start(&call, body).await,
        Route::ShowExec => exec::show(&call).await,
        Route::ExecOutput => exec::output(&call).await,
        Route::CancelExec => exec::cancel(&call).await,
        Route::ReadFile => exec::read(&call).await,
        Route::WriteFile => exec::write(&call, body).await,
        Route::Projects => project::list(&call).await,
        Route::MakeProject => project::make(&call).await,
        Route::RemoveProject => project::remove(&call).await,
        Route::Egress => project::egress(&call).await,
        Route::AllowEgress => project::allow(&call).await,
        Route::RemoveEgress => project::disallow(&call).await,
        Route::Credentials => secret::list(&call).await,
        Route::SetCredential => secret::set(&call, body).await,
        Route::RemoveCredential => secret::remove(&call).await,
        Route::RotateCredentials => secret::rotate(&call).await,
        Route::Workers => worker::list(&call).await,
        Route::JoinToken => worker::token(&call, body).await,
        Route::RevokeWorker => worker::revoke(&call).await,
        Route::DrainWorker => worker::drain(&call).await,
        Route::ReleaseWorker => worker::release(&call).await,
        Route::Tokens => token::list(&call).await,
        Route::IssueToken => token::issue(&call, body).await,
        Route::RevokeToken => token::revoke(&call).await,
        Route::Audit => audit::list(&call).await,
        Route::Checkpoint => audit::checkpoint(&call).await,
        Route::LogEntries => audit::entries(&call).await,
        Route::Consistency => audit::consistency(&call).await,
    }
}

/// Nothing of what the caller sent is written down, and never faster than the log can bear.
async fn write_down(
    api: &Api,
    route: Route,
    (actor, project): (&Actor, Option<&Project>),
    refused: &Refused,
) {
    let code = refused.code();
    tracing::info!(call = route.name(), code = code.name(), actor = %actor, "refused");
    if api.limiter.spend(Key::Audit(actor)).is_err() {
        api.metrics.unwritten();
        return;
    }
    let (who, now) = ((actor, Action::RequestRefused), api.plane.now());
    let detail = json!({"code": code.name(), "status": code.status()});
    if let Err(fault) = api.plane.store.note_for(project, who, route.name(), detail, now).await {
        api.metrics.unwritten();
        tracing::error!(fault = &fault as &dyn std::error::Error, "a refused call was not written down");
    }
}
