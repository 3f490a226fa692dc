//! Runs: judged, taken in, shown, cancelled.

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use axum::response::{IntoResponse, Response};
use pond_policy::name::{Name, Project};
use pond_policy::reason::{Cause, Reason};
use pond_policy::run::Run;
use pond_policy::stage::State;
use pond_seal::Digest;
use pond_wire::api::{self, ENVELOPE_TYPE, ProblemCode};
use pond_wire::decode::decode;
use serde::Deserialize;

use super::call::{Call, created, millis, object, ok};
use super::problem::Refused;
use crate::store::{
    Asked, BundleId, Idempotency, Outcome, ResultView, RunId, RunState, RunSummary, RunView, StageView,
    Standing, Submission, SubmitFault, Submitted, Tally,
};

const MOST_RETRIES: u32 = 10;
const PAGE: u32 = 50;
const MOST_REASON: usize = 500;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Filter {
    project: Option<String>,
    state: Option<api::RunState>,
    cursor: Option<String>,
    limit: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    attempt: Option<u64>,
}

impl Which {
    pub(super) fn is_of(&self, attempt: u64) -> bool {
        self.attempt.is_none_or(|asked| asked == attempt)
    }
}

pub(super) async fn preflight(call: &Call, body: Body) -> Result<Response, Refused> {
    let bytes = call.body(body).await?;
    let run = judge(call, &bytes)?;
    let unknown = || Refused::project_unknown("project", &run.project);
    call.store().project(&run.project).await?.ok_or_else(unknown)?;
    Ok(ok(&api::Accepted::from(&run)))
}

/// Judged as dispatch will judge it again, with what the operator demands now.
fn judge(call: &Call, document: &[u8]) -> Result<Run, Refused> {
    let refused = |refusals| Refused::of(api::Problem::refused(refusals));
    let node = decode(document).map_err(refused)?;
    let run = pond_policy::run::preflight(&node, &call.plane().settings).map_err(refused)?;
    call.allowed(run.project.clone())?;
    Ok(run)
}

pub(super) async fn submit(call: &Call, body: Body) -> Result<Response, Refused> {
    let bytes = call.body(body).await?;
    let body: api::Submit = object(&bytes)?;
    if body.retries > MOST_RETRIES {
        return Err(Refused::new(ProblemCode::Malformed, format!("retries: at most {MOST_RETRIES}")));
    }
    let unknown = || Refused::new(ProblemCode::SourceUnknown, "no such source of this project");
    let source = body.source.map(|id| BundleId::parse(id.as_str()).ok_or_else(unknown)).transpose()?;
    let document = body.document.bytes();
    let run = judge(call, &document)?;
    let scope = call.caller.actor.to_string();
    let key = key(call)?;
    let input = match &source {
        None => None,
        Some(source) => Some(call.store().input_of(source, &run.project).await?.ok_or_else(unknown)?),
    };
    let fingerprint = fingerprint(&document, body.retries, input);
    let idempotency = key.map(|key| Idempotency { scope: &scope, key, fingerprint });
    let submission = Submission {
        run: &run,
        document: &document,
        source: source.as_ref(),
        retries: body.retries,
        idempotency,
    };
    let submitted = call.store().submit(submission, &call.caller.actor, call.now()).await;
    let warnings = run.warnings().map(|warning| pond_wire::contract::Warning::from(warning).into()).collect();
    let (id, new) = match submitted.map_err(refused)? {
        Submitted::New(id) => (id, true),
        Submitted::Replayed(id) => (id, false),
    };
    let reply = api::SubmitReply { run: id.to_string(), warnings };
    if !new {
        return Ok(ok(&reply));
    }
    call.plane().bell.ring();
    let mut response = created(&reply);
    if let Ok(place) = HeaderValue::try_from(format!("/v1/runs/{id}")) {
        response.headers_mut().insert(LOCATION, place);
    }
    Ok(response)
}

/// Of everything that is asked for. A source that was sent again has another name and is the same source.
fn fingerprint(document: &[u8], retries: u32, input: Option<Digest>) -> Digest {
    let input = input.map(|input| input.to_string()).unwrap_or_default();
    Digest::of(format!("{} {retries} {input}", Digest::of(document)).as_bytes())
}

