//! Tokens: nobody hands out more than he has, and nobody sees or revokes those of others.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use pond_policy::name::{Name, Project};
use pond_policy::scope::{self, Scope};
use pond_seal::bearer::{Bearer, Kind};
use pond_wire::api::{self, ProblemCode};

use super::call::{Call, created, gone, millis, ok};
use super::problem::Refused;
use crate::store::{NewToken, TokenId, TokenView};

pub(super) async fn list(call: &Call) -> Result<Response, Refused> {
    let tokens = call.store().tokens(call.caller.project()).await?;
    Ok(ok(&api::Tokens { tokens: tokens.iter().map(view).collect() }))
}

pub(super) async fn issue(call: &Call, body: Body) -> Result<Response, Refused> {
    let body: api::NewToken = call.json(body).await?;
    let refuse = |detail: &str| Err(Refused::new(ProblemCode::GrantRefused, detail));
    let scopes: Vec<Scope> = body.scopes.iter().map(|scope| Scope::from(*scope)).collect();
    if !scope::cover(call.caller.scopes(), &scopes) {
        return refuse("a token cannot hand out scopes that it has not");
    }
    let project = body.project.as_ref().and_then(|name| Name::parse(name.as_str())).map(Project::from);
    if call.caller.project().is_some_and(|own| project.as_ref() != Some(own)) {
        return refuse("a token for one project hands out tokens for that project only");
    }
    if let Some(project) = &project {
        let unknown = || Refused::project_unknown("project", project);
        call.store().project(project).await?.ok_or_else(unknown)?;
    }
    let kind = match body.kind {
        api::TokenKind::Api if scopes.is_empty() => {
            return refuse("a token without a scope is good for nothing");
        }
        api::TokenKind::Api => Kind::Api,
        api::TokenKind::Relay if !scopes.is_empty() || project.is_some() => {
            return refuse("an orchestrator's token has no scopes and is for every project");
        }
        api::TokenKind::Relay => Kind::Relay,
    };
    if body.ttl_seconds == Some(0) {
        return refuse("a token that expires at once is good for nothing");
    }
    let bearer = Bearer::generate(kind).map_err(|fault| Refused::internal(&fault))?;
    let now = call.now();
    let expires_at = body.ttl_seconds.map(|seconds| now.plus(Duration::from_secs(u64::from(seconds))));
    let new = NewToken { bearer: &bearer, scopes: &scopes, project: project.as_ref(), expires_at };
    let id = call.store().issue_token(new, &call.caller.actor, now).await?;
    let token = api::Hidden::new(bearer.to_text().as_str().to_owned());
    Ok(created(&api::TokenReply { id: id.to_string(), token, expires_at: expires_at.map(millis) }))
}

pub(super) async fn revoke(call: &Call) -> Result<Response, Refused> {
    let id = call.param("token", TokenId::parse)?;
    let found = call.store().token(&id).await?.ok_or_else(Refused::not_found)?;
    if call.caller.project().is_some_and(|own| found.token.project.as_ref() != Some(own)) {
        return Err(Refused::not_found());
    }
    call.store().revoke_token(&id, &call.caller.actor, call.now()).await?;
    Ok(gone())
}

fn view(token: &TokenView) -> api::TokenView {
    api::TokenView {
        id: token.token.id.to_string(),
        kind: match token.kind {
            // Tokens for bundles live in another table.
            Kind::Api | Kind::Bundle => api::TokenKind::Api,
            Kind::Relay => api::TokenKind::Relay,
        },
        scopes: token.token.scopes.iter().map(|scope| api::Scope::from(*scope)).collect(),
        project: token.token.project.as_ref().map(Project::to_string),
        created_at: millis(token.created_at),
        expires_at: token.expires_at.map(millis),
        revoked_at: token.revoked_at.map(millis),
    }
}
