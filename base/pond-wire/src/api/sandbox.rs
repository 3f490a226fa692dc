//! Sandboxes that last: asked for, listed, watched, used, stopped, deleted; the programs run in them and the files moved.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Document, Millis};
use crate::orch::Id;

/// The most that one call moves of a file.
pub const MOST_FILE_BYTES: usize = 16 << 20;

/// `POST /v1/sandboxes`: accepted at once, made afterwards; `state` and the events say how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSandbox {
    /// A sandbox document (docs/schema/sandbox.schema.json).
    pub document: Document,
    /// Whose it is; may be left out by a token of one project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Id>,
}

/// Where a sandbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxState {
    Pending,
    Ready,
    Stopped,
    Failed,
    Deleting,
    Deleted,
}

impl SandboxState {
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Ready, Self::Stopped, Self::Failed, Self::Deleting, Self::Deleted];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Ready => "ready",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Deleting => "deleting",
            Self::Deleted => "deleted",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether it comes to another state by itself.
    pub const fn is_moving(self) -> bool {
        match self {
            Self::Pending | Self::Deleting => true,
            Self::Ready | Self::Stopped | Self::Failed | Self::Deleted => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SandboxView {
    pub id: String,
    /// None for one that was made on its machine's command line.
    pub project: Option<String>,
    pub state: SandboxState,
    /// Why it is so; empty when there is nothing to say.
    pub reason: String,
    pub profile: String,
    pub backend: String,
    /// Its owner's; pond's own are not shown.
    pub labels: BTreeMap<String, String>,
    /// Ports of the host's loopback, and where they lead.
    pub ports: Vec<PortView>,
    pub companions: Vec<CompanionView>,
    pub created_at: Millis,
    /// When it came into this state.
    pub changed_at: Millis,
    /// Time without use after which it is stopped; none: never.
    pub idle_ttl_seconds: Option<u64>,
    /// Time after its stop at which it is deleted; none: never.
    pub cleanup_ttl_seconds: Option<u64>,
    /// The number of its latest event.
    pub sequence: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortView {
    pub host: u16,
    pub sandbox: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompanionView {
    pub alias: String,
    /// `starting`, `healthy`, `unhealthy`, `running`, `exited`, …
    pub state: String,
    pub reason: String,
}

/// By id, ascending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SandboxPage {
    pub sandboxes: Vec<SandboxView>,
    /// The `cursor` of the next page; none on the last.
    pub next: Option<String>,
}

/// One event of a sandbox. Numbers begin with 1 and have no gap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SandboxEvent {
    pub sequence: u64,
    pub at: Millis,
    /// `started`, `exec_ended`, `deleted`, …
    pub event: String,
    /// Where the sandbox stood after it.
    pub state: SandboxState,
    pub detail: Value,
}

/// `POST /v1/sandboxes/{sandbox}/execs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewExec {
    /// The program and its arguments; no shell reads them.
    #[schemars(length(min = 1, max = 1024))]
    pub command: Vec<String>,
    /// Variables besides those of the sandbox.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Where it runs; the sandbox's own place without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// When it is killed; never without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub timeout_seconds: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecState {
    Running,
    Ended,
}

/// A program run in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecView {
    /// Its number in its sandbox.
    pub id: u64,
    /// Its first words; the rest may carry secrets.
    pub command: String,
    pub state: ExecState,
    /// Of one that ended by itself.
    pub exit_code: Option<i32>,
    /// Why it ended otherwise: `signal`, `timed_out`, `cancelled`, `memory_limit`, `not_started`, `sandbox_stopped`.
    pub ended_by: Option<String>,
    pub started_at: Millis,
    pub ended_at: Option<Millis>,
    /// What is kept of its output.
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Whether it printed more than is kept.
    pub truncated: bool,
}

/// One of the two streams of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    #[default]
    Stdout,
    Stderr,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_the_names_they_travel_under() {
        for state in SandboxState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
            assert_eq!(SandboxState::from_name(state.name()), Some(state));
        }
        assert_eq!(SandboxState::from_name("READY"), None);
    }

    #[test]
    fn unknown_fields_are_refused() {
        let network =
            serde_json::from_str::<NewSandbox>(r#"{"document": {}, "network": "host"}"#).unwrap_err();
        assert!(network.to_string().starts_with("unknown field `network`"), "{network}");
        let project =
            serde_json::from_str::<NewSandbox>(r#"{"document": {}, "project": "a b"}"#).unwrap_err();
        assert!(project.is_data(), "{project}");
        let exec = serde_json::from_str::<NewExec>(r#"{"command": ["a"], "privileged": true}"#).unwrap_err();
        assert!(exec.to_string().starts_with("unknown field `privileged`"), "{exec}");
    }
}
