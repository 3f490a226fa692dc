//! The audit log in pages, oldest first.

use axum::response::Response;
use pond_wire::api;
use serde::Deserialize;
use serde_json::Value;

use super::call::{Call, millis, ok};
use super::problem::Refused;
use super::run::{named, page};
use crate::store::{AuditEntry, Place};

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
