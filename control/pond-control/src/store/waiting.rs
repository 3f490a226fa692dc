//! Work that nobody may take: seen, explained, and ended after a while.

use pond_policy::reason::{Cause, Reason};
use pond_policy::route::{Have, Need};
use pond_policy::stage::{Event, State};

use super::Store;
use super::claim::QUEUE_HEADS;
use super::engine::{Fault, Tx, args};
use super::flow::{End, HeldRun, after};
use super::id::{JobId, Moment, StageId, WorkerId};
use super::journal::Actor;
use super::rerun::{others, read_avoid};
use super::worker::read_have;

/// Jobs of one need that are ended in one call.
const MOST_AT_ONCE: i64 = 1000;

/// A need that no active worker meets, with jobs in the queue; or one job that must go to another than those who may have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub need: Need,
    pub reason: String,
    class: i64,
    /// One of its kind, or all.
    job: Option<JobId>,
}

/// A job in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    pub job: JobId,
    pub need: Need,
    /// Workers it does not go to: they ran its stage.
    pub avoid: Vec<WorkerId>,
}

impl Waiting {
    pub(super) fn is_of(&self, class: i64, job: Option<&JobId>) -> bool {
        self.class == class && (self.job.is_none() || self.job.as_ref() == job)
    }
}

impl Store {
    /// What waits in vain, and why.
    pub async fn waiting(&self) -> Result<Vec<Waiting>, Fault> {
        let mut tx = self.engine.read().await?;
        self.waiting_in(&mut tx).await
    }

    pub(super) async fn waiting_in(&self, tx: &mut Tx) -> Result<Vec<Waiting>, Fault> {
        let rows = tx.rows("SELECT tags, capabilities FROM worker WHERE state = 'active'", &[]).await?;
        let workers = rows.iter().map(read_have).collect::<Result<Vec<Have>, _>>()?;
        let mut waiting = Vec::new();
        for row in tx.rows(QUEUE_HEADS, &[]).await? {
            let class = row.int("class_id")?;
            let need = self.need(tx, class).await?;
            if let Some(reason) = need.unmet(&workers) {
                waiting.push(Waiting { need, reason, class, job: None });
            }
        }
        waiting.extend(self.waiting_for_others(tx).await?);
        Ok(waiting)
    }

    /// Jobs whose every possible worker has run them before.
    async fn waiting_for_others(&self, tx: &mut Tx) -> Result<Vec<Waiting>, Fault> {
        let sql =
            "SELECT id, class_id, avoid FROM job WHERE avoid <> '' AND state = 'queued' ORDER BY id LIMIT $1";
        let mut waiting = Vec::new();
        for row in tx.rows(sql, args![MOST_AT_ONCE]).await? {
            let (class, ran) = (row.int("class_id")?, row.read("avoid", read_avoid)?);
            let need = self.need(tx, class).await?;
            if others(tx, &need, &ran).await?.is_empty() {
                let reason =
                    format!("another worker has to confirm it: {} ran it, and no other may", ran.len());
                waiting.push(Waiting { need, reason, class, job: Some(row.read("id", JobId::parse)?) });
            }
        }
        Ok(waiting)
    }

    /// What is queued: of each need the oldest `most` jobs, whoever may have them.
    pub async fn queued(&self, most: u32) -> Result<Vec<Queued>, Fault> {
        let mut queued = Vec::new();
        // What is taken between two of these statements is refused when it is claimed, as it is after them.
        for class in self.queue_heads().await? {
            let need = self.need_of(class).await?;
            let sql =
                "SELECT id, avoid FROM job WHERE state = 'queued' AND class_id = $1 ORDER BY id LIMIT $2";
            for row in self.engine.rows(sql, args![class, i64::from(most)]).await? {
                let (job, avoid) = (row.read("id", JobId::parse)?, row.read("avoid", read_avoid)?);
                queued.push(Queued { job, need: need.clone(), avoid });
            }
        }
        Ok(queued)
    }

    /// Ends what has waited in vain since before `since`, a bounded number of each need. How many stages that were.
    pub async fn end_unmatched(&self, since: Moment, now: Moment) -> Result<u64, Fault> {
        let mut ended = 0;
        for waiting in self.waiting().await? {
            let mut tx = self.engine.read().await?;
            let sql = "SELECT id FROM job WHERE state = 'queued' AND class_id = $1 AND queued_at < $2
                       ORDER BY id LIMIT $3";
            let rows = tx.rows(sql, args![waiting.class, since, MOST_AT_ONCE]).await?;
            drop(tx);
            for row in rows {
                let job = row.read("id", JobId::parse)?;
                if waiting.job.as_ref().is_some_and(|only| *only != job) {
                    continue;
                }
                let reason = Reason::of(Cause::NoWorker, waiting.reason.clone()).to_string();
                ended += u64::from(self.end_waiting(&job, &reason, now).await?);
            }
        }
        Ok(ended)
    }

    async fn end_waiting(&self, job: &JobId, reason: &str, now: Moment) -> Result<bool, Fault> {
        let mut tx = self.engine.write().await?;
        let Some(mut run) = HeldRun::of_job(&mut tx, job).await? else { return Ok(false) };
        let sql = "DELETE FROM job WHERE id = $1 AND state = 'queued' RETURNING stage_id";
        let Some(row) = tx.row(sql, args![job]).await? else { return Ok(false) };
        let stage = row.read("stage_id", StageId::parse)?;
        let state = after(State::Queued, &[Event::TimeOut])?;
        run.end(&mut tx, &stage, End { state, reason, actor: &Actor::System, now }).await?;
        tx.commit().await?;
        Ok(true)
    }
}
