//! Sandboxes that last: asked for, shown, listed, stopped, resumed, deleted. A keeper does it; here it is judged who may.
//!
//! Accepted, then made: a call answers when the keeper has taken it on, and events say how far it is. Invariants: a sandbox is of the
//! project that its label of pond's own names, and one without is for tokens of every project; a command is written down before it is
//! passed on.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{HeaderValue, LOCATION};
use axum::response::Response;
use pond_policy::name::{Name, Project};
use pond_policy::node::Node;
use pond_policy::sandboxes::{self, SandboxId, Share, Spec, check_remote, merge};
use pond_seal::Digest;
use pond_wire::api::{self, ProblemCode, SandboxState};
use pond_wire::contract::value;
use pond_wire::decode::decode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::call::{Call, ok};
use super::problem::{Refused, json as reply};
use super::run::{key, named, page};
use crate::keeper::{KeepFault, Keeper, Kept, Wanted};
use crate::store::Action;

/// Labels that a sandbox made through this door has.
const PROJECT: &str = "io.pond.project";
const KEY: &str = "io.pond.key";
const REQUEST: &str = "io.pond.request";

/// Sandboxes that one project may have at once, stopped ones among them: each holds memory or a disk of one machine.
const MOST_SANDBOXES: usize = 64;

/// Letters of a digest that are enough to be nobody else's.
const ID_LETTERS: usize = 24;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Filter {
    project: Option<String>,
    state: Option<SandboxState>,
    /// `key=value`, or `key` for any value.
    label: Option<String>,
    cursor: Option<String>,
    limit: Option<u32>,
}

impl Call {
    /// Who keeps sandboxes, if anybody does.
    pub(super) fn keeper(&self) -> Result<&Arc<dyn Keeper>, Refused> {
        let missing = "start it with `pond up` on a machine that runs sandboxes";
        self.api.keeper.as_ref().ok_or_else(|| Refused::new(ProblemCode::KeeperMissing, missing))
    }

    /// The sandbox named in the path, if it is there and the caller may; which of the two is not told.
    pub(super) async fn sandbox(&self) -> Result<(SandboxId, Kept), Refused> {
        let keeper = self.keeper()?;
        let id = self.param("sandbox", SandboxId::parse)?;
        let kept = keeper.show(&id).await?;
        if may(self, &kept) { Ok((id, kept)) } else { Err(Refused::not_found()) }
    }

    /// Writes a command down before it is passed on.
    pub(super) async fn write_down(&self, action: Action, kept: &Kept, detail: Value) -> Result<(), Refused> {
        let (project, who) = (project_of(kept), (&self.caller.actor, action));
        let noted = self.store().note_for(project.as_ref(), who, &kept.view.id, detail, self.now()).await;
        Ok(noted?)
    }
}

/// Whether what somebody keeps is the caller's to see. What belongs to no project is for who has all of them.
fn may(call: &Call, kept: &Kept) -> bool {
    project_of(kept).map_or(call.caller.project().is_none(), |project| call.caller.may(&project))
}

fn project_of(kept: &Kept) -> Option<Project> {
    kept.own(PROJECT).and_then(Name::parse).map(Project::from)
}

impl From<KeepFault> for Refused {
    fn from(fault: KeepFault) -> Self {
        match fault {
            KeepFault::Unknown => Self::not_found(),
            KeepFault::Taken(_) => {
                Self::new(ProblemCode::IdTaken, "ids are never given to another: choose a new one")
            }
            KeepFault::WrongState(words) => Self::new(ProblemCode::Conflict, words),
            KeepFault::Refused(refusals) => Self::of(api::Problem::refused(refusals)),
            KeepFault::Impossible(words) => Self::parameter(words),
            KeepFault::TooLarge(most) => super::call::too_large(most),
            KeepFault::Busy(words) => {
                tracing::warn!(words, "the keeper is busy");
                Self::after(ProblemCode::Unavailable, "the keeper of sandboxes cannot serve this now", 1)
            }
            KeepFault::Failed(_) => Self::internal(&fault),
        }
    }
}

