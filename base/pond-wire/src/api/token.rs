//! Bearer tokens of this API, and of orchestrators.

use pond_policy::scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Hidden, Millis};
use crate::orch::Id;

macro_rules! scopes {
    ($( $variant:ident => $name:literal ),+ $(,)?) => {
        /// What a token allows. None implies another.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub enum Scope { $( #[serde(rename = $name)] $variant ),+ }

        impl From<scope::Scope> for Scope {
            fn from(scope: scope::Scope) -> Self {
                match scope { $( scope::Scope::$variant => Self::$variant ),+ }
            }
        }

        impl From<Scope> for scope::Scope {
            fn from(scope: Scope) -> Self {
                match scope { $( Scope::$variant => Self::$variant ),+ }
            }
        }
    };
}

scopes! {
    RunsRead => "runs:read",
    RunsWrite => "runs:write",
    SandboxesRead => "sandboxes:read",
    SandboxesWrite => "sandboxes:write",
    SecretsWrite => "secrets:write",
    EgressWrite => "egress:write",
    WorkersAdmin => "workers:admin",
    TokensAdmin => "tokens:admin",
    AuditRead => "audit:read",
}

/// Whom a token is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenKind {
    /// This API, within its scopes.
    #[default]
    Api,
    /// An orchestrator: it hears which jobs wait, and has no scope.
    Relay,
}

/// `POST /v1/tokens`. Nobody hands out more than the token used for it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    #[serde(default)]
    pub kind: TokenKind,
    #[schemars(length(max = 16))]
    pub scopes: Vec<Scope>,
    /// The one project it is for; none: every project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Id>,
    /// None: until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub ttl_seconds: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenReply {
    pub id: String,
    /// Shown this once.
    pub token: Hidden,
    pub expires_at: Option<Millis>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    pub tokens: Vec<TokenView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenView {
    pub id: String,
    pub kind: TokenKind,
    pub scopes: Vec<Scope>,
    pub project: Option<String>,
    pub created_at: Millis,
    pub expires_at: Option<Millis>,
    pub revoked_at: Option<Millis>,
}
