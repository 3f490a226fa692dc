//! What the holder of a lease may do with it: say that it starts, renew it, give it back, refuse the job.
//!
//! Each is one comparison with (job, worker, epoch). A lease that is over, whoever holds it now, is [`LeaseFault::Stale`].

use pond_policy::reason::Reason;
use pond_policy::stage::{Event, State};
use serde_json::json;

use super::Store;
use super::budget::{self, Account};
use super::engine::{Fault, Row, Tx, args};
use super::flow::{End, HeldRun, LiveJob, after};
use super::id::{JobId, Moment, RunId, StageId, WorkerId};
use super::journal::{self, Action, Actor, Change};
use super::together::Start;

/// The right to work on a job, until it lapses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub job: JobId,
    pub worker: WorkerId,
    pub epoch: u64,
}

/// What a job has used up, as its worker says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    pub cost_microcents: u64,
    pub egress_bytes: u64,
    pub output_bytes: u64,
    pub wanted: Option<Wanted>,
    /// How many bytes of connections it would have to be lent in all, at least.
    pub wanted_egress_bytes: Option<u64>,
}

/// How much a job would have to be lent in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// With less it is of no use.
    pub least_microcents: u64,
    pub most_microcents: u64,
}

/// A lease that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// When it lapses unless it is renewed.
    pub until: Moment,
    /// The job is to be stopped; what it has is still taken.
    pub cancel: bool,
    /// What the job may cost in all.
    pub lent_microcents: u64,
    /// How many bytes its connections may carry in all.
    pub lent_egress_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum LeaseFault {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error("the lease is over")]
    Stale,
}

impl Store {
    /// The worker starts the job. Said twice it is the same.
    pub async fn acknowledge(&self, lease: &Lease, now: Moment) -> Result<Renewed, LeaseFault> {
        after(State::Leased, &[Event::Start])?;
        let until = now.plus(self.rules.lease);
        let start = Start { lease: lease.clone(), until, grace: now.plus(self.rules.grace), now };
        if let Some(renewed) = self.start_together(start).await {
            return Ok(renewed);
        }
        let mut tx = self.engine.write().await?;
        if let Some(row) = self.start(&mut tx, lease, now).await? {
            tx.commit().await?;
            return Ok(Renewed::read(&row, until)?);
        }
        let row = tx
            .row(
                "SELECT state, lease_until, cancel, lent, egress_lent FROM job
                 WHERE id = $1 AND worker_id = $2 AND epoch = $3",
                args![&lease.job, &lease.worker, lease.epoch],
            )
            .await?
            .ok_or(LeaseFault::Stale)?;
        if row.read("state", State::from_name)? != State::Running {
            return Err(LeaseFault::Stale);
        }
        let until = Moment(row.int("lease_until")?);
        tx.commit().await?;
        Ok(Renewed::read(&row, until)?)
    }

    /// Of the stages of its run it changes nothing: a job's row is enough.
    async fn start(&self, tx: &mut Tx, lease: &Lease, now: Moment) -> Result<Option<Row>, Fault> {
        let (until, grace) = (now.plus(self.rules.lease), now.plus(self.rules.grace));
        let started = tx
            .row(
                "UPDATE job SET state = 'running',
                    deadline = (SELECT timeout_ms FROM stage WHERE stage.id = job.stage_id) + $5, lease_until = $4
                 WHERE id = $1 AND worker_id = $2 AND epoch = $3 AND state = 'leased' AND lease_until >= $6
                 RETURNING stage_id, run_id, cancel, lent, egress_lent,
                    (SELECT project FROM run WHERE run.id = job.run_id) AS project",
                args![&lease.job, &lease.worker, lease.epoch, until, grace, now],
            )
            .await?;
        let Some(row) = started else { return Ok(None) };
        let (run, stage) = (row.read("run_id", RunId::parse)?, row.read("stage_id", StageId::parse)?);
        let change = Change {
            actor: &Actor::Worker(lease.worker.clone()),
            action: Action::StageRunning,
            project: Some(&row.text("project")?),
            run: Some(&run),
            stage: Some(&stage),
            subject: stage.as_str(),
            detail: json!({"job": lease.job.as_str(), "epoch": lease.epoch}),
        };
        journal::write(tx, now, &change);
        Ok(Some(row))
    }

