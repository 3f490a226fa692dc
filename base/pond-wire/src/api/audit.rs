//! The audit log, oldest first.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Millis;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditPage {
    pub entries: Vec<AuditEntry>,
    /// The `cursor` of what comes after; none when there is nothing more yet.
    pub next: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditEntry {
    /// A `cursor` for what comes after this entry.
    pub place: String,
    pub at: Millis,
    /// A token, a worker, or `system`.
    pub actor: String,
    /// `run.submitted`, `credential.released`, …
    pub action: String,
    pub project: Option<String>,
    /// The id or name of what changed.
    pub subject: String,
    pub detail: Value,
}
