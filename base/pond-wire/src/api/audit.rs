//! The audit log: its entries, oldest first, and what shows that nobody changed them.

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

/// The size and root of the log, signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogCheckpoint {
    /// A C2SP signed note. Keep it elsewhere: a later log must begin with this one.
    pub checkpoint: String,
    /// The control plane's Ed25519 key, in hexadecimal. Whoever has it from elsewhere believes that one.
    pub key: String,
}

/// One entry of the log, and what shows that it is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogProof {
    /// A C2SP tlog-proof: the entry, its number, the hashes beside its way to the root, a checkpoint.
    pub proof: String,
    pub key: String,
}

/// The hashes that show that the log of `to` entries begins with that of `from` (RFC 6962, section 2.1.2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogConsistency {
    pub from: u64,
    pub to: u64,
    /// In hexadecimal.
    pub hashes: Vec<String>,
}
