//! Work that nobody may take: seen, explained, and ended after a while.
//!
//! Who may take it is an active worker that was heard of lately. How long something waits in vain is counted from when that was first
//! seen here, not from when it was queued, and only while this control plane hears: what it does not know (it was away, it was just
//! started) lengthens a wait, and never ends one. Nothing of it is written down.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pond_policy::reason::{Cause, Reason};
use pond_policy::route::{Have, Need};
use pond_policy::stage::{Event, State};

use super::claim::QUEUE_HEADS;
use super::engine::{Fault, Tx, args};
use super::expire::ALWAYS;
use super::flow::{End, HeldRun, after};
use super::id::{JobId, Moment, StageId, WorkerId};
use super::journal::Actor;
use super::rerun::{others, read_avoid};
use super::worker::read_have;
use super::{Rules, Store};

/// Jobs of one need that are ended in one call.
const MOST_AT_ONCE: i64 = 1000;
/// Who was not heard of for so long is not there. A worker calls every half minute at the latest, and every few seconds while it has a
/// job; leases may be longer, and who has one may be out of reach for as long as two of them.
const SILENCE: Duration = Duration::from_secs(120);

/// Whom this control plane counts as there, and what it saw wait in vain.
#[derive(Debug)]
pub(super) struct Watch(Mutex<Watched>);

#[derive(Debug)]
struct Watched {
    /// Workers that were last seen before are not there. Moved on by the clock's rounds alone.
    there_since: Moment,
    /// Since when each waits.
    vain: HashMap<Vain, Moment>,
}

/// All jobs of a class, or one that must go elsewhere.
type Vain = (i64, Option<JobId>);

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

impl Default for Watch {
    fn default() -> Self {
        Self(Mutex::new(Watched { there_since: ALWAYS, vain: HashMap::new() }))
    }
}

impl Watch {
    pub(super) fn there_since(&self) -> Moment {
        self.lock().there_since
    }

    /// Whoever hears workers since `heard` misses nobody before each had the time to call.
    fn look(&self, rules: Rules, heard: Moment, now: Moment) {
        let since = now.minus(SILENCE.max(rules.lease * 2));
        self.lock().there_since = if since < heard { ALWAYS } else { since };
    }

    /// Remembers what waits and forgets what does not any more. Those that have waited for `patience`.
    fn patient(
        &self,
        waiting: Vec<Waiting>,
        patience: Duration,
        (heard, now): (Moment, Moment),
    ) -> Vec<Waiting> {
        let mut watched = self.lock();
        let before = std::mem::take(&mut watched.vain);
        let (mut over, last) = (Vec::new(), now.minus(patience));
        for one in waiting {
            let key = (one.class, one.job.clone());
            // Not before this control plane heard anything, nor, after its clock went back, later than now.
            let since = before.get(&key).map_or(now, |since| (*since).max(heard).min(now));
            watched.vain.insert(key, since);
            if since <= last {
                over.push(one);
            }
        }
        over
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The active workers: those that are there, and when each of the others was seen last.
struct Active {
    there: Vec<Have>,
    silent: Vec<(Have, Moment)>,
}

impl Active {
    async fn read(tx: &mut Tx, there_since: Moment) -> Result<Self, Fault> {
        let sql = "SELECT tags, capabilities, seen_at FROM worker WHERE state = 'active'";
        let mut active = Self { there: Vec::new(), silent: Vec::new() };
        for row in tx.rows(sql, &[]).await? {
            let (have, seen) = (read_have(&row)?, Moment(row.int("seen_at")?));
            match seen < there_since {
                true => active.silent.push((have, seen)),
                false => active.there.push(have),
            }
        }
        Ok(active)
    }

    /// Why nobody takes what needs this, if nobody does.
    fn unmet(&self, need: &Need) -> Option<String> {
        let reason = need.unmet(&self.there)?;
        let able = self.silent.iter().filter(|(have, _)| need.met_by(have).is_ok());
        let last = able.map(|(_, seen)| *seen).max();
        Some(
            last.map_or(reason, |seen| {
                format!("no worker that may have it was seen since {}", seen.to_utc())
            }),
        )
    }
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
        let workers = Active::read(tx, self.watch.there_since()).await?;
        let mut waiting = Vec::new();
        for row in tx.rows(QUEUE_HEADS, &[]).await? {
            let class = row.int("class_id")?;
            let need = self.need(tx, class).await?;
            if let Some(reason) = workers.unmet(&need) {
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
            if others(tx, &need, (&ran, self.watch.there_since())).await?.is_empty() {
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

    /// Ends what has waited in vain for `patience`, a bounded number of each need, by a control plane that hears workers since
    /// `heard`. How many stages that were.
    pub async fn end_unmatched(&self, patience: Duration, heard: Moment, now: Moment) -> Result<u64, Fault> {
        self.watch.look(self.rules, heard, now);
        let over = self.watch.patient(self.waiting().await?, patience, (heard, now));
        let (mut ended, queued_before) = (0, now.minus(patience));
        for waiting in over {
            let mut tx = self.engine.read().await?;
            let sql = "SELECT id FROM job WHERE state = 'queued' AND class_id = $1 AND queued_at <= $2
                       ORDER BY id LIMIT $3";
            let rows = tx.rows(sql, args![waiting.class, queued_before, MOST_AT_ONCE]).await?;
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
