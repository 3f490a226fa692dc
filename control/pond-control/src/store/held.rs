//! What a live lease is about: everything an offer says, and every later call of its holder is compared with.
//!
//! Read again for each call, so that a control plane that was restarted in the middle, or another one on the same store,
//! comes to the same.

use std::time::Duration;

use pond_policy::name::{Name, Project};
use pond_policy::stage::State;
use pond_seal::Digest;

use super::Store;
use super::budget::Left;
use super::engine::{Fault, Row, args};
use super::id::{BundleId, Moment, RunId, StageId};
use super::lease::Lease;

/// A job in somebody's hands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub run: RunId,
    pub stage: StageId,
    pub project: Project,
    pub attempt: u64,
    pub state: State,
    pub offered_at: Moment,
    /// When the lease lapses.
    pub until: Moment,
    pub work: Work,
    /// What it works on, and the hash of the tree inside: the source of the run, or what was made of it.
    pub source: Option<(BundleId, Digest)>,
    /// It works on what stages before it made, and nobody has put that together yet.
    pub inherits: bool,
    pub left: Left,
}

/// The document of the run, and which stage of it this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    pub document: Vec<u8>,
    pub position: u64,
    pub name: String,
    pub timeout: Duration,
}

impl Store {
    /// What a lease is about, to judge a result by that is then taken only if the lease holds: as it was offered here, if it was. Of
    /// that, what a job is to do and on what never changes while the lease lasts; its state and its budgets do.
    pub async fn offered(&self, lease: &Lease) -> Result<Option<Held>, Fault> {
        match self.offers.get(lease) {
            Some(held) => Ok(Some(held)),
            None => self.held(lease).await,
        }
    }

    /// This lease was offered, and is about this.
    pub fn remember_offer(&self, lease: &Lease, held: Held) {
        self.offers.keep(lease, held);
    }

    /// Nothing for a lease that is over.
    pub async fn held(&self, lease: &Lease) -> Result<Option<Held>, Fault> {
        let sql = "SELECT job.run_id AS run_id, stage_id, run.project AS project, attempt, job.state AS state, offered_at,
                      lease_until, body, position, stage.name AS name, timeout_ms, inherits, stage.source AS made, bundle.id AS bundle_id,
                      bundle.input AS input, wall_until, output_most, output_used, artifact_most, artifact_used, egress_most,
                      egress_used
                   FROM job JOIN stage ON stage.id = job.stage_id JOIN run ON run.id = job.run_id
                   JOIN document ON document.run_id = job.run_id LEFT JOIN bundle ON bundle.id = coalesce(stage.source, run.source)
                   WHERE job.id = $1 AND job.worker_id = $2 AND job.epoch = $3 AND job.state <> 'queued'";
        let row = self.engine.row(sql, args![&lease.job, &lease.worker, lease.epoch]).await?;
        row.as_ref().map(Held::read).transpose()
    }
}

impl Held {
    pub(super) fn read(row: &Row) -> Result<Self, Fault> {
        let bundle = row.maybe_read("bundle_id", BundleId::parse)?;
        Ok(Self {
            run: row.read("run_id", RunId::parse)?,
            stage: row.read("stage_id", StageId::parse)?,
            project: row.read("project", |text| Name::parse(text).map(Project::from))?,
            attempt: row.count("attempt")?,
            state: row.read("state", State::from_name)?,
            offered_at: Moment(row.int("offered_at")?),
            until: Moment(row.int("lease_until")?),
            work: Work {
                document: row.bytes("body")?,
                position: row.count("position")?,
                name: row.text("name")?,
                timeout: Duration::from_millis(row.count("timeout_ms")?),
            },
            inherits: row.int("inherits")? != 0 && row.maybe_text("made")?.is_none(),
            source: bundle.map(|id| row.digest("input").map(|input| (id, input))).transpose()?,
            left: Left::read(row)?,
        })
    }
}
