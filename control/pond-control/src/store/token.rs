//! Bearer tokens of the user API: 256 random bits of which the store keeps a digest, what they allow, and for whom.

use pond_policy::name::{Name, Project};
use pond_seal::Digest;
use serde_json::json;
use subtle::ConstantTimeEq;

use super::Store;
use super::engine::{Fault, Row, args};
use super::id::{Moment, TokenId};
use super::journal::{self, Action, Actor, Change};

macro_rules! scopes {
    ($( $variant:ident => $name:literal ),+ $(,)?) => {
        /// What a token allows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Scope { $( $variant ),+ }

        impl Scope {
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name ),+ }
            }

            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $( $name => Some(Self::$variant), )+ _ => None }
            }
        }
    };
}

scopes! {
    RunsRead => "runs:read",
    RunsWrite => "runs:write",
    SecretsWrite => "secrets:write",
    WorkersAdmin => "workers:admin",
    AuditRead => "audit:read",
    Admin => "admin",
}

#[derive(Clone, Copy, Debug)]
pub struct NewToken<'a> {
    /// Of the secret part.
    pub digest: &'a Digest,
    pub scopes: &'a [Scope],
    /// `None`: every project.
    pub project: Option<&'a Project>,
    pub expires_at: Option<Moment>,
}

/// A token that is good now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiToken {
    pub id: TokenId,
    pub scopes: Vec<Scope>,
    pub project: Option<Project>,
}

#[derive(Debug, thiserror::Error)]
pub enum TokenFault {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error("the token is unknown, revoked or expired")]
    Refused,
}

impl Store {
    pub async fn issue_token(
        &self,
        token: NewToken<'_>,
        actor: &Actor,
        now: Moment,
    ) -> Result<TokenId, Fault> {
        let id = TokenId::new(now)?;
        let scopes = token.scopes.iter().map(|scope| scope.name()).collect::<Vec<_>>().join(" ");
        let project = token.project.map(Project::as_str);
        let expires_at = token.expires_at.map(|moment| moment.0);
        let mut tx = self.engine.write().await?;
        tx.run(
            "INSERT INTO api_token (id, digest, scopes, project, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6)",
            args![&id, token.digest, &scopes, project, now, expires_at],
        )
        .await?;
        let detail = json!({"scopes": scopes});
        let action = Action::TokenIssued;
        let change = Change { actor, action, project, run: None, stage: None, subject: id.as_str(), detail };
        journal::write(&mut tx, now, &change).await?;
        tx.commit().await?;
        Ok(id)
    }

    /// What a presented secret allows. Which of the reasons a bad one has is nobody's business.
    pub async fn authenticate(
        &self,
        id: &TokenId,
        secret: &[u8],
        now: Moment,
    ) -> Result<ApiToken, TokenFault> {
        let mut tx = self.engine.read().await?;
        let sql = "SELECT id, digest, scopes, project, expires_at, revoked_at FROM api_token WHERE id = $1";
        let row = tx.row(sql, args![id]).await?.ok_or(TokenFault::Refused)?;
        let same = row.digest("digest")?.as_bytes().ct_eq(Digest::of(secret).as_bytes());
        let expired = row.maybe_int("expires_at")?.is_some_and(|at| at <= now.0);
        if !bool::from(same) || expired || row.maybe_int("revoked_at")?.is_some() {
            return Err(TokenFault::Refused);
        }
        Ok(ApiToken::read(&row)?)
    }

    /// Whether it was good until now.
    pub async fn revoke_token(&self, id: &TokenId, actor: &Actor, now: Moment) -> Result<bool, Fault> {
        let mut tx = self.engine.write().await?;
        let sql = "UPDATE api_token SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL";
        let revoked = tx.run(sql, args![id, now]).await? == 1;
        if revoked {
            let (action, detail) = (Action::TokenRevoked, json!({}));
            let change =
                Change { actor, action, project: None, run: None, stage: None, subject: id.as_str(), detail };
            journal::write(&mut tx, now, &change).await?;
            tx.commit().await?;
        }
        Ok(revoked)
    }
}

impl ApiToken {
    fn read(row: &Row) -> Result<Self, Fault> {
        Ok(Self {
            id: row.read("id", TokenId::parse)?,
            scopes: row
                .read("scopes", |text| text.split_ascii_whitespace().map(Scope::from_name).collect())?,
            project: row.maybe_read("project", |text| Name::parse(text).map(Project::from))?,
        })
    }
}
