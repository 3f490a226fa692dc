//! How stages move a run along: one that succeeded lets others start, one that did not ends those that needed it, and the
//! last one ends the run. All of it under the run's row.

use pond_policy::reason::{Cause, Reason};
use pond_policy::stage::{self, Event, IllegalMove, State};
use serde_json::json;

use super::budget::Figures;
use super::engine::{Fault, Row, Tx, args};
use super::id::{JobId, Moment, RunId, StageId};
use super::journal::{self, Action, Actor, Change};

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    Active,
    Succeeded,
    Failed,
    Cancelled,
    Refused,
}

/// A run whose row this transaction holds.
#[derive(Debug)]
pub(super) struct HeldRun {
    pub(super) id: RunId,
    pub(super) project: String,
    /// Why it is being cancelled, if it is.
    pub(super) cancel: Option<String>,
    /// As they were when the row was taken; who changes them keeps both.
    pub(super) figures: Figures,
    open: i64,
}

/// A live job, as its row says.
#[derive(Debug)]
pub(super) struct LiveJob {
    pub(super) id: JobId,
    pub(super) stage: StageId,
    pub(super) class: i64,
    pub(super) attempt: i64,
    pub(super) state: State,
    pub(super) cancel: bool,
}

/// How a stage ended, and what to say about it.
#[derive(Debug)]
pub(super) struct End<'a> {
    pub(super) state: State,
    pub(super) reason: &'a str,
    pub(super) actor: &'a Actor,
    pub(super) now: Moment,
}

impl RunState {
    pub const ALL: [Self; 5] = [Self::Active, Self::Succeeded, Self::Failed, Self::Cancelled, Self::Refused];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// Where several events lead, one after the other.
pub(super) fn after(state: State, events: &[Event]) -> Result<State, IllegalMove> {
    events.iter().try_fold(state, |state, event| stage::next(state, *event))
}

/// What is told of a stage's end.
pub(super) fn ended(state: State, reason: &str) -> serde_json::Value {
    let Reason { sentence, code } = Reason::parse(reason);
    json!({"state": state.name(), "reason": sentence, "code": code})
}

/// What is told of a run's end.
pub(super) fn over(state: RunState) -> serde_json::Value {
    json!({"state": state.name()})
}

impl HeldRun {
    pub(super) async fn hold(tx: &mut Tx, run: &RunId) -> Result<Option<Self>, Fault> {
        let sql = tx.dialect().lock_run();
        tx.row(sql, args![run]).await?.as_ref().map(Self::read).transpose()
    }

    /// The run of a live job.
    pub(super) async fn of_job(tx: &mut Tx, job: &JobId) -> Result<Option<Self>, Fault> {
        let sql = tx.dialect().lock_run_of_job();
        tx.row(sql, args![job]).await?.as_ref().map(Self::read).transpose()
    }

    fn read(row: &Row) -> Result<Self, Fault> {
        Ok(Self {
            id: row.read("id", RunId::parse)?,
            project: row.text("project")?,
            cancel: row.maybe_text("cancel")?,
            figures: Figures::read(row)?,
            open: row.int("open_stages")?,
        })
    }

    /// Why its stages are cancelled.
    pub(super) fn cancel_reason(&self) -> &str {
        self.cancel.as_deref().unwrap_or("the run was cancelled")
    }

    /// Puts a stage into the queue.
    pub(super) async fn queue(
        &self,
        tx: &mut Tx,
        (stage, class, attempt): (&StageId, i64, i64),
        now: Moment,
    ) -> Result<(), Fault> {
        let job = JobId::new(now)?;
        tx.run(
            "INSERT INTO job (id, stage_id, run_id, class_id, attempt, queued_at, state, epoch, lease_until, cancel)
             VALUES ($1, $2, $3, $4, $5, $6, 'queued', 0, 0, 0)",
            args![&job, stage, &self.id, class, attempt, now],
        )
        .await?;
        let detail = json!({"job": job.as_str(), "attempt": attempt});
        self.tell(tx, (&Actor::System, Action::StageQueued), stage, detail, now);
        Ok(())
    }

    /// Ends a stage and everything that can never start because of it, and the run with the last of them.
    pub(super) async fn end(&mut self, tx: &mut Tx, stage: &StageId, end: End<'_>) -> Result<(), Fault> {
        if !self.end_one(tx, stage, &end).await? {
            return Ok(());
        }
        match end.state {
            State::Succeeded if self.open == 0 => {}
            State::Succeeded => self.release(tx, stage, end.now).await?,
            State::Refused => self.doom(tx, stage, State::Refused, &end).await?,
            State::Failed | State::Cancelled => self.doom(tx, stage, State::Cancelled, &end).await?,
            State::Queued | State::Leased | State::Running | State::Verifying => {}
        }
        self.close(tx, end.now).await
    }