pub(super) async fn create(call: &Call, body: Body) -> Result<Response, Refused> {
    let body: api::NewSandbox = call.json(body).await?;
    let project = whose(call, body.project.as_ref().map(|project| project.as_str())).await?;
    let key =
        key(call)?.map(|key| Digest::of(format!("{}\n{key}", call.caller.actor).as_bytes()).to_string());
    let keeper = call.keeper()?;
    let (document, spec) = judge(call, keeper.shares(), &body.document.bytes())?;
    let id = match spec.id {
        Some(id) => id,
        None => made_up(key.as_deref())?,
    };
    let named = Node::Map(vec![("id".to_owned(), Node::text(id.as_str()))]);
    let document = value(&merge(document, named)).to_string();
    let request = Digest::of(format!("{project}\n{document}").as_bytes()).to_string();
    let own = [
        Some((PROJECT, project.to_string())),
        key.clone().map(|key| (KEY, key)),
        Some((REQUEST, request.clone())),
    ];
    let own = own.into_iter().flatten().map(|(key, value)| (key.to_owned(), value)).collect();
    has_room(keeper.as_ref(), &project, &id).await?;
    let detail = json!({"profile": spec.policy.profile().name()});
    let who = (&call.caller.actor, Action::SandboxCreated);
    call.store().note_for(Some(&project), who, id.as_str(), detail, call.now()).await?;
    let wanted = Wanted { id, document: document.into_bytes(), own };
    match keeper.create(wanted).await {
        Ok(kept) => Ok(accepted(&kept)),
        Err(KeepFault::Taken(kept)) if key.is_some() => replayed(call, &kept, key.as_deref(), &request),
        Err(fault) => Err(fault.into()),
    }
}

/// Whether the project may have one more. One that asks again for what it has asks for no more.
async fn has_room(keeper: &dyn Keeper, project: &Project, id: &SandboxId) -> Result<(), Refused> {
    let mut kept = keeper.list().await?;
    kept.retain(|kept| {
        project_of(kept).as_ref() == Some(project) && kept.view.state != SandboxState::Deleted
    });
    if kept.len() < MOST_SANDBOXES || kept.iter().any(|kept| kept.view.id == id.as_str()) {
        return Ok(());
    }
    let detail = format!("a project has at most {MOST_SANDBOXES} sandboxes; delete one first");
    Err(Refused::new(ProblemCode::Conflict, detail))
}

/// The same request under the same key is the same sandbox; another request is a mistake.
fn replayed(call: &Call, kept: &Kept, key: Option<&str>, request: &str) -> Result<Response, Refused> {
    match (may(call, kept) && kept.own(KEY) == key, kept.own(REQUEST) == Some(request)) {
        (true, true) => Ok(ok(&shown(kept))),
        (true, false) => Err(Refused::new(ProblemCode::KeyReused, "use a new key for a new request")),
        (false, _) => {
            Err(Refused::new(ProblemCode::IdTaken, "ids are never given to another: choose a new one"))
        }
    }
}

/// The document as it was written, and what it means with what the operator demands now and shares with those outside.
fn judge(call: &Call, shares: &[Share], document: &[u8]) -> Result<(Node, Spec), Refused> {
    let refused = |refusals| Refused::of(api::Problem::refused(refusals));
    let node = decode(document).map_err(refused)?;
    let spec = sandboxes::read(&node, &call.plane().settings).map_err(refused)?;
    check_remote(&spec, shares).map_err(refused)?;
    Ok((node, spec))
}

/// Whose a new sandbox is: a project there is, and that the caller may.
async fn whose(call: &Call, project: Option<&str>) -> Result<Project, Refused> {
    let missing = || Refused::new(ProblemCode::Malformed, "project: name the project it is for");
    let project = named(call, project)?.ok_or_else(missing)?;
    let unknown = || Refused::new(ProblemCode::ProjectUnknown, format!("there is no project {project}"));
    call.store().project(&project).await?.ok_or_else(unknown)?;
    Ok(project)
}

