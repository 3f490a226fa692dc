//! Bearer tokens: 256 random bits of which the store keeps a digest, what they allow, and for whom.
//!
//! A token of one kind is never taken for another: an orchestrator's opens nothing of the user's API, and the other way round.

use pond_policy::name::{Name, Project};
use pond_policy::scope::Scope;
use pond_seal::bearer::{Bearer, Kind, StoredBearer};
use serde_json::json;

use super::Store;
use super::engine::{Fault, Row, args};
use super::id::{Moment, TokenId};
use super::journal::{self, Action, Actor, Change};

#[derive(Clone, Copy, Debug)]
pub struct NewToken<'a> {
    pub bearer: &'a Bearer,
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

/// What may be known of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenView {
    pub token: ApiToken,
    pub kind: Kind,
    pub created_at: Moment,
    pub expires_at: Option<Moment>,
    pub revoked_at: Option<Moment>,
}

#[derive(Debug, thiserror::Error)]
pub enum TokenFault {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error("the token is unknown, revoked or expired")]
    Refused,
}

const ONE: &str = "SELECT id, kind, digest, scopes, project, created_at, expires_at, revoked_at FROM api_token WHERE id = $1";
const ALL: &str =
    "SELECT id, kind, digest, scopes, project, created_at, expires_at, revoked_at FROM api_token
                   ORDER BY created_at, id";
const OF_PROJECT: &str =
    "SELECT id, kind, digest, scopes, project, created_at, expires_at, revoked_at FROM api_token
     WHERE project = $1 ORDER BY created_at, id";

impl Store {
    pub async fn issue_token(
        &self,
        token: NewToken<'_>,
        actor: &Actor,
        now: Moment,
    ) -> Result<TokenId, Fault> {
        let stored = token.bearer.stored();
        let id = TokenId::of(token.bearer).ok_or(Fault::Unreadable { column: "id" })?;
        let scopes = token.scopes.iter().map(|scope| scope.name()).collect::<Vec<_>>().join(" ");
        let project = token.project.map(Project::as_str);
        let expires_at = token.expires_at.map(|moment| moment.0);
        let kind = stored.kind.name();
        let mut tx = self.engine.write().await?;
        tx.run(
            "INSERT INTO api_token (id, kind, digest, scopes, project, created_at, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
            args![&id, kind, &stored.sha256, &scopes, project, now, expires_at],
        )
        .await?;
        let detail = json!({"kind": kind, "scopes": scopes});
        let action = Action::TokenIssued;
        let change = Change { actor, action, project, run: None, stage: None, subject: id.as_str(), detail };
        journal::write(&mut tx, now, &change);
        tx.commit().await?;
        Ok(id)
    }

    /// What a presented token allows. Which of the reasons a bad one has is nobody's business.
    pub async fn authenticate(&self, shown: &Bearer, now: Moment) -> Result<ApiToken, TokenFault> {
        let id = TokenId::of(shown).ok_or(TokenFault::Refused)?;
        let row = self.engine.row(ONE, args![&id]).await?.ok_or(TokenFault::Refused)?;
        let kind = row.read("kind", Kind::from_name)?;
        let stored = StoredBearer { kind, id: shown.id().to_owned(), sha256: row.digest("digest")? };
        let expired = row.maybe_int("expires_at")?.is_some_and(|at| at <= now.0);
        if !stored.admits(shown) || expired || row.maybe_int("revoked_at")?.is_some() {
            return Err(TokenFault::Refused);
        }
        Ok(ApiToken::read(&row)?)
    }

    /// Every token there was, oldest first; of one project or of all.
    pub async fn tokens(&self, project: Option<&Project>) -> Result<Vec<TokenView>, Fault> {
        let rows = match project {
            None => self.engine.rows(ALL, &[]).await?,
            Some(project) => self.engine.rows(OF_PROJECT, args![project.as_str()]).await?,
        };
        rows.iter().map(TokenView::read).collect()
    }

    pub async fn token(&self, id: &TokenId) -> Result<Option<TokenView>, Fault> {
        self.engine.row(ONE, args![id]).await?.as_ref().map(TokenView::read).transpose()
    }

    /// As if it had never been issued: for one that nobody has seen.
    pub async fn forget_token(&self, unseen: &Bearer) -> Result<(), Fault> {
        let id = TokenId::of(unseen).ok_or(Fault::Unreadable { column: "id" })?;
        let mut tx = self.engine.write().await?;
        tx.run("DELETE FROM api_token WHERE id = $1", args![&id]).await?;
        tx.commit().await
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
            journal::write(&mut tx, now, &change);
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

impl TokenView {
    fn read(row: &Row) -> Result<Self, Fault> {
        Ok(Self {
            token: ApiToken::read(row)?,
            kind: row.read("kind", Kind::from_name)?,
            created_at: Moment(row.int("created_at")?),
            expires_at: row.maybe_int("expires_at")?.map(Moment),
            revoked_at: row.maybe_int("revoked_at")?.map(Moment),
        })
    }
}