    /// Renews the lease of a running job, never past its deadline, and keeps what the job has used up: never less than it was.
    /// What that does to the run's budgets is seen at once: a lease that is renewed may be cancelled by the same call.
    pub async fn heartbeat(&self, lease: &Lease, spent: Spent, now: Moment) -> Result<Renewed, LeaseFault> {
        let mut tx = self.engine.write().await?;
        let mut run = HeldRun::of_job(&mut tx, &lease.job).await?.ok_or(LeaseFault::Stale)?;
        let mut account = self.account(&mut tx, lease, now).await?;
        budget::report(&mut tx, &mut run, &mut account, spent, now).await?;
        let row = tx
            .row(
                "UPDATE job SET lease_until = CASE WHEN deadline < $4 THEN deadline ELSE $4 END,
                    cost_microcents = $6, egress_bytes = $7, lent = $9, egress_lent = $10,
                    output_bytes = CASE WHEN output_bytes < $8 THEN $8 ELSE output_bytes END
                 WHERE id = $1 AND worker_id = $2 AND epoch = $3 AND state = 'running' AND deadline > $5
                 RETURNING lease_until, cancel",
                args![
                    &lease.job,
                    &lease.worker,
                    lease.epoch,
                    now.plus(self.rules.lease),
                    now,
                    account.cost,
                    account.egress,
                    spent.output_bytes,
                    account.lent,
                    account.egress_lent
                ],
            )
            .await?
            .ok_or(LeaseFault::Stale)?;
        let renewed = Renewed {
            until: Moment(row.int("lease_until")?),
            cancel: row.int("cancel")? != 0,
            lent_microcents: account.lent,
            lent_egress_bytes: account.egress_lent,
        };
        tx.run("UPDATE worker SET seen_at = $2 WHERE id = $1", args![&lease.worker, now]).await?;
        tx.commit().await?;
        Ok(renewed)
    }

    /// The code of why the job of this lease is to stop.
    pub async fn cancel_code(&self, lease: &Lease) -> Result<String, Fault> {
        let mut tx = self.engine.read().await?;
        let sql = "SELECT cancel FROM run WHERE id = (SELECT run_id FROM job WHERE id = $1)";
        let row = tx.row(sql, args![&lease.job]).await?;
        let text = row.map_or(Ok(None), |row| row.maybe_text("cancel"))?;
        Ok(Reason::parse(&text.unwrap_or_default()).code)
    }

    /// What a running job was lent and has used, as far as that is known.
    async fn account(&self, tx: &mut Tx, lease: &Lease, now: Moment) -> Result<Account, LeaseFault> {
        let sql = "SELECT lent, cost_microcents, egress_lent, egress_bytes FROM job
                   WHERE id = $1 AND worker_id = $2 AND epoch = $3 AND state = 'running' AND deadline > $4";
        let row = tx.row(sql, args![&lease.job, &lease.worker, lease.epoch, now]).await?;
        Ok(Account::read(&row.ok_or(LeaseFault::Stale)?)?)
    }

    /// The worker gives the job back unharmed, as one that shuts down does.
    pub async fn give_back(&self, lease: &Lease, now: Moment) -> Result<(), LeaseFault> {
        let mut tx = self.engine.write().await?;
        let (mut run, job) = hold(&mut tx, lease).await?;
        let actor = Actor::Worker(lease.worker.clone());
        if job.cancel {
            let state = after(job.state, &[Event::Cancel]).map_err(Fault::from)?;
            drop_job(&mut tx, &run, &job).await?;
            let reason = run.cancel_reason().to_owned();
            run.end(&mut tx, &job.stage, End { state, reason: &reason, actor: &actor, now }).await?;
        } else {
            requeue(&mut tx, &run, &job, (&actor, "given back"), now).await?;
        }
        Ok(tx.commit().await?)
    }

