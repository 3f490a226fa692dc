//! What a token may do. A scope grants one thing and implies no other.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scope {
    #[serde(rename = "runs:read")]
    RunsRead,
    #[serde(rename = "runs:write")]
    RunsWrite,
    #[serde(rename = "secrets:write")]
    SecretsWrite,
    #[serde(rename = "egress:write")]
    EgressWrite,
    #[serde(rename = "workers:admin")]
    WorkersAdmin,
    #[serde(rename = "tokens:admin")]
    TokensAdmin,
    #[serde(rename = "audit:read")]
    AuditRead,
}

impl Scope {
    pub const ALL: [Self; 7] = [
        Self::RunsRead,
        Self::RunsWrite,
        Self::SecretsWrite,
        Self::EgressWrite,
        Self::WorkersAdmin,
        Self::TokensAdmin,
        Self::AuditRead,
    ];
}

/// The scopes of one token: sorted, none twice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Scope>")]
pub struct Scopes(Vec<Scope>);

impl Scopes {
    #[must_use]
    pub fn all() -> Self {
        Self::from(Scope::ALL.to_vec())
    }

    #[must_use]
    pub fn grant(&self, scope: Scope) -> bool {
        self.0.contains(&scope)
    }

    /// Whether a holder of these may hand out those.
    #[must_use]
    pub fn cover(&self, others: &Self) -> bool {
        others.0.iter().all(|scope| self.grant(*scope))
    }
}

impl From<Vec<Scope>> for Scopes {
    fn from(mut scopes: Vec<Scope>) -> Self {
        scopes.sort_unstable();
        scopes.dedup();
        Self(scopes)
    }
}
