//! Encrypted source bundles: where the ciphertext lies, the key that opens it (at rest under the vault), and the one-time
//! tokens by which a lease holder fetches it. A stolen token gives ciphertext, and only to the worker it was made for.

use pond_policy::name::Project;
use pond_seal::Digest;
use pond_seal::vault::{Place, VaultFault};
use serde_json::json;
use zeroize::Zeroizing;

use super::Store;
use super::engine::{Fault, args};
use super::id::{BundleId, Moment, RunId};
use super::journal::{self, Action, Actor, Change};
use super::lease::Lease;

/// A bundle whose ciphertext is stored already.
#[derive(Clone, Copy, Debug)]
pub struct NewBundle<'a> {
    pub project: &'a Project,
    /// Where the ciphertext lies, as its keeper says.
    pub place: &'a str,
    /// Of the ciphertext.
    pub digest: Digest,
    /// Of the tree inside, as a job will see it.
    pub input: Digest,
    /// Of the ciphertext.
    pub size: u64,
    pub key: &'a [u8],
}

/// What is known of the tree a run works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceView {
    pub bundle: BundleId,
    pub input: Digest,
    pub size: u64,
}

/// What a token was good for.
#[derive(Debug)]
pub struct Redeemed {
    pub bundle: BundleId,
    pub place: String,
    pub digest: Digest,
    pub size: u64,
    pub key: Zeroizing<Vec<u8>>,
    /// How often it has been sent, this time included. More than once means that an answer got lost, or worse.
    pub sent: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum BundleFault {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error("the bundle's key, at rest")]
    Vault(#[from] VaultFault),
    #[error("the token is good for nothing: unknown, expired, of another worker, or of a lease that is over")]
    Token,
    #[error("the lease is over")]
    Stale,
}

impl Store {
    pub async fn store_bundle(
        &self,
        bundle: NewBundle<'_>,
        actor: &Actor,
        now: Moment,
    ) -> Result<BundleId, BundleFault> {
        let id = BundleId::new(now)?;
        let project = bundle.project.as_str();
        let ring = self.ring();
        let key = ring.seal(key_place(&id, project), bundle.key)?;
        let mut tx = self.engine.write().await?;
        tx.run(
            "INSERT INTO bundle (id, project, place, digest, input, size, kid, key, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            args![
                &id,
                project,
                bundle.place,
                &bundle.digest,
                &bundle.input,
                bundle.size,
                &ring.active().to_string(),
                key.as_slice(),
                now
            ],
        )
        .await?;
        let detail = json!({"input": bundle.input.to_string(), "size": bundle.size});
        let change = about((project, None), actor, Action::BundleStored, &id, detail);
        journal::write(&mut tx, now, &change);
        tx.commit().await?;
        Ok(id)
    }

    /// What a run works on, if it was given anything.
    pub async fn source(&self, run: &RunId) -> Result<Option<SourceView>, Fault> {
        let sql = "SELECT bundle.id AS id, input, size FROM bundle JOIN run ON run.source = bundle.id WHERE run.id = $1";
        let row = self.engine.row(sql, args![run]).await?;
        let read = |row: super::engine::Row| {
            let (bundle, input) = (row.read("id", BundleId::parse)?, row.digest("input")?);
            Ok(SourceView { bundle, input, size: row.count("size")? })
        };
        row.map(read).transpose()
    }

    /// The hash of the tree in a bundle of this project.
    pub async fn input_of(&self, bundle: &BundleId, project: &Project) -> Result<Option<Digest>, Fault> {
        let sql = "SELECT input FROM bundle WHERE id = $1 AND project = $2";
        let row = self.engine.row(sql, args![bundle, project.as_str()]).await?;
        row.map(|row| row.digest("input")).transpose()
    }

    /// Where the ciphertext of a bundle lies, and the key that opens it.
    pub async fn bundle_key(&self, bundle: &BundleId) -> Result<(String, Zeroizing<Vec<u8>>), BundleFault> {
        let sql = "SELECT project, place, key FROM bundle WHERE id = $1";
        let row = self.engine.row(sql, args![bundle]).await?;
        let row = row.ok_or(Fault::Unreadable { column: "bundle_id" })?;
        let key = self.ring().open(key_place(bundle, &row.text("project")?), &row.bytes("key")?)?;
        Ok((row.text("place")?, key))
    }

