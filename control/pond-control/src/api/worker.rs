//! Workers: listed, made possible, taken out of work and put back.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use pond_policy::name::{Name, Project};
use pond_seal::Digest;
use pond_seal::enroll::JoinToken;
use pond_wire::api::{self, ProblemCode};

use super::call::{Call, created, millis, ok};
use super::problem::Refused;
use crate::store::{EnrollFault, Grant, WorkerId, WorkerState, WorkerView};

const MOST_LIFE_SECONDS: u32 = 7 * 24 * 3600;

pub(super) async fn list(call: &Call) -> Result<Response, Refused> {
    let workers = call.store().workers().await?;
    Ok(ok(&api::Workers { workers: workers.iter().map(view).collect() }))
}

pub(super) async fn token(call: &Call, body: Body) -> Result<Response, Refused> {
    let body: api::NewJoinToken = call.json(body).await?;
    if !(1..=MOST_LIFE_SECONDS).contains(&body.ttl_seconds) {
        return Err(Refused::new(ProblemCode::Malformed, format!("ttl_seconds: 1 to {MOST_LIFE_SECONDS}")));
    }
    let tenant = body.tenant.as_ref().and_then(|name| Name::parse(name.as_str())).map(Project::from);
    match (body.tier, &tenant) {
        (api::Tier::Trusted, Some(_)) => {
            let message = "a trusted worker serves every project; one of a single project is of the tier byo";
            return Err(Refused::field(ProblemCode::GrantRefused, "tier", message, &["byo"]));
        }
        (api::Tier::Byo, None) => {
            let message = "a byo worker serves one project: name it";
            return Err(Refused::field(ProblemCode::GrantRefused, "tenant", message, &[]));
        }
        (api::Tier::Trusted, None) => {}
        (api::Tier::Byo, Some(tenant)) => {
            let unknown = || Refused::project_unknown("tenant", tenant);
            call.store().project(tenant).await?.ok_or_else(unknown)?;
        }
    }
    let token = JoinToken::issue(&call.plane().key.public()).map_err(|fault| Refused::internal(&fault))?;
    let now = call.now();
    let expires_at = now.plus(Duration::from_secs(u64::from(body.ttl_seconds)));
    let grant = Grant { tier: body.tier.into(), tenant: tenant.as_ref(), tags: &[], expires_at };
    let hash = Digest::try_from(token.hash().to_string()).map_err(|fault| Refused::internal(&fault))?;
    let issued = call.store().issue_enrollment(&hash, grant, &call.caller.actor, now).await;
    issued.map_err(|fault| match fault {
        EnrollFault::Store(fault) => fault.into(),
        EnrollFault::Grant | EnrollFault::Token | EnrollFault::KeyTaken => {
            Refused::new(ProblemCode::GrantRefused, "a byo worker has a tenant, a trusted one has none")
        }
    })?;
    let shown = api::Hidden::new(token.to_text().as_str().to_owned());
    Ok(created(&api::JoinTokenReply { token: shown, expires_at: millis(expires_at) }))
}

pub(super) async fn revoke(call: &Call) -> Result<Response, Refused> {
    let worker = call.param("worker", WorkerId::parse)?;
    call.store().revoke(&worker, &call.caller.actor, call.now()).await?;
    changed(call, &worker).await
}

pub(super) async fn drain(call: &Call) -> Result<Response, Refused> {
    let worker = call.param("worker", WorkerId::parse)?;
    call.store().drain(&worker, &call.caller.actor, call.now()).await?;
    changed(call, &worker).await
}

pub(super) async fn release(call: &Call) -> Result<Response, Refused> {
    let worker = call.param("worker", WorkerId::parse)?;
    call.store().release(&worker, &call.caller.actor, call.now()).await?;
    changed(call, &worker).await
}

async fn changed(call: &Call, worker: &WorkerId) -> Result<Response, Refused> {
    call.plane().bell.ring();
    let worker = call.store().worker(worker).await?.ok_or_else(Refused::not_found)?;
    Ok(ok(&view(&worker)))
}

fn view(worker: &WorkerView) -> api::WorkerView {
    api::WorkerView {
        id: worker.id.to_string(),
        name: worker.name.clone(),
        state: match worker.state {
            WorkerState::Active => api::WorkerState::Active,
            WorkerState::Draining => api::WorkerState::Draining,
            WorkerState::Quarantined => api::WorkerState::Quarantined,
            WorkerState::Revoked => api::WorkerState::Revoked,
        },
        reason: worker.reason.clone(),
        tags: worker.have.tags.iter().map(ToString::to_string).collect(),
        capabilities: worker.have.capabilities.iter().map(ToString::to_string).collect(),
        signing_key: worker.sign_key.clone(),
        former_keys: worker.former_keys.clone(),
        enrolled_at: millis(worker.enrolled_at),
        seen_at: millis(worker.seen_at),
    }
}
