//! One-time tokens that make a machine a worker. The token says what it will be; the machine brings its keys.

use pond_policy::capability::Capability;
use pond_policy::name::Project;
use pond_policy::route::granted;
use pond_policy::tags::Tag;
use pond_policy::tier::Tier;
use pond_seal::Digest;
use serde_json::json;

use super::Store;
use super::engine::{Fault, Tx, args};
use super::id::{Moment, WorkerId};
use super::journal::{self, Action, Actor, Change};
use super::worker::{WorkerState, about, words};

/// What a token grants.
#[derive(Clone, Copy, Debug)]
pub struct Grant<'a> {
    pub tier: Tier,
    pub tenant: Option<&'a Project>,
    /// Beside those of the tier.
    pub tags: &'a [Tag],
    pub expires_at: Moment,
}

/// What a machine brings, once it has proved that it holds the keys.
#[derive(Clone, Copy, Debug)]
pub struct NewWorker<'a> {
    pub name: &'a str,
    pub sign_key: &'a str,
    pub seal_key: &'a str,
    pub capabilities: &'a [Capability],
}

#[derive(Debug, thiserror::Error)]
pub enum EnrollFault {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error(
        "no worker can be made from this grant: byo needs a tenant, any is no pool, and reserved tags come from the tier"
    )]
    Grant,
    #[error("the token is unknown, used or expired")]
    Token,
    #[error("a worker with this key is enrolled already")]
    KeyTaken,
}

impl Store {
    /// Remembers a token, of which the store knows only the digest.
    pub async fn issue_enrollment(
        &self,
        token: &Digest,
        grant: Grant<'_>,
        actor: &Actor,
        now: Moment,
    ) -> Result<(), EnrollFault> {
        let tags = granted(grant.tier, grant.tenant, grant.tags).ok_or(EnrollFault::Grant)?;
        let tags = words(&tags);
        let mut tx = self.engine.write().await?;
        let sql = "INSERT INTO enrollment (token, tags, created_at, expires_at) VALUES ($1, $2, $3, $4)";
        tx.run(sql, args![token, &tags, now, grant.expires_at]).await?;
        let change = Change {
            actor,
            action: Action::EnrollmentIssued,
            project: grant.tenant.map(Project::as_str),
            run: None,
            stage: None,
            subject: "enrollment",
            detail: json!({"tags": tags, "expires_at": grant.expires_at.0}),
        };
        journal::write(&mut tx, now, &change);
        Ok(tx.commit().await?)
    }

    /// Remembers what the holder of an unused token was asked; what it was asked before is forgotten.
    pub async fn challenge(&self, token: &Digest, challenge: &str, now: Moment) -> Result<(), EnrollFault> {
        let mut tx = self.engine.write().await?;
        let sql =
            "UPDATE enrollment SET challenge = $2 WHERE token = $1 AND used_at IS NULL AND expires_at > $3";
        if tx.run(sql, args![token, challenge, now]).await? == 0 {
            return Err(EnrollFault::Token);
        }
        Ok(tx.commit().await?)
    }

    pub async fn challenged(&self, token: &Digest) -> Result<Option<String>, Fault> {
        let mut tx = self.engine.read().await?;
        let row = tx.row("SELECT challenge FROM enrollment WHERE token = $1", args![token]).await?;
        row.map_or(Ok(None), |row| row.maybe_text("challenge"))
    }

    /// Uses a token up. For the same keys it can be said again: the answer may have got lost.
    pub async fn enroll(
        &self,
        token: &Digest,
        worker: NewWorker<'_>,
        now: Moment,
    ) -> Result<WorkerId, EnrollFault> {
        let mut tx = self.engine.write().await?;
        let row = tx
            .row(
                "UPDATE enrollment SET used_at = $2 WHERE token = $1 AND used_at IS NULL AND expires_at > $2 RETURNING tags",
                args![token, now],
            )
            .await?;
        let Some(row) = row else { return enrolled_before(tx, token, worker).await };
        let (id, tags, capabilities) = (WorkerId::new(now)?, row.text("tags")?, words(worker.capabilities));
        let state = WorkerState::Active.name();
        let made = tx
            .run(
                "INSERT INTO worker (id, name, sign_key, seal_key, tags, capabilities, state, reason, enrolled_at, seen_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, '', $8, $8) ON CONFLICT DO NOTHING",
                args![&id, worker.name, worker.sign_key, worker.seal_key, &tags, &capabilities, state, now],
            )
            .await?;
        if made == 0 {
            return Err(EnrollFault::KeyTaken);
        }
        tx.run("UPDATE enrollment SET worker_id = $2 WHERE token = $1", args![token, &id]).await?;
        let actor = Actor::Worker(id.clone());
        let detail = json!({"name": worker.name, "tags": tags, "sign_key": worker.sign_key});
        journal::write(&mut tx, now, &about(&id, &actor, Action::WorkerEnrolled, detail));
        tx.commit().await?;
        Ok(id)
    }
}

async fn enrolled_before(mut tx: Tx, token: &Digest, worker: NewWorker<'_>) -> Result<WorkerId, EnrollFault> {
    let row = tx
        .row(
            "SELECT worker.id AS id FROM enrollment JOIN worker ON worker.id = enrollment.worker_id
             WHERE token = $1 AND sign_key = $2 AND seal_key = $3",
            args![token, worker.sign_key, worker.seal_key],
        )
        .await?
        .ok_or(EnrollFault::Token)?;
    tx.commit().await?;
    Ok(row.read("id", WorkerId::parse)?)
}
