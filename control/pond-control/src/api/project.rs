//! Projects, and the hosts they may reach.

use axum::response::Response;
use pond_policy::egress::HostRule;
use pond_wire::api::{self, ProblemCode};

use super::call::{Call, created, gone, millis, ok};
use super::problem::Refused;
use crate::store::{ProjectView, Removed};

pub(super) async fn list(call: &Call) -> Result<Response, Refused> {
    let projects = call.store().projects().await?;
    let projects = projects.iter().filter(|project| call.caller.may(&project.name)).map(view).collect();
    Ok(ok(&api::Projects { projects }))
}

pub(super) async fn make(call: &Call) -> Result<Response, Refused> {
    let project = call.project()?;
    let new = call.store().create_project(&project, &call.caller.actor, call.now()).await?;
    let stored = call.store().project(&project).await?.ok_or_else(Refused::not_found)?;
    Ok(if new { created(&view(&stored)) } else { ok(&view(&stored)) })
}

pub(super) async fn remove(call: &Call) -> Result<Response, Refused> {
    let project = call.project()?;
    match call.store().remove_project(&project, &call.caller.actor, call.now()).await? {
        Removed::Gone => Ok(gone()),
        Removed::Unknown => Err(Refused::not_found()),
        Removed::HasRuns => {
            Err(Refused::new(ProblemCode::Conflict, "the project has runs; it stays with them"))
        }
    }
}

pub(super) async fn egress(call: &Call) -> Result<Response, Refused> {
    let project = call.project()?;
    call.store().project(&project).await?.ok_or_else(Refused::not_found)?;
    let rules = call.store().egress_rules(&project).await?;
    Ok(ok(&api::EgressRules { project: project.to_string(), rules }))
}

pub(super) async fn allow(call: &Call) -> Result<Response, Refused> {
    let (project, rule) = (call.project()?, rule(call)?);
    call.store().allow_egress(&project, &rule, &call.caller.actor, call.now()).await?;
    let rules = call.store().egress_rules(&project).await?;
    Ok(ok(&api::EgressRules { project: project.to_string(), rules }))
}

pub(super) async fn disallow(call: &Call) -> Result<Response, Refused> {
    let (project, rule) = (call.project()?, rule(call)?);
    let removed = call.store().remove_egress(&project, &rule, &call.caller.actor, call.now()).await?;
    if removed { Ok(gone()) } else { Err(Refused::not_found()) }
}

/// As strict as a rule in a document: one spelling, and no host that nobody may be given.
fn rule(call: &Call) -> Result<String, Refused> {
    let text = call.param("host", |text| Some(text.to_owned()))?;
    let rule = HostRule::parse_config(&text);
    rule.map(|rule| rule.to_string())
        .map_err(|fault| Refused::new(ProblemCode::HostRefused, fault.to_string()))
}

fn view(project: &ProjectView) -> api::ProjectView {
    api::ProjectView { name: project.name.to_string(), created_at: millis(project.created_at) }
}
