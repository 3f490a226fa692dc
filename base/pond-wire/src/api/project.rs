//! Projects, what they may reach, and their credentials: named and dated in replies, never shown.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Hidden, Millis};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Projects {
    pub projects: Vec<ProjectView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectView {
    pub name: String,
    pub created_at: Millis,
}

/// Hosts the operator allows the project, beside those of each stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EgressRules {
    pub project: String,
    pub rules: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    pub credentials: Vec<CredentialView>,
}

/// What may be known of a credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CredentialView {
    pub name: String,
    /// None: everybody's, unless a project has its own of that name.
    pub project: Option<String>,
    /// The name of the vault key it is under.
    pub kid: String,
    pub changed_at: Millis,
}

/// `PUT /v1/credentials/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetCredential {
    #[schemars(length(min = 1, max = 65536))]
    pub value: Hidden,
}

/// `POST /v1/credentials/rotate`: the vault has a new key, and every value is under it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rotated {
    /// The name of the new key.
    pub kid: String,
    pub rewrapped: u64,
    /// Values per key, afterwards.
    pub records: BTreeMap<String, u64>,
}
