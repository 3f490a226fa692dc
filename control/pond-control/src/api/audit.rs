//! The audit log in pages, oldest first; and as the Merkle tree that it is, for those who check it.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use pond_wire::api::{self, LINES_TYPE, ProblemCode};
use serde::Deserialize;
use serde_json::Value;

use super::call::{Call, millis, ok};
use super::problem::Refused;
use super::run::{Which, named, page, stage};
use crate::store::{AuditEntry, Outcome, Place};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Filter {
    project: Option<String>,
    cursor: Option<String>,
    limit: Option<u32>,
}

pub(super) async fn list(call: &Call) -> Result<Response, Refused> {
    let filter: Filter = call.query()?;
    let project = named(call, filter.project.as_deref())?;
    let cursor =
        |text: &str| Place::parse(text).ok_or_else(|| Refused::parameter("cursor: take it from `next`"));
    let place = filter.cursor.as_deref().map_or(Ok(Place::default()), cursor)?;
    let limit = page(filter.limit)?;
    let entries = call.store().audit(project.as_ref(), place, limit).await?;
    let full = u32::try_from(entries.len()).is_ok_and(|rows| rows == limit);
    let next = entries.last().filter(|_| full).map(|last| last.place.to_string());
    Ok(ok(&api::AuditPage { entries: entries.iter().map(view).collect(), next }))
}

fn view(entry: &AuditEntry) -> api::AuditEntry {
    api::AuditEntry {
        place: entry.place.to_string(),
        at: millis(entry.at),
        actor: entry.actor.clone(),
        action: entry.action.name().to_owned(),
        project: entry.project.clone(),
        subject: entry.subject.clone(),
        detail: serde_json::from_str(&entry.detail).unwrap_or(Value::Null),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Span {
    from: u64,
    to: u64,
}

pub(super) async fn checkpoint(call: &Call) -> Result<Response, Refused> {
    let plane = call.plane();
    plane.store.grow_tree(&plane.key).await?;
    let checkpoint = plane.store.checkpoint().await?.ok_or_else(not_yet)?;
    Ok(ok(&api::LogCheckpoint { checkpoint, key: plane.key.public().to_hex() }))
}

pub(super) async fn entries(call: &Call) -> Result<Response, Refused> {
    let tile = call.param("tile", |text| text.parse::<u64>().ok().filter(|tile| *tile < 1 << 48))?;
    let lines = call.store().tree_entries(tile).await?;
    if lines.is_empty() {
        return Err(Refused::not_found());
    }
    let text: String = lines.into_iter().map(|line| line + "\n").collect();
    Ok((StatusCode::OK, [(CONTENT_TYPE, LINES_TYPE)], text).into_response())
}

pub(super) async fn consistency(call: &Call) -> Result<Response, Refused> {
    let Span { from, to } = call.query()?;
    let hashes = call.store().tree_consistency(from, to).await?;
    let hashes = hashes.iter().map(ToString::to_string).collect();
    Ok(ok(&api::LogConsistency { from, to, hashes }))
}

/// Of the last accepted result of a stage, or of the one that is asked for.
pub(super) async fn proof(call: &Call) -> Result<Response, Refused> {
    let run = call.run().await?;
    let which: Which = call.query()?;
    let stage = stage(call, &run).await?;
    let mut results = call.store().results(&stage.id).await?;
    results.retain(|result| which.is_of(result.attempt) && result.outcome != Outcome::Rejected);
    let result = results.pop().ok_or_else(Refused::not_found)?;
    let plane = call.plane();
    let evidence = async || plane.store.evidence(&stage.id, &result.job, &result.digest).await;
    let mut found = evidence().await?;
    if found.is_none() {
        plane.store.grow_tree(&plane.key).await?;
        found = evidence().await?;
    }
    let proof = found.ok_or_else(not_yet)?.to_text();
    Ok(ok(&api::LogProof { proof, key: plane.key.public().to_hex() }))
}

/// Somebody is still writing before it.
fn not_yet() -> Refused {
    Refused::after(ProblemCode::Unavailable, "it is not in the log's tree yet", 1)
}