    /// Forgets bundles made before `before` that no run works on. Where their ciphertext lies, for its keeper to remove.
    pub async fn forget_bundles(&self, before: Moment) -> Result<Vec<String>, Fault> {
        let mut tx = self.engine.write().await?;
        let sql = "DELETE FROM bundle WHERE created_at < $1
                     AND NOT EXISTS (SELECT 1 FROM run WHERE run.source = bundle.id)
                     AND NOT EXISTS (SELECT 1 FROM stage WHERE stage.source = bundle.id) RETURNING place";
        let rows = tx.rows(sql, args![before]).await?;
        let places = rows.iter().map(|row| row.text("place")).collect::<Result<Vec<_>, _>>()?;
        tx.commit().await?;
        Ok(places)
    }

    /// A token for the holder of a lease, of which the store knows only the digest.
    pub async fn issue_bundle_token(
        &self,
        bundle: &BundleId,
        lease: &Lease,
        token: &Digest,
        expires_at: Moment,
    ) -> Result<(), BundleFault> {
        let mut tx = self.engine.write().await?;
        let issued = tx
            .run(
                "INSERT INTO bundle_token (token, bundle_id, job_id, worker_id, epoch, expires_at, sent)
                 SELECT $1, bundle.id, job.id, job.worker_id, job.epoch, $6, 0
                 FROM job JOIN run ON run.id = job.run_id JOIN stage ON stage.id = job.stage_id
                 JOIN bundle ON bundle.id = coalesce(stage.source, run.source)
                 WHERE bundle.id = $2 AND job.id = $3 AND job.worker_id = $4 AND job.epoch = $5 AND job.state <> 'queued'",
                args![token, bundle, &lease.job, &lease.worker, lease.epoch, expires_at],
            )
            .await?;
        if issued == 0 {
            return Err(BundleFault::Stale);
        }
        Ok(tx.commit().await?)
    }

    /// One statement decides. The same worker under the same lease may ask again, and is counted.
    pub async fn redeem_bundle(
        &self,
        token: &Digest,
        lease: &Lease,
        now: Moment,
    ) -> Result<Redeemed, BundleFault> {
        let mut tx = self.engine.write().await?;
        let row = tx
            .row(
                "UPDATE bundle_token SET redeemed_at = COALESCE(redeemed_at, $5), sent = sent + 1
                 WHERE token = $1 AND job_id = $2 AND worker_id = $3 AND epoch = $4 AND expires_at > $5
                   AND EXISTS (SELECT 1 FROM job WHERE job.id = $2 AND job.worker_id = $3 AND job.epoch = $4
                               AND job.state <> 'queued')
                 RETURNING bundle_id, sent",
                args![token, &lease.job, &lease.worker, lease.epoch, now],
            )
            .await?
            .ok_or(BundleFault::Token)?;
        let (id, sent) = (row.read("bundle_id", BundleId::parse)?, row.count("sent")?);
        let sql = "SELECT job.run_id AS run_id, project, place, digest, size, key FROM bundle, job
                   WHERE bundle.id = $1 AND job.id = $2";
        let row =
            tx.row(sql, args![&id, &lease.job]).await?.ok_or(Fault::Unreadable { column: "bundle_id" })?;
        let (project, run) = (row.text("project")?, row.read("run_id", RunId::parse)?);
        let key = self.ring().open(key_place(&id, &project), &row.bytes("key")?)?;
        let actor = Actor::Worker(lease.worker.clone());
        let detail = json!({"job": lease.job.as_str(), "epoch": lease.epoch, "sent": sent});
        let change = about((&project, Some(&run)), &actor, Action::BundleRedeemed, &id, detail);
        journal::write(&mut tx, now, &change);
        tx.commit().await?;
        let (place, digest, size) = (row.text("place")?, row.digest("digest")?, row.count("size")?);
        Ok(Redeemed { bundle: id, place, digest, size, key, sent })
    }
}

pub(super) fn key_place<'a>(id: &'a BundleId, tenant: &'a str) -> Place<'a> {
    Place { table: "bundle", row: id.as_str(), column: "key", tenant }
}

fn about<'a>(
    (project, run): (&'a str, Option<&'a RunId>),
    actor: &'a Actor,
    action: Action,
    id: &'a BundleId,
    detail: serde_json::Value,
) -> Change<'a> {
    Change { actor, action, project: Some(project), run, stage: None, subject: id.as_str(), detail }
}
