//! A run enters the store: its document, its stages, what they need, and the jobs that can start at once.
//!
//! The same key with the same request gives the same run, however often and however concurrently it is sent.

use std::collections::HashMap;
use std::sync::PoisonError;

use pond_policy::name::Project;
use pond_policy::route::Need;
use pond_policy::run::{Run, Stage};
use pond_seal::Digest;
use serde_json::json;

use super::Store;
use super::budget;
use super::engine::{Fault, Tx, args};
use super::flow::{HeldRun, RunState};
use super::id::{BundleId, Moment, RunId, StageId};
use super::journal::{self, Action, Actor, Change};

/// A document that passed preflight.
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    pub run: &'a Run,
    /// The document as it was sent; it is read again at dispatch.
    pub document: &'a [u8],
    /// What its stages work on: a bundle of the same project.
    pub source: Option<&'a BundleId>,
    /// How often a stage that failed is tried again.
    pub retries: u32,
    pub idempotency: Option<Idempotency<'a>>,
}

/// Which request this is, as its sender counts.
#[derive(Clone, Copy, Debug)]
pub struct Idempotency<'a> {
    /// Who sent it and to where: keys of others do not matter.
    pub scope: &'a str,
    pub key: &'a str,
    /// Of everything the request said.
    pub fingerprint: Digest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    New(RunId),
    /// The request was served before.
    Replayed(RunId),
}

#[derive(Debug, thiserror::Error)]
pub enum SubmitFault {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error("there is no project {0}")]
    UnknownProject(Project),
    #[error("there is no bundle {0} of this project")]
    UnknownSource(BundleId),
    #[error("the idempotency key was used for a different request")]
    KeyReused,
}

impl Store {
    pub async fn submit(
        &self,
        submission: Submission<'_>,
        actor: &Actor,
        now: Moment,
    ) -> Result<Submitted, SubmitFault> {
        let classes = self.intern(submission.run).await?;
        let mut tx = self.engine.write().await?;
        let id = RunId::new(now)?;
        if let Some(key) = submission.idempotency
            && let Some(earlier) = claim_key(&mut tx, key, &id, now).await?
        {
            tx.commit().await?;
            return Ok(Submitted::Replayed(earlier));
        }
        let run = insert_run(&mut tx, &id, submission, actor, now).await?;
        insert_stages(&mut tx, &run, submission, &classes, now).await?;
        tx.commit().await?;
        Ok(Submitted::New(id))
    }

    /// Forgets keys that were used before `before`.
    pub async fn forget_keys(&self, before: Moment) -> Result<u64, Fault> {
        let mut tx = self.engine.write().await?;
        let forgotten = tx.run("DELETE FROM idempotency WHERE at < $1", args![before]).await?;
        tx.commit().await?;
        Ok(forgotten)
    }

    /// The number of each stage's need. Made before the run, in a transaction of its own: needs are shared and never removed,
    /// and nobody should wait for one that a long submission made.
    async fn intern(&self, run: &Run) -> Result<Vec<i64>, Fault> {
        let needs: Vec<Need> = run.stages.iter().map(|stage| need_of(stage, run)).collect();
        let known = self.numbered(&needs);
        if let Some(all) = needs.iter().map(|need| known.get(need).copied()).collect() {
            return Ok(all);
        }
        let mut tx = self.engine.write().await?;
        let mut numbers = Vec::new();
        for need in &needs {
            let text = need.to_string();
            tx.run("INSERT INTO class (need) VALUES ($1) ON CONFLICT DO NOTHING", args![&text]).await?;
            let row = tx.row("SELECT id FROM class WHERE need = $1", args![&text]).await?;
            numbers.push(row.ok_or(Fault::Unreadable { column: "need" })?.int("id")?);
        }
        tx.commit().await?;
        let mut classes = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        classes.extend(numbers.iter().copied().zip(needs));
        Ok(numbers)
    }

    fn numbered(&self, needs: &[Need]) -> HashMap<Need, i64> {
        let classes = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = classes.iter().filter(|(_, need)| needs.contains(need));
        wanted.map(|(number, need)| (need.clone(), *number)).collect()
    }
}

fn need_of(stage: &Stage, run: &Run) -> Need {
    Need::of(&stage.executor.dispatch, &run.project)
}

