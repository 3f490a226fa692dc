//! A result arrives. It is accepted once: while its lease holds, in one transaction with the end of the job.
//!
//! The caller has verified the envelope; nothing here reads it. A result of a lease that is over is stale, unless it is, byte
//! for byte, the one that was accepted: then the answer got lost on the way and is given again.

use pond_policy::stage::{Event, State};
use pond_seal::Digest;
use serde_json::json;

use super::Store;
use super::budget::{self, Account};
use super::engine::{Fault, Tx, args};
use super::flow::{End, HeldRun, LiveJob, RunState, after, ended, over};
use super::id::{Moment, RunId};
use super::journal::{Action, Actor};
use super::lease::{Lease, Spent};
use super::logs::{self, Chunk};
use super::rerun::{self, Ballot, Together};
use super::together::{Finish, Piece};

/// What a verified result says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    Failed,
    /// The result did not verify.
    Rejected,
}

#[derive(Clone, Copy, Debug)]
pub struct Completion<'a> {
    pub lease: &'a Lease,
    pub outcome: Outcome,
    /// For people: what failed, what did not verify.
    pub reason: &'a str,
    /// What the job used, as a verified statement says.
    pub spent: Spent,
    /// The signed envelope, exactly as it came.
    pub envelope: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// It counts. The stage is now in this state: ended, or queued for another try.
    Accepted(State),
    /// It was accepted before.
    Replayed,
    /// Somebody else has the job, or it is over.
    Stale,
}

impl Outcome {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Succeeded, Self::Failed, Self::Rejected].into_iter().find(|outcome| outcome.name() == name)
    }

    fn event(self, try_again: bool) -> Event {
        match self {
            Self::Succeeded => Event::Accept,
            Self::Failed if try_again => Event::Retry,
            Self::Failed => Event::Fail,
            Self::Rejected => Event::Reject,
        }
    }
}

impl Store {
    /// A result that nobody else is asked about.
    pub async fn complete(&self, completion: Completion<'_>, now: Moment) -> Result<Completed, Fault> {
        self.complete_among(completion, None, now).await
    }

    /// One that may count only together with others of the same stage.
    pub async fn complete_among(
        &self,
        completion: Completion<'_>,
        ballot: Option<Ballot<'_>>,
        now: Moment,
    ) -> Result<Completed, Fault> {
        self.offers.forget(completion.lease);
        if ballot.is_none() && self.finish(completion, None, now).await? {
            return Ok(Completed::Accepted(State::Succeeded));
        }
        let mut tx = self.engine.write().await?;
        let Some(mut run) = HeldRun::of_job(&mut tx, &completion.lease.job).await? else {
            return replayed(tx, completion).await;
        };
        let Some((job, tries, account)) = take_job(&mut tx, completion.lease, now).await? else {
            return replayed(tx, completion).await;
        };
        tell_start(&mut tx, &run, &job, completion.lease, now);
        store_result(&mut tx, &run, &job, completion, now).await?;
        let counts = !job.cancel && completion.outcome != Outcome::Rejected;
        let together = match ballot.filter(|_| counts) {
            None => None,
            Some(ballot) => Some(rerun::count(&mut tx, &run, (&job, ballot), now).await?),
        };
        let state = state_after(&job, tries, completion.outcome, together.as_ref())?;
        let crossed = match completion.outcome {
            Outcome::Succeeded | Outcome::Failed => {
                budget::settle(&mut tx, &mut run, account, completion.spent, now).await?
            }
            // The word of who signed that is worth nothing: all that was lent counts as spent.
            Outcome::Rejected => None,
        };
        let actor = Actor::Worker(completion.lease.worker.clone());
        match &together {
            Some(Together::Again(ran)) => self.queue_elsewhere(&mut tx, &run, &job, ran, now).await?,
            None if state == State::Queued => {
                run.queue(&mut tx, (&job.stage, job.class, job.attempt + 1), now).await?;
            }
            None | Some(Together::Agreed | Together::Split(_)) => {
                let cancelled = run.cancel_reason().to_owned();
                let reason = match &together {
                    Some(Together::Split(reason)) => reason,
                    None | Some(Together::Agreed | Together::Again(_)) if job.cancel => &cancelled,
                    None | Some(Together::Agreed | Together::Again(_)) => completion.reason,
                };
                run.end(&mut tx, &job.stage, End { state, reason, actor: &actor, now }).await?;
            }
        }
        if let Some(crossed) = crossed {
            budget::end(&mut tx, &mut run, crossed, now).await?;
        }
        tx.commit().await?;
        if together.is_some() {
            // Somebody who was outvoted may have work no more.
            self.known.forget();
        }
        Ok(Completed::Accepted(state))
    }

    /// The end of a job together with the only piece it sent, its whole packed result. Whether it was the ordinary end of a run's last
    /// stage, and there was room for the piece; otherwise nothing was changed.
    pub async fn complete_whole(
        &self,
        completion: Completion<'_>,
        piece: Chunk<'_>,
        now: Moment,
    ) -> Result<bool, Fault> {
        let Some((piece, _)) = logs::beginning(completion.lease, piece) else { return Ok(false) };
        let over = self.finish(completion, Some(piece), now).await?;
        if over {
            self.offers.forget(completion.lease);
        }
        Ok(over)
    }