    /// Whether it had not ended before.
    async fn end_one(&mut self, tx: &mut Tx, stage: &StageId, end: &End<'_>) -> Result<bool, Fault> {
        let changed = tx
            .run(
                "UPDATE stage SET state = $2, reason = $3, ended_at = $4 WHERE id = $1 AND state = 'queued'",
                args![stage, end.state.name(), end.reason, end.now],
            )
            .await?;
        if changed == 0 {
            return Ok(false);
        }
        self.open -= 1;
        let detail = ended(end.state, end.reason);
        self.tell(tx, (end.actor, Action::StageEnded), stage, detail, end.now);
        Ok(true)
    }

    /// Queues the stages that waited for this one last.
    async fn release(&self, tx: &mut Tx, stage: &StageId, now: Moment) -> Result<(), Fault> {
        let nearer = tx
            .rows(
                "UPDATE stage SET unmet = unmet - 1 WHERE state = 'queued'
                   AND id IN (SELECT stage_id FROM stage_need WHERE needs_id = $1)
                 RETURNING id, class_id, unmet",
                args![stage],
            )
            .await?;
        for row in nearer {
            if row.int("unmet")? == 0 {
                let stage = row.read("id", StageId::parse)?;
                self.queue(tx, (&stage, row.int("class_id")?, 1), now).await?;
            }
        }
        Ok(())
    }

    /// Ends every stage that needs, over any number of steps, one that did not succeed.
    async fn doom(&mut self, tx: &mut Tx, stage: &StageId, state: State, end: &End<'_>) -> Result<(), Fault> {
        let mut open = vec![stage.clone()];
        while let Some(lost) = open.pop() {
            let waiting = tx
                .rows(
                    "SELECT stage.id AS id, lost.name AS needed, lost.state AS how FROM stage
                     JOIN stage_need ON stage_need.stage_id = stage.id
                     JOIN stage AS lost ON lost.id = stage_need.needs_id
                     WHERE stage_need.needs_id = $1 AND stage.state = 'queued'",
                    args![&lost],
                )
                .await?;
            for row in waiting {
                let id = row.read("id", StageId::parse)?;
                let reason = format!("needs {}, which was {}", row.text("needed")?, row.text("how")?);
                let reason = Reason::of(Cause::NeedsFailed, reason).to_string();
                let end = End { state, reason: &reason, actor: &Actor::System, now: end.now };
                self.end_one(tx, &id, &end).await?;
                open.push(id);
            }
        }
        Ok(())
    }

    async fn close(&self, tx: &mut Tx, now: Moment) -> Result<(), Fault> {
        if self.open > 0 {
            tx.run("UPDATE run SET open_stages = $2 WHERE id = $1", args![&self.id, self.open]).await?;
            return Ok(());
        }
        // A failure outweighs a refusal, a refusal a cancellation. One that used up a budget is cancelled, whatever its stages came
        // to before.
        let row = tx
            .row(
                "UPDATE run SET open_stages = 0, ended_at = $2, state = CASE WHEN crossed IS NOT NULL THEN 'cancelled'
                    ELSE coalesce((SELECT state FROM stage WHERE run_id = $1 ORDER BY
                        CASE state WHEN 'failed' THEN 1 WHEN 'refused' THEN 2 WHEN 'cancelled' THEN 3 ELSE 4 END LIMIT 1), 'succeeded') END
                 WHERE id = $1 RETURNING state",
                args![&self.id, now],
            )
            .await?;
        let state = row.ok_or(Fault::Unreadable { column: "run_id" })?.read("state", RunState::from_name)?;
        let change = Change {
            actor: &Actor::System,
            action: Action::RunEnded,
            project: Some(&self.project),
            run: Some(&self.id),
            stage: None,
            subject: self.id.as_str(),
            detail: over(state),
        };
        journal::write(tx, now, &change);
        Ok(())
    }

    /// Writes down what happened to one of its stages.
    pub(super) fn tell(
        &self,
        tx: &mut Tx,
        (actor, action): (&Actor, Action),
        stage: &StageId,
        detail: serde_json::Value,
        now: Moment,
    ) {
        let change = Change {
            actor,
            action,
            project: Some(&self.project),
            run: Some(&self.id),
            stage: Some(stage),
            subject: stage.as_str(),
            detail,
        };
        journal::write(tx, now, &change);
    }
}

impl LiveJob {
    pub(super) fn read(row: &Row) -> Result<Self, Fault> {
        Ok(Self {
            id: row.read("id", JobId::parse)?,
            stage: row.read("stage_id", StageId::parse)?,
            class: row.int("class_id")?,
            attempt: row.int("attempt")?,
            state: row.read("state", State::from_name)?,
            cancel: row.int("cancel")? != 0,
        })
    }
}