/// Takes the key for this run, or says which run has it. A second request waits here until the first is decided.
async fn claim_key(
    tx: &mut Tx,
    key: Idempotency<'_>,
    run: &RunId,
    now: Moment,
) -> Result<Option<RunId>, SubmitFault> {
    let taken = tx
        .run(
            "INSERT INTO idempotency (scope, key, fingerprint, run_id, at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT DO NOTHING",
            args![key.scope, key.key, &key.fingerprint, run, now],
        )
        .await?;
    if taken == 1 {
        return Ok(None);
    }
    let sql = "SELECT fingerprint, run_id FROM idempotency WHERE scope = $1 AND key = $2";
    let row = tx.row(sql, args![key.scope, key.key]).await?;
    let row = row.ok_or(Fault::Unreadable { column: "key" })?;
    if row.digest("fingerprint")? != key.fingerprint {
        return Err(SubmitFault::KeyReused);
    }
    Ok(Some(row.read("run_id", RunId::parse)?))
}

async fn insert_run(
    tx: &mut Tx,
    id: &RunId,
    submission: Submission<'_>,
    actor: &Actor,
    now: Moment,
) -> Result<HeldRun, SubmitFault> {
    let project = &submission.run.project;
    let known = tx.row("SELECT name FROM project WHERE name = $1", args![project.as_str()]).await?;
    if known.is_none() {
        return Err(SubmitFault::UnknownProject(project.clone()));
    }
    if let Some(source) = submission.source {
        let sql = "SELECT id FROM bundle WHERE id = $1 AND project = $2";
        let found = tx.row(sql, args![source, project.as_str()]).await?;
        found.ok_or_else(|| SubmitFault::UnknownSource(source.clone()))?;
    }
    let stages = i64::try_from(submission.run.stages.len()).unwrap_or(i64::MAX);
    let source = submission.source.map(BundleId::as_str);
    let [wall, cost, output, artifacts, egress] = budget::beginning(&submission.run.budgets, now);
    tx.run(
        "INSERT INTO run (id, project, state, open_stages, source, created_at, wall_until, cost_most, output_most,
            artifact_most, egress_most)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        args![
            id,
            project.as_str(),
            RunState::Active.name(),
            stages,
            source,
            now,
            wall,
            cost,
            output,
            artifacts,
            egress
        ],
    )
    .await?;
    tx.run("INSERT INTO document (run_id, body) VALUES ($1, $2)", args![id, submission.document]).await?;
    let change = Change {
        actor,
        action: Action::RunSubmitted,
        project: Some(project.as_str()),
        run: Some(id),
        stage: None,
        subject: id.as_str(),
        detail: json!({
            "stages": stages,
            "document": Digest::of(submission.document).to_string(),
            "source": source,
        }),
    };
    journal::write(tx, now, &change);
    Ok(HeldRun::hold(tx, id).await?.ok_or(Fault::Unreadable { column: "id" })?)
}

async fn insert_stages(
    tx: &mut Tx,
    run: &HeldRun,
    submission: Submission<'_>,
    classes: &[i64],
    now: Moment,
) -> Result<(), Fault> {
    let stages = &submission.run.stages;
    let ids = stages.iter().map(|_| StageId::new(now)).collect::<Result<Vec<_>, _>>()?;
    let id_of: HashMap<&str, &StageId> = stages.iter().map(|stage| stage.name.as_str()).zip(&ids).collect();
    for (((stage, id), class), position) in stages.iter().zip(&ids).zip(classes).zip(0_i64..) {
        let unmet = i64::try_from(stage.needs.len()).unwrap_or(i64::MAX);
        let timeout = Moment(0).plus(stage.executor.timeout.duration());
        let tries = i64::from(submission.retries) + 1;
        tx.run(
            "INSERT INTO stage (id, run_id, position, name, state, class_id, unmet, tries, timeout_ms, reason, costs,
                inherits)
             VALUES ($1, $2, $3, $4, 'queued', $5, $6, $7, $8, '', $9, $10)",
            args![
                id,
                &run.id,
                position,
                stage.name.as_str(),
                *class,
                unmet,
                tries,
                timeout,
                i64::from(stage.executor.model.is_some()),
                i64::from(!stage.needs.is_empty())
            ],
        )
        .await?;
    }
    for ((stage, id), class) in stages.iter().zip(&ids).zip(classes) {
        for need in stage.needs.iter().filter_map(|need| id_of.get(need.as_str())) {
            let sql = "INSERT INTO stage_need (stage_id, needs_id) VALUES ($1, $2)";
            tx.run(sql, args![id, *need]).await?;
        }
        if stage.needs.is_empty() {
            run.queue(tx, (id, *class, 1), now).await?;
        }
    }
    Ok(())
}