    /// Whether it was the ordinary end of a run's last stage, which can be written at once.
    async fn finish(
        &self,
        completion: Completion<'_>,
        piece: Option<Piece>,
        now: Moment,
    ) -> Result<bool, Fault> {
        let Completion { lease, outcome, envelope, spent, reason } = completion;
        let ordinary = outcome == Outcome::Succeeded && reason.is_empty();
        let free = spent.cost_microcents == 0 && spent.egress_bytes == 0;
        if !ordinary || !free {
            return Ok(false);
        }
        after(State::Leased, &[Event::Start, Event::Finish, Event::Accept])?;
        let digest = Digest::of(envelope);
        let told =
            [accepted(lease, outcome, &digest), ended(State::Succeeded, ""), over(RunState::Succeeded)]
                .map(|detail| detail.to_string());
        let (lease, digest, envelope) = (lease.clone(), *digest.as_bytes(), envelope.to_vec());
        Ok(self.finish_together(Finish { lease, digest, envelope, piece, now, told }).await)
    }
}

/// What is told of a result.
fn accepted(lease: &Lease, outcome: Outcome, digest: &Digest) -> serde_json::Value {
    json!({
        "job": lease.job.as_str(), "epoch": lease.epoch, "outcome": outcome.name(), "envelope": digest.to_string(),
    })
}

impl Store {
    /// Whether nothing of a run is left to do.
    pub async fn is_over(&self, run: &RunId) -> Result<bool, Fault> {
        let row = self.engine.row("SELECT open_stages FROM run WHERE id = $1", args![run]).await?;
        row.map_or(Ok(true), |row| Ok(row.int("open_stages")? == 0))
    }

    /// What was recorded under this lease: the digest of its envelope, and what came of it.
    pub async fn recorded(&self, lease: &Lease) -> Result<Option<(Digest, Outcome)>, Fault> {
        let sql = "SELECT digest, outcome FROM result WHERE job_id = $1 AND worker_id = $2 AND epoch = $3";
        let row = self.engine.row(sql, args![&lease.job, &lease.worker, lease.epoch]).await?;
        row.map(|row| Ok((row.digest("digest")?, row.read("outcome", Outcome::from_name)?))).transpose()
    }
}

/// The live job of this lease and the tries of its stage. The row goes: from here on the lease is over. One that nobody said began
/// is had only while its offer stands.
async fn take_job(tx: &mut Tx, lease: &Lease, now: Moment) -> Result<Option<(LiveJob, i64, Account)>, Fault> {
    let row = tx
        .row(
            "DELETE FROM job WHERE id = $1 AND worker_id = $2 AND epoch = $3 AND state <> 'queued'
                AND (state <> 'leased' OR lease_until >= $4)
             RETURNING id, stage_id, class_id, attempt, state, cancel, lent, cost_microcents, egress_lent,
                egress_bytes,
                (SELECT tries FROM stage WHERE stage.id = job.stage_id) AS tries",
            args![&lease.job, &lease.worker, lease.epoch, now],
        )
        .await?;
    row.map(|row| Ok((LiveJob::read(&row)?, row.int("tries")?, Account::read(&row)?))).transpose()
}

/// A result may overtake the word that the job started; then both count at once.
fn state_after(
    job: &LiveJob,
    tries: i64,
    outcome: Outcome,
    together: Option<&Together>,
) -> Result<State, Fault> {
    let started = match job.state {
        State::Leased => after(job.state, &[Event::Start])?,
        State::Queued
        | State::Running
        | State::Verifying
        | State::Succeeded
        | State::Failed
        | State::Cancelled
        | State::Refused => job.state,
    };
    let verdict = match together {
        None if job.cancel => Event::Cancel,
        None => outcome.event(job.attempt < tries),
        Some(Together::Again(_)) => Event::Confirm,
        // What enough workers agree on is not tried again.
        Some(Together::Agreed) => outcome.event(false),
        Some(Together::Split(_)) => Event::Reject,
    };
    Ok(after(started, &[Event::Finish, verdict])?)
}

/// Of a job whose end is the first that its worker says of it.
fn tell_start(tx: &mut Tx, run: &HeldRun, job: &LiveJob, lease: &Lease, now: Moment) {
    if job.state == State::Leased {
        let actor = Actor::Worker(lease.worker.clone());
        let detail = json!({"job": lease.job.as_str(), "epoch": lease.epoch});
        run.tell(tx, (&actor, Action::StageRunning), &job.stage, detail, now);
    }
}

async fn store_result(
    tx: &mut Tx,
    run: &HeldRun,
    job: &LiveJob,
    completion: Completion<'_>,
    now: Moment,
) -> Result<(), Fault> {
    let Completion { lease, outcome, envelope, .. } = completion;
    let digest = Digest::of(envelope);
    tx.run(
        "INSERT INTO result (job_id, stage_id, worker_id, epoch, attempt, outcome, digest, envelope, at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        args![
            &lease.job,
            &job.stage,
            &lease.worker,
            lease.epoch,
            job.attempt,
            outcome.name(),
            &digest,
            envelope,
            now
        ],
    )
    .await?;
    let actor = Actor::Worker(lease.worker.clone());
    let detail = accepted(lease, outcome, &digest);
    let action = match outcome {
        Outcome::Succeeded | Outcome::Failed => Action::ResultAccepted,
        Outcome::Rejected => Action::ResultRejected,
    };
    run.tell(tx, (&actor, action), &job.stage, detail, now);
    Ok(())
}

async fn replayed(mut tx: Tx, completion: Completion<'_>) -> Result<Completed, Fault> {
    let Completion { lease, envelope, .. } = completion;
    let row = tx
        .row(
            "SELECT digest FROM result WHERE job_id = $1 AND worker_id = $2 AND epoch = $3",
            args![&lease.job, &lease.worker, lease.epoch],
        )
        .await?;
    let accepted = row.map(|row| row.digest("digest")).transpose()?;
    tx.commit().await?;
    Ok(if accepted == Some(Digest::of(envelope)) { Completed::Replayed } else { Completed::Stale })
}