/// An id for who gave none: of the request's key, so that asking again asks for the same, or of nothing at all.
fn made_up(key: Option<&str>) -> Result<SandboxId, Refused> {
    let letters = match key {
        Some(key) => key.to_owned(),
        None => {
            let random = pond_seal::bearer::Bearer::generate(pond_seal::bearer::Kind::Api);
            let random = random.map_err(|fault| Refused::internal(&fault))?;
            Digest::of(random.to_text().as_bytes()).to_string()
        }
    };
    let letters: String = letters.chars().filter(char::is_ascii_hexdigit).take(ID_LETTERS).collect();
    SandboxId::parse(&format!("box-{letters}")).ok_or_else(Refused::not_found)
}

pub(super) async fn list(call: &Call) -> Result<Response, Refused> {
    let filter: Filter = call.query()?;
    let project = named(call, filter.project.as_deref())?;
    let bad = || Refused::parameter("cursor: take it from `next`");
    let after = filter.cursor.as_deref().map(|text| SandboxId::parse(text).ok_or_else(bad)).transpose()?;
    let most = usize::try_from(page(filter.limit)?).unwrap_or(usize::MAX);
    let mut kept = call.keeper()?.list().await?;
    kept.retain(|kept| {
        may(call, kept)
            && project.as_ref().is_none_or(|project| project_of(kept).as_ref() == Some(project))
            && filter.state.is_none_or(|state| kept.view.state == state)
            && filter.label.as_deref().is_none_or(|label| has_label(&kept.view.labels, label))
            && after.as_ref().is_none_or(|after| kept.view.id.as_str() > after.as_str())
    });
    kept.sort_by(|one, other| one.view.id.cmp(&other.view.id));
    let more = kept.len() > most;
    kept.truncate(most);
    let next = kept.last().filter(|_| more).map(|kept| kept.view.id.clone());
    Ok(ok(&api::SandboxPage { sandboxes: kept.iter().map(shown).collect(), next }))
}

fn has_label(labels: &BTreeMap<String, String>, wanted: &str) -> bool {
    match wanted.split_once('=') {
        Some((key, value)) => labels.get(key).is_some_and(|known| known == value),
        None => labels.contains_key(wanted),
    }
}

pub(super) async fn show(call: &Call) -> Result<Response, Refused> {
    let (_, kept) = call.sandbox().await?;
    Ok(ok(&shown(&kept)))
}

pub(super) async fn stop(call: &Call) -> Result<Response, Refused> {
    let (id, kept) = call.sandbox().await?;
    call.write_down(Action::SandboxStopped, &kept, json!({})).await?;
    Ok(accepted(&call.keeper()?.stop(&id).await?))
}

pub(super) async fn resume(call: &Call) -> Result<Response, Refused> {
    let (id, kept) = call.sandbox().await?;
    call.write_down(Action::SandboxResumed, &kept, json!({})).await?;
    Ok(accepted(&call.keeper()?.resume(&id).await?))
}

pub(super) async fn delete(call: &Call) -> Result<Response, Refused> {
    let (id, kept) = call.sandbox().await?;
    call.write_down(Action::SandboxDeleted, &kept, json!({})).await?;
    Ok(accepted(&call.keeper()?.delete(&id).await?))
}

/// What a caller sees: the project as the labels say, whatever the keeper thinks.
fn shown(kept: &Kept) -> api::SandboxView {
    let project = project_of(kept).map(|project| project.to_string());
    api::SandboxView { project, ..kept.view.clone() }
}

/// Taken on, and done afterwards.
fn accepted(kept: &Kept) -> Response {
    let mut response = reply(StatusCode::ACCEPTED, "application/json", &shown(kept));
    if let Ok(place) = HeaderValue::try_from(format!("/v1/sandboxes/{}", kept.view.id)) {
        response.headers_mut().insert(LOCATION, place);
    }
    response
}
