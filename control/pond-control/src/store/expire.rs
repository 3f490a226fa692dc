//! Leases that nobody renewed: the job goes back into the queue, or ends if its time is up, its run was cancelled, or it has
//! taken too many workers with it. And the other way round: a worker that loses job after job gets no more.

use pond_policy::reason::{Cause, Reason};
use pond_policy::stage::{Event, State};
use serde_json::json;

use super::Store;
use super::engine::{Fault, Row, Tx, args};
use super::flow::{End, HeldRun, LiveJob, after};
use super::id::{JobId, Moment, RunId, StageId, WorkerId};
use super::journal::{self, Action, Actor, Change};
use super::lease::{Lease, LeaseFault, drop_job, requeue};
use super::worker::WorkerState;

/// Jobs looked at in one call.
const MOST_AT_ONCE: i64 = 1000;

/// Since when a control plane hears that was never away.
pub(super) const ALWAYS: Moment = Moment(i64::MIN);

/// What became of a job whose lease lapsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lapse {
    Requeued,
    TimedOut,
    Poisoned,
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lapsed {
    pub job: JobId,
    pub worker: WorkerId,
    pub what: Lapse,
}

/// A lease that lapsed, as its row says.
struct Lost {
    job: LiveJob,
    worker: WorkerId,
    epoch: u64,
    until: Moment,
    timed_out: bool,
}

impl Store {
    /// Takes back every lease that lapsed before `now`.
    pub async fn expire(&self, now: Moment) -> Result<Vec<Lapsed>, Fault> {
        self.expire_heard(ALWAYS, now).await
    }

    /// The same of a control plane that hears workers since `since` only: who may have called before, and was not heard, is not
    /// to blame for a lease that lapsed, and nor is its job.
    pub async fn expire_heard(&self, since: Moment, now: Moment) -> Result<Vec<Lapsed>, Fault> {
        let mut tx = self.engine.read().await?;
        let sql =
            "SELECT id FROM job WHERE state <> 'queued' AND lease_until < $1 ORDER BY lease_until LIMIT $2";
        let rows = tx.rows(sql, args![now, MOST_AT_ONCE]).await?;
        let jobs = rows.iter().map(|row| row.read("id", JobId::parse)).collect::<Result<Vec<_>, _>>()?;
        drop(tx);
        let mut lapsed = Vec::new();
        for job in jobs {
            lapsed.extend(self.lapse(&job, since, now).await?);
        }
        let mut workers: Vec<&WorkerId> = lapsed.iter().map(|lapsed: &Lapsed| &lapsed.worker).collect();
        workers.sort();
        workers.dedup();
        for worker in workers {
            self.judge(worker, now).await?;
        }
        Ok(lapsed)
    }

    /// After the clock went back: no lease lasts longer than one that is given out now.
    pub async fn shorten_leases(&self, now: Moment) -> Result<u64, Fault> {
        let most = now.plus(self.rules.lease.max(self.rules.offer));
        let mut tx = self.engine.write().await?;
        let sql = "UPDATE job SET lease_until = $1 WHERE state <> 'queued' AND lease_until > $1";
        let shortened = tx.run(sql, args![most]).await?;
        tx.commit().await?;
        Ok(shortened)
    }

