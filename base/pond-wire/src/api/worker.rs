//! Workers as an operator sees them, and the tokens that make new ones.

use pond_policy::tier;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Hidden, Millis};
use crate::orch::Id;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workers {
    pub workers: Vec<WorkerView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerView {
    pub id: String,
    pub name: String,
    pub state: WorkerState,
    /// Why, when it is not active.
    pub reason: String,
    /// Granted at enrollment.
    pub tags: Vec<String>,
    /// Confirmed by probes on its host.
    pub capabilities: Vec<String>,
    /// The key its results are signed with.
    pub signing_key: String,
    /// Keys they were signed with before it changed them, oldest first.
    pub former_keys: Vec<String>,
    pub enrolled_at: Millis,
    pub seen_at: Millis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    Active,
    /// Ends what it has and takes no more.
    Draining,
    /// Lost too many jobs; waits for an operator.
    Quarantined,
    Revoked,
}

/// `POST /v1/workers/tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewJoinToken {
    pub tier: Tier,
    /// The one project a `byo` worker serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Id>,
    /// How long the token can be used.
    #[schemars(range(min = 1, max = 604800))]
    pub ttl_seconds: u32,
}

/// Which pool the worker joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    Trusted,
    Byo,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinTokenReply {
    /// Shown this once; it makes one worker.
    pub token: Hidden,
    pub expires_at: Millis,
}

impl From<Tier> for tier::Tier {
    fn from(tier: Tier) -> Self {
        match tier {
            Tier::Trusted => Self::Trusted,
            Tier::Byo => Self::Byo,
        }
    }
}
