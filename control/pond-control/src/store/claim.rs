//! A worker takes jobs: those it may have, oldest first, each under a new epoch.
//!
//! What is queued is indexed by class, so a claim looks at the head of each waiting class and at nothing else; which classes those
//! are may be a few milliseconds old, unless there seems to be nothing. No two claims get the same job, and none waits for another.

use std::sync::PoisonError;

use pond_policy::route::Need;
use pond_policy::stage::{Event, State};
use serde_json::json;
use tokio::time::Instant;

use super::Store;
use super::engine::{Fault, Row, Tx, args};
use super::flow::after;
use super::held::Held;
use super::id::{JobId, Moment, RunId, StageId, WorkerId};
use super::journal::{self, Action, Actor, Change};
use super::lease::Lease;
use super::together::{Take, Taken};
use super::worker::{WorkerState, WorkerView};

/// Every class that has a job in the queue, with its oldest: one step through the index per class.
pub(super) const QUEUE_HEADS: &str = "WITH RECURSIVE waiting (class_id) AS (
         SELECT min(class_id) FROM job WHERE state = 'queued'
         UNION ALL
         SELECT (SELECT min(class_id) FROM job WHERE state = 'queued' AND class_id > waiting.class_id)
         FROM waiting WHERE waiting.class_id IS NOT NULL)
     SELECT class_id, (SELECT min(id) FROM job WHERE state = 'queued' AND class_id = waiting.class_id) AS head
     FROM waiting WHERE class_id IS NOT NULL ORDER BY head";

/// A job given to a worker, which has a short time to say that it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub lease: Lease,
    pub run: RunId,
    pub stage: StageId,
    pub need: Need,
    pub attempt: u64,
    /// What it is about, where that was read at once.
    pub held: Option<Held>,
}

#[derive(Debug, thiserror::Error)]
pub enum ClaimFault {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error("there is no worker {0}")]
    UnknownWorker(WorkerId),
    #[error("the worker is {}", .0.name())]
    NotActive(WorkerState),
    #[error("the worker has other keys by now")]
    OtherKeys,
}

impl Store {
    /// Up to `most` jobs for this worker while its keys are those of this generation; fewer when there are no more.
    pub async fn claim(
        &self,
        (worker, generation): (&WorkerId, u64),
        most: u32,
        now: Moment,
    ) -> Result<Vec<Offer>, ClaimFault> {
        let known = self.known_worker(worker).await?;
        let known = known.ok_or_else(|| ClaimFault::UnknownWorker(worker.clone()))?;
        if known.state != WorkerState::Active {
            return Err(ClaimFault::NotActive(known.state));
        }
        // Whoever asked before the keys changed is nobody to offer anything to.
        if known.generation != generation {
            return Err(ClaimFault::OtherKeys);
        }
        if let Some(heads) = self.heads.lately() {
            let offers = self.take_from(&heads, &known, most, now).await?;
            if !offers.is_empty() {
                return Ok(offers);
            }
        }
        // Nobody is told that there is nothing by a list that is old.
        let heads = match self.heads_together().await {
            Some(heads) => heads,
            None => self.queue_heads().await?,
        };
        Ok(self.take_from(&heads, &known, most, now).await?)
    }

    /// Classes with something queued, the one that has waited longest first.
    pub(super) async fn queue_heads(&self) -> Result<Vec<i64>, Fault> {
        let asked = Instant::now();
        let rows = self.engine.rows(QUEUE_HEADS, &[]).await?;
        let heads = rows.iter().map(|row| row.int("class_id")).collect::<Result<Vec<_>, _>>()?;
        self.heads.keep(asked, heads.clone());
        Ok(heads)
    }

    async fn take_from(
        &self,
        heads: &[i64],
        worker: &WorkerView,
        most: u32,
        now: Moment,
    ) -> Result<Vec<Offer>, Fault> {
        let mut offers = Vec::new();
        for class in heads {
            let need = self.need_of(*class).await?;
            if need.met_by(&worker.have).is_err() {
                continue;
            }
            while offers.len() < usize::try_from(most).unwrap_or(usize::MAX) {
                match self.take(*class, &need, worker, now).await? {
                    Some(offer) => offers.push(offer),
                    None => break,
                }
            }
        }
        Ok(offers)
    }

    /// What a class needs, which never changes.
    pub(super) async fn need_of(&self, class: i64) -> Result<Need, Fault> {
        if let Some(need) = self.known_need(class) {
            return Ok(need);
        }
        let row = self.engine.row(NEED, args![class]).await?;
        self.learn_need(class, row.as_ref())
    }

    /// The same, for one who has a transaction.
    pub(super) async fn need(&self, tx: &mut Tx, class: i64) -> Result<Need, Fault> {
        if let Some(need) = self.known_need(class) {
            return Ok(need);
        }
        let row = tx.row(NEED, args![class]).await?;
        self.learn_need(class, row.as_ref())
    }

    fn known_need(&self, class: i64) -> Option<Need> {
        self.classes.lock().unwrap_or_else(PoisonError::into_inner).get(&class).cloned()
    }

    fn learn_need(&self, class: i64, row: Option<&Row>) -> Result<Need, Fault> {
        let need = row.ok_or(Fault::Unreadable { column: "class_id" })?.read("need", Need::parse)?;
        self.classes.lock().unwrap_or_else(PoisonError::into_inner).insert(class, need.clone());
        Ok(need)
    }

    /// The oldest job of a class, if there is one and the worker is active. Jobs that others are about to take are passed over.
    async fn take(
        &self,
        class: i64,
        need: &Need,
        worker: &WorkerView,
        now: Moment,
    ) -> Result<Option<Offer>, Fault> {
        after(State::Queued, &[Event::Lease])?;
        let (project, until) = (need.project().as_str(), now.plus(self.rules.offer));
        let (worker, generation) = (&worker.id, worker.generation);
        let take =
            Take { class, project: project.to_owned(), worker: worker.clone(), generation, until, now };
        if let Some(Taken { job, epoch, held }) = self.take_together(take).await {
            let lease = Lease { job, worker: worker.clone(), epoch };
            let (run, stage, attempt) = (held.run.clone(), held.stage.clone(), held.attempt);
            return Ok(Some(Offer { lease, run, stage, need: need.clone(), attempt, held: Some(held) }));
        }
        let mut tx = self.engine.write().await?;
        let sql = tx.dialect().take();
        let row = tx.row(sql, args![class, worker, until, now, generation]).await?;
        let Some(row) = row else { return Ok(None) };
        let offer = Offer::read(&row, need, worker)?;
        let change = Change {
            actor: &Actor::Worker(worker.clone()),
            action: Action::StageLeased,
            project: Some(project),
            run: Some(&offer.run),
            stage: Some(&offer.stage),
            subject: offer.stage.as_str(),
            detail: json!({"job": offer.lease.job.as_str(), "worker": worker.as_str(), "epoch": offer.lease.epoch}),
        };
        journal::write(&mut tx, now, &change);
        tx.commit().await?;
        Ok(Some(offer))
    }
}

const NEED: &str = "SELECT need FROM class WHERE id = $1";

impl Offer {
    fn read(row: &Row, need: &Need, worker: &WorkerId) -> Result<Self, Fault> {
        let lease =
            Lease { job: row.read("id", JobId::parse)?, worker: worker.clone(), epoch: row.count("epoch")? };
        Ok(Self {
            lease,
            run: row.read("run_id", RunId::parse)?,
            stage: row.read("stage_id", StageId::parse)?,
            need: need.clone(),
            attempt: row.count("attempt")?,
            held: None,
        })
    }
}