    /// One job, one transaction: a failure in between leaves the rest for the next call.
    pub(super) async fn lapse(
        &self,
        job: &JobId,
        heard_since: Moment,
        now: Moment,
    ) -> Result<Option<Lapsed>, Fault> {
        let mut tx = self.engine.write().await?;
        let Some(mut run) = HeldRun::of_job(&mut tx, job).await? else { return Ok(None) };
        let row = tx
            .row(
                "SELECT id, stage_id, class_id, attempt, state, cancel, worker_id, epoch, lease_until, deadline FROM job
                 WHERE id = $1 AND state <> 'queued' AND lease_until < $2",
                args![job, now],
            )
            .await?;
        let Some(lost) = row.map(|row| Lost::read(&row, now)).transpose()? else { return Ok(None) };
        if lost.until >= heard_since.plus(self.rules.lease) {
            record_loss(&mut tx, &lost, now).await?;
        }
        let what = self.decide(&mut tx, &lost).await?;
        match what {
            Lapse::Requeued => {
                requeue(&mut tx, &run, &lost.job, (&Actor::System, "the lease lapsed"), now).await?;
            }
            Lapse::TimedOut => {
                let reason = Reason::of(Cause::TimedOut, "its time was up").to_string();
                give_up(&mut tx, &mut run, &lost, Event::TimeOut, &reason, now).await?;
            }
            Lapse::Poisoned => {
                let reason = Reason::of(Cause::Poisoned, "too many workers were lost on it").to_string();
                give_up(&mut tx, &mut run, &lost, Event::Poison, &reason, now).await?;
            }
            Lapse::Cancelled => {
                let reason = run.cancel_reason().to_owned();
                give_up(&mut tx, &mut run, &lost, Event::Cancel, &reason, now).await?;
            }
        }
        tx.commit().await?;
        Ok(Some(Lapsed { job: job.clone(), worker: lost.worker, what }))
    }

    /// The worker says that its job was killed under it: the lease lapses now.
    pub async fn lose(&self, lease: &Lease, now: Moment) -> Result<(), LeaseFault> {
        let mut tx = self.engine.write().await?;
        let sql = "UPDATE job SET lease_until = $4 WHERE id = $1 AND worker_id = $2 AND epoch = $3 AND state <> 'queued'";
        let over = Moment(now.0.saturating_sub(1));
        if tx.run(sql, args![&lease.job, &lease.worker, lease.epoch, over]).await? == 0 {
            return Err(LeaseFault::Stale);
        }
        tx.commit().await?;
        // It spoke for itself, so there is no outage to make allowance for.
        self.lapse(&lease.job, Moment(0), now).await?;
        Ok(self.judge(&lease.worker, now).await?)
    }

    async fn decide(&self, tx: &mut Tx, lost: &Lost) -> Result<Lapse, Fault> {
        if lost.job.cancel {
            return Ok(Lapse::Cancelled);
        }
        if lost.timed_out {
            return Ok(Lapse::TimedOut);
        }
        let sql = "SELECT count(DISTINCT worker_id) AS workers, count(*) AS losses FROM lease_loss
                   WHERE job_id = $1 AND kind = 'lost'";
        let row = tx.row(sql, args![&lost.job.id]).await?;
        let (workers, losses) =
            row.map_or(Ok((0, 0)), |row| Ok::<_, Fault>((row.count("workers")?, row.count("losses")?)))?;
        // Where there are fewer workers than that, the same ones are lost again and again.
        let poisoned = workers >= self.rules.poison_after || losses >= self.rules.poison_after * 2;
        Ok(if poisoned { Lapse::Poisoned } else { Lapse::Requeued })
    }

    /// Quarantines a worker that lost too many jobs lately. One that lost the same job again and again is the job's victim.
    async fn judge(&self, worker: &WorkerId, now: Moment) -> Result<(), Fault> {
        let mut tx = self.engine.write().await?;
        let since = now.minus(self.rules.quarantine_window);
        let sql = "SELECT count(DISTINCT job_id) AS jobs FROM lease_loss WHERE worker_id = $1 AND at > $2";
        let row = tx.row(sql, args![worker, since]).await?;
        let jobs = row.map_or(Ok(0), |row| row.count("jobs"))?;
        if jobs < self.rules.quarantine_after {
            return Ok(());
        }
        let reason = format!("{jobs} jobs were lost on it");
        let changed = tx
            .run(
                "UPDATE worker SET state = $2, reason = $3 WHERE id = $1 AND state = 'active'",
                args![worker, WorkerState::Quarantined.name(), &reason],
            )
            .await?;
        if changed == 1 {
            let change = Change {
                actor: &Actor::System,
                action: Action::WorkerQuarantined,
                project: None,
                run: None,
                stage: None,
                subject: worker.as_str(),
                detail: json!({"reason": reason}),
            };
            journal::write(&mut tx, now, &change);
            tx.commit().await?;
            self.known.forget();
        }
        Ok(())
    }