fn refused(fault: SubmitFault) -> Refused {
    match fault {
        SubmitFault::Store(fault) => fault.into(),
        SubmitFault::UnknownProject(project) => Refused::project_unknown("project", &project),
        SubmitFault::UnknownSource(_) => {
            Refused::new(ProblemCode::SourceUnknown, "no such source of this project")
        }
        SubmitFault::KeyReused => Refused::new(ProblemCode::KeyReused, "use a new key for a new request"),
    }
}

/// The caller's name for this request, under which it counts once.
pub(super) fn key(call: &Call) -> Result<Option<&str>, Refused> {
    let mut keys = call.parts.headers.get_all("idempotency-key").iter();
    let (Some(first), second) = (keys.next(), keys.next()) else { return Ok(None) };
    let text = first.to_str().ok().filter(|text| second.is_none() && (1..=128).contains(&text.len()));
    text.map(Some).ok_or_else(|| Refused::parameter("Idempotency-Key: one, of 1 to 128 visible characters"))
}

pub(super) async fn list(call: &Call) -> Result<Response, Refused> {
    let filter: Filter = call.query()?;
    let project = named(call, filter.project.as_deref())?;
    let cursor =
        |text: &str| RunId::parse(text).ok_or_else(|| Refused::parameter("cursor: take it from `next`"));
    let after = filter.cursor.as_deref().map(cursor).transpose()?;
    let asked = Asked {
        project: project.as_ref(),
        state: filter.state.map(state_asked),
        after: after.as_ref(),
        limit: page(filter.limit)?,
    };
    let page = call.store().runs(asked).await?;
    let next = page.next.map(|id| id.to_string());
    Ok(ok(&api::RunPage { runs: page.rows.iter().map(summary).collect(), next }))
}

/// The project a list is asked for; for a token of one project always that.
pub(super) fn named(call: &Call, project: Option<&str>) -> Result<Option<Project>, Refused> {
    let Some(text) = project else { return Ok(call.caller.project().cloned()) };
    let bad = || Refused::parameter("project: not the name of one");
    let project = Name::parse(text).map(Project::from).ok_or_else(bad)?;
    call.allowed(project).map(Some)
}

/// How many rows a page has.
pub(super) fn page(limit: Option<u32>) -> Result<u32, Refused> {
    match limit {
        None => Ok(PAGE),
        Some(limit @ 1..=200) => Ok(limit),
        Some(_) => Err(Refused::parameter("limit: 1 to 200")),
    }
}

pub(super) async fn show(call: &Call) -> Result<Response, Refused> {
    let run = call.run().await?;
    let RunView { run, source, stages } = call.store().run(&run).await?.ok_or_else(Refused::not_found)?;
    let mut views = Vec::new();
    for stage in stages {
        let results = call.store().results(&stage.id).await?;
        views.push(stage_view(stage, &results));
    }
    let source = source.map(|source| source.to_string());
    let budgets = call.store().standing(&run.id, call.now()).await?.into_iter().map(budget_view).collect();
    Ok(ok(&api::RunView { run: summary(&run), source, stages: views, budgets }))
}

pub(super) async fn cancel(call: &Call, body: Body) -> Result<Response, Refused> {
    let run = call.run().await?;
    let bytes = call.body(body).await?;
    let body: api::Cancel = if bytes.is_empty() { api::Cancel::default() } else { object(&bytes)? };
    let reason = body.reason.unwrap_or_else(|| "cancelled by a user".to_owned());
    if reason.chars().count() > MOST_REASON || reason.contains('\0') {
        let detail = format!("reason: at most {MOST_REASON} characters, none of them NUL");
        return Err(Refused::new(ProblemCode::Malformed, detail));
    }
    // One that is over, or being cancelled already, is as it should be.
    let reason = Reason::of(Cause::Cancelled, reason).to_string();
    if call.store().cancel(&run, &reason, &call.caller.actor, call.now()).await? {
        call.plane().bell.ring();
    }
    let view = call.store().run(&run).await?.ok_or_else(Refused::not_found)?;
    Ok(ok(&summary(&view.run)))
}