    /// The worker does not run the job, by its own resolution or because it cannot: refused before it began, failed after.
    pub async fn refuse(&self, lease: &Lease, reason: &str, now: Moment) -> Result<(), LeaseFault> {
        let mut tx = self.engine.write().await?;
        let (mut run, job) = hold(&mut tx, lease).await?;
        let cancelled = run.cancel_reason().to_owned();
        let reason = if job.cancel { &cancelled } else { reason };
        let events: &[Event] = match job.state {
            _ if job.cancel => &[Event::Cancel],
            State::Running | State::Verifying => &[Event::Finish, Event::Fail],
            State::Queued
            | State::Leased
            | State::Succeeded
            | State::Failed
            | State::Cancelled
            | State::Refused => &[Event::Refuse],
        };
        let state = after(job.state, events).map_err(Fault::from)?;
        drop_job(&mut tx, &run, &job).await?;
        let actor = Actor::Worker(lease.worker.clone());
        run.end(&mut tx, &job.stage, End { state, reason, actor: &actor, now }).await?;
        Ok(tx.commit().await?)
    }
}

impl Renewed {
    pub(super) fn read(row: &Row, until: Moment) -> Result<Self, Fault> {
        Ok(Self {
            until,
            cancel: row.int("cancel")? != 0,
            lent_microcents: row.count("lent")?,
            lent_egress_bytes: row.count("egress_lent")?,
        })
    }
}

impl From<pond_policy::stage::IllegalMove> for LeaseFault {
    fn from(illegal: pond_policy::stage::IllegalMove) -> Self {
        Self::Store(illegal.into())
    }
}

/// The run and the job of a lease that is not over.
pub(super) async fn hold(tx: &mut Tx, lease: &Lease) -> Result<(HeldRun, LiveJob), LeaseFault> {
    let run = HeldRun::of_job(tx, &lease.job).await?.ok_or(LeaseFault::Stale)?;
    let row = tx
        .row(
            "SELECT id, stage_id, class_id, attempt, state, cancel FROM job
             WHERE id = $1 AND worker_id = $2 AND epoch = $3 AND state <> 'queued'",
            args![&lease.job, &lease.worker, lease.epoch],
        )
        .await?
        .ok_or(LeaseFault::Stale)?;
    Ok((run, LiveJob::read(&row)?))
}

pub(super) async fn drop_job(tx: &mut Tx, run: &HeldRun, job: &LiveJob) -> Result<(), Fault> {
    budget::forfeit(tx, &run.id, &job.id, job.state).await?;
    tx.run("DELETE FROM job WHERE id = $1", args![&job.id]).await.map(|_| ())
}

/// Back into the queue, at its old place. The next claim raises the epoch past the one that is over.
pub(super) async fn requeue(
    tx: &mut Tx,
    run: &HeldRun,
    job: &LiveJob,
    (actor, why): (&Actor, &str),
    now: Moment,
) -> Result<(), Fault> {
    after(job.state, &[Event::LeaseLost])?;
    budget::forfeit(tx, &run.id, &job.id, job.state).await?;
    tx.run(
        "UPDATE job SET state = 'queued', worker_id = NULL, deadline = NULL, queued_at = $2,
            lent = 0, cost_microcents = 0, egress_lent = 0, egress_bytes = 0, output_bytes = 0 WHERE id = $1",
        args![&job.id, now],
    )
    .await?;
    let detail = json!({"job": job.id.as_str(), "why": why});
    run.tell(tx, (actor, Action::StageRequeued), &job.stage, detail, now);
    Ok(())
}