    /// Cancels a run: what is queued ends now, what runs is told with its next heartbeat. Whether there was anything to cancel.
    pub async fn cancel(&self, run: &RunId, reason: &str, actor: &Actor, now: Moment) -> Result<bool, Fault> {
        let mut tx = self.engine.write().await?;
        let Some(mut held) = HeldRun::hold(&mut tx, run).await? else { return Ok(false) };
        let is_new = cancel_in(&mut tx, &mut held, reason, actor, now).await?;
        tx.commit().await?;
        Ok(is_new)
    }
}

/// The same, in a transaction that holds the run.
pub(super) async fn cancel_in(
    tx: &mut Tx,
    held: &mut HeldRun,
    reason: &str,
    actor: &Actor,
    now: Moment,
) -> Result<bool, Fault> {
    let run = held.id.clone();
    let sql = "UPDATE run SET cancel = $2 WHERE id = $1 AND state = 'active' AND cancel IS NULL";
    if held.cancel.is_some() || tx.run(sql, args![&run, reason]).await? == 0 {
        return Ok(false);
    }
    held.cancel = Some(reason.to_owned());
    let change = Change {
        actor,
        action: Action::RunCancelling,
        project: Some(&held.project),
        run: Some(&run),
        stage: None,
        subject: run.as_str(),
        detail: {
            let Reason { sentence, code } = Reason::parse(reason);
            json!({"reason": sentence, "code": code})
        },
    };
    journal::write(tx, now, &change);
    // In this order: a claim that is under way is waited for by the first and seen by the second.
    tx.run("DELETE FROM job WHERE run_id = $1 AND state = 'queued'", args![&run]).await?;
    tx.run("UPDATE job SET cancel = 1 WHERE run_id = $1 AND state <> 'queued'", args![&run]).await?;
    let sql = "SELECT id FROM stage WHERE run_id = $1 AND state = 'queued'
                 AND NOT EXISTS (SELECT 1 FROM job WHERE job.stage_id = stage.id) ORDER BY position";
    let state = after(State::Queued, &[Event::Cancel])?;
    for row in tx.rows(sql, args![&run]).await? {
        let stage = row.read("id", StageId::parse)?;
        held.end(tx, &stage, End { state, reason, actor, now }).await?;
    }
    Ok(true)
}

impl Lost {
    fn read(row: &Row, now: Moment) -> Result<Self, Fault> {
        Ok(Self {
            job: LiveJob::read(row)?,
            worker: row.read("worker_id", WorkerId::parse)?,
            epoch: row.count("epoch")?,
            until: Moment(row.int("lease_until")?),
            timed_out: row.maybe_int("deadline")?.is_some_and(|deadline| deadline < now.0),
        })
    }
}

/// A worker that never started the job has lost it, but the job had no part in that; nor in the end of one that was revoked.
async fn record_loss(tx: &mut Tx, lost: &Lost, now: Moment) -> Result<(), Fault> {
    let kind = if lost.job.state == State::Running { "lost" } else { "unacknowledged" };
    tx.run(
        "INSERT INTO lease_loss (job_id, epoch, worker_id, kind, at)
         SELECT $1, $2, id, CASE WHEN state = 'revoked' THEN 'revoked' ELSE $4 END, $5 FROM worker WHERE id = $3",
        args![&lost.job.id, lost.epoch, &lost.worker, kind, now],
    )
    .await
    .map(|_| ())
}

async fn give_up(
    tx: &mut Tx,
    run: &mut HeldRun,
    lost: &Lost,
    event: Event,
    reason: &str,
    now: Moment,
) -> Result<(), Fault> {
    let state = after(lost.job.state, &[event])?;
    drop_job(tx, run, &lost.job).await?;
    run.end(tx, &lost.job.stage, End { state, reason, actor: &Actor::System, now }).await
}
