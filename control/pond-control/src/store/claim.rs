//! A worker takes jobs: those it may have, oldest first, each under a new epoch.
//!
//! What is queued is indexed by class, so a claim looks at the head of each waiting class and at nothing else. No two claims
//! get the same job, and none waits for another.

use std::sync::PoisonError;

use pond_policy::route::{Have, Need};
use pond_policy::stage::{Event, State};
use serde_json::json;

use super::Store;
use super::engine::{Fault, Row, Tx, args};
use super::flow::after;
use super::id::{JobId, Moment, RunId, StageId, WorkerId};
use super::journal::{self, Action, Actor, Change};
use super::lease::Lease;
use super::worker::{WorkerState, read_have};

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
}

#[derive(Debug, thiserror::Error)]
pub enum ClaimFault {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error("there is no worker {0}")]
    UnknownWorker(WorkerId),
    #[error("the worker is {}", .0.name())]
    NotActive(WorkerState),
}

impl Store {
    /// Up to `most` jobs for this worker; fewer when there are no more.
    pub async fn claim(&self, worker: &WorkerId, most: u32, now: Moment) -> Result<Vec<Offer>, ClaimFault> {
        let mut tx = self.engine.write().await?;
        let sql = tx.dialect().hold_worker();
        let row = tx.row(sql, args![worker]).await?;
        let row = row.ok_or_else(|| ClaimFault::UnknownWorker(worker.clone()))?;
        let state = row.read("state", WorkerState::from_name)?;
        if state != WorkerState::Active {
            return Err(ClaimFault::NotActive(state));
        }
        let classes = self.open_classes(&mut tx, &read_have(&row)?).await?;
        let mut offers = Vec::new();
        for (class, need) in classes {
            while offers.len() < usize::try_from(most).unwrap_or(usize::MAX) {
                match self.take(&mut tx, class, &need, worker, now).await? {
                    Some(offer) => offers.push(offer),
                    None => break,
                }
            }
        }
        if !offers.is_empty() {
            tx.commit().await?;
        }
        Ok(offers)
    }

    /// Classes with something queued that this worker may have, the one that has waited longest first.
    async fn open_classes(&self, tx: &mut Tx, have: &Have) -> Result<Vec<(i64, Need)>, Fault> {
        let mut open = Vec::new();
        for row in tx.rows(QUEUE_HEADS, &[]).await? {
            let class = row.int("class_id")?;
            let need = self.need(tx, class).await?;
            if need.met_by(have).is_ok() {
                open.push((class, need));
            }
        }
        Ok(open)
    }

    pub(super) async fn need(&self, tx: &mut Tx, class: i64) -> Result<Need, Fault> {
        if let Some(need) = self.classes.lock().unwrap_or_else(PoisonError::into_inner).get(&class) {
            return Ok(need.clone());
        }
        let row = tx.row("SELECT need FROM class WHERE id = $1", args![class]).await?;
        let need = row.ok_or(Fault::Unreadable { column: "class_id" })?.read("need", Need::parse)?;
        self.classes.lock().unwrap_or_else(PoisonError::into_inner).insert(class, need.clone());
        Ok(need)
    }

    async fn take(
        &self,
        tx: &mut Tx,
        class: i64,
        need: &Need,
        worker: &WorkerId,
        now: Moment,
    ) -> Result<Option<Offer>, Fault> {
        after(State::Queued, &[Event::Lease])?;
        let sql = tx.dialect().take_job();
        let row = tx.row(sql, args![class, worker, now.plus(self.rules.offer), now]).await?;
        let Some(row) = row else { return Ok(None) };
        let offer = Offer::read(&row, need, worker)?;
        let change = Change {
            actor: &Actor::Worker(worker.clone()),
            action: Action::StageLeased,
            project: Some(need.project().as_str()),
            run: Some(&offer.run),
            stage: Some(&offer.stage),
            subject: offer.stage.as_str(),
            detail: json!({"job": offer.lease.job.as_str(), "worker": worker.as_str(), "epoch": offer.lease.epoch}),
        };
        journal::write(tx, now, &change).await?;
        Ok(Some(offer))
    }
}

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
        })
    }
}