/// The envelope, byte for byte as it was signed.
pub(super) async fn statement(call: &Call) -> Result<Response, Refused> {
    let run = call.run().await?;
    let which: Which = call.query()?;
    let stage = stage(call, &run).await?;
    let mut results = call.store().results(&stage.id).await?;
    results.retain(|result| which.is_of(result.attempt));
    let last = results.pop().ok_or_else(Refused::not_found)?;
    let media = (CONTENT_TYPE, HeaderValue::from_static(ENVELOPE_TYPE));
    Ok((StatusCode::OK, [media], last.envelope).into_response())
}

/// The stage named in the path.
pub(super) async fn stage(call: &Call, run: &RunId) -> Result<StageView, Refused> {
    let name = call.name("stage")?;
    let view = call.store().run(run).await?.ok_or_else(Refused::not_found)?;
    view.stages.into_iter().find(|stage| stage.name == name.as_str()).ok_or_else(Refused::not_found)
}

pub(super) fn summary(run: &RunSummary) -> api::RunSummary {
    api::RunSummary {
        id: run.id.to_string(),
        project: run.project.clone(),
        state: state_told(run.state),
        cancel: run.cancel.as_ref().map(|reason| reason.sentence.clone()),
        cancel_code: run.cancel.as_ref().map(|reason| reason.code.clone()),
        open_stages: run.open_stages,
        created_at: millis(run.created_at),
        ended_at: run.ended_at.map(millis),
    }
}

fn stage_view(stage: StageView, results: &[ResultView]) -> api::StageView {
    let job = stage.job.map(|job| api::JobView {
        id: job.id.to_string(),
        attempt: job.attempt,
        worker: job.worker.map(|worker| worker.to_string()),
        epoch: job.epoch,
    });
    // One that waits without a reason waits for its turn.
    let in_turn = stage.state == State::Queued && stage.reason.code.is_empty();
    let reason = match in_turn {
        true => Reason::of(Cause::WorkersBusy, "waits for a worker that may have it and is free"),
        false => stage.reason,
    };
    api::StageView {
        id: stage.id.to_string(),
        name: stage.name,
        state: stage.state.into(),
        reason: reason.sentence,
        code: reason.code,
        job,
        ended_at: stage.ended_at.map(millis),
        results: results.iter().map(result_view).collect(),
    }
}

fn budget_view(tally: Tally) -> api::BudgetView {
    let Tally { budget, limit, used, set_aside } = tally;
    let (name, unit) = (budget.name().to_owned(), budget.unit().to_owned());
    api::BudgetView { budget: name, unit, limit, used, set_aside }
}

fn result_view(result: &ResultView) -> api::ResultView {
    api::ResultView {
        job: result.job.to_string(),
        worker: result.worker.to_string(),
        attempt: result.attempt,
        epoch: result.epoch,
        outcome: match result.outcome {
            Outcome::Succeeded => api::Outcome::Succeeded,
            Outcome::Failed => api::Outcome::Failed,
            Outcome::Rejected => api::Outcome::Rejected,
        },
        statement_sha256: result.digest.to_string(),
        at: millis(result.at),
        standing: match result.standing {
            Standing::Single => api::Standing::Single,
            Standing::Unconfirmed => api::Standing::Unconfirmed,
            Standing::Confirmed => api::Standing::Confirmed,
            Standing::Distrusted => api::Standing::Distrusted,
        },
        differs: result.differs.clone(),
    }
}

fn state_told(state: RunState) -> api::RunState {
    match state {
        RunState::Active => api::RunState::Active,
        RunState::Succeeded => api::RunState::Succeeded,
        RunState::Failed => api::RunState::Failed,
        RunState::Cancelled => api::RunState::Cancelled,
        RunState::Refused => api::RunState::Refused,
    }
}

fn state_asked(state: api::RunState) -> RunState {
    match state {
        api::RunState::Active => RunState::Active,
        api::RunState::Succeeded => RunState::Succeeded,
        api::RunState::Failed => RunState::Failed,
        api::RunState::Cancelled => RunState::Cancelled,
        api::RunState::Refused => RunState::Refused,
    }
}
