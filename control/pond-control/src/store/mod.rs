//! The store: everything that must survive any process, on SQLite or Postgres.
//!
//! TRUSTED. A stage's life is `pond_policy::stage::next`; this module makes each of its moves one transaction, together with
//! the audit entry and the event that tell of it. How the parts hold together:
//! - A *job* is one try at a stage. The `job` table has the live ones only; an ended one is its row in `result`.
//! - A *lease* is (job, worker, epoch). Every claim raises the epoch; whatever a worker asks for names all three, and a lease
//!   that is over matches nothing. Results are accepted once: the same bytes again are a replay, anything else is stale.
//! - Time is a value the caller passes in. No clock of a worker decides anything.
//! - Whoever changes the stages of a run holds the run's row first, then the job's. A claim takes a job's row only, and never
//!   waits for one. That order is what keeps Postgres free of deadlocks.
//! - Text that came from outside reaches a statement as a parameter; every statement is a literal.

mod believed;
mod budget;
mod bundle;
mod claim;
mod complete;
mod count;
mod credential;
mod dialect;
mod engine;
mod enroll;
mod expire;
mod fits;
mod flow;
mod gather;
mod held;
mod id;
mod inherit;
mod journal;
mod lately;
mod lease;
mod list;
mod logs;
mod migrate;
mod project;
mod rerun;
mod submit;
mod together;
mod token;
mod tree;
mod waiting;
mod worker;
mod writer;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pond_policy::route::Need;
use pond_seal::vault::KeyRing;

use engine::Engine;

pub use budget::{Left, STRAGGLING_OUTPUT, Tally};
pub use bundle::{BundleFault, NewBundle, Redeemed, SourceView};
pub use claim::{ClaimFault, Offer};
pub use complete::{Completed, Completion, Outcome};
pub use count::Counts;
pub use credential::{Credential, CredentialFault, Rotated};
pub use engine::Fault;
pub use enroll::{EnrollFault, Grant, NewWorker};
pub use expire::{Lapse, Lapsed};
pub use fits::{Misfit, Stranger};
pub use flow::RunState;
pub use held::{Held, Work};
pub use id::{BundleId, CredentialId, JobId, Moment, RunId, StageId, TokenId, WorkerId};
pub use inherit::Before;
pub use journal::{Action, Actor, AuditEntry, Event, Place};
pub use lease::{Lease, LeaseFault, Renewed, Spent, Wanted};
pub use list::{Asked, JobView, Page, ResultView, RunSummary, RunView, StageView};
pub use logs::{
    Appended, Chunk, LogFault, LogPart, LogPiece, MOST_CHUNK, MOST_RESULT, MOST_STREAM, Stored, Stream,
    most_of,
};
pub use migrate::MigrateFault;
pub use project::{ProjectFault, ProjectView, Removed};
pub use rerun::{Ballot, Standing};
pub use submit::{Idempotency, Submission, SubmitFault, Submitted};
pub use token::{ApiToken, NewToken, TokenFault, TokenView};
pub use tree::TreeFault;
pub use waiting::{Queued, Waiting};
pub use worker::{WorkerFault, WorkerState, WorkerView};

/// How long leases last and how much bad luck is too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// From an offer to the worker's word that it starts.
    pub offer: Duration,
    /// From one heartbeat to the moment the worker counts as lost.
    pub lease: Duration,
    /// What a job gets beyond its time limit to end and report, before the control plane ends it.
    pub grace: Duration,
    /// Workers lost on one job before the job is given up.
    pub poison_after: u64,
    /// Jobs lost by one worker within `quarantine_window` before it gets no more.
    pub quarantine_after: u64,
    pub quarantine_window: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            offer: Duration::from_secs(10),
            lease: Duration::from_secs(60),
            grace: Duration::from_secs(60),
            poison_after: 3,
            quarantine_after: 3,
            quarantine_window: Duration::from_secs(3600),
        }
    }
}

/// One store, shared by all that a control plane does at once; on Postgres by several control planes.
pub struct Store {
    engine: Engine,
    rules: Rules,
    ring: Mutex<Arc<KeyRing>>,
    /// Needs never change once they have a number.
    classes: Mutex<HashMap<i64, Need>>,
    heads: lately::Heads,
    known: lately::Workers,
    offers: lately::Offers,
    watch: waiting::Watch,
    lines: together::Lines,
    /// Entries of the audit log that this process has signed for; it never signs for fewer.
    signed: Mutex<u64>,
}

impl Store {
    /// Opens `sqlite:PATH` or `postgres://…` and brings its schema up to date.
    pub async fn open(address: &str, ring: KeyRing, rules: Rules, now: Moment) -> Result<Self, MigrateFault> {
        let engine = Engine::open(address).await?;
        migrate::migrate(&engine, now).await?;
        let ring = Mutex::new(Arc::new(ring));
        Ok(Self {
            engine,
            rules,
            ring,
            classes: Mutex::default(),
            heads: lately::Heads::default(),
            known: lately::Workers::default(),
            offers: lately::Offers::default(),
            watch: waiting::Watch::default(),
            lines: together::Lines::default(),
            signed: Mutex::default(),
        })
    }

    #[must_use]
    pub fn rules(&self) -> Rules {
        self.rules
    }

    pub async fn close(&self) {
        self.engine.close().await;
    }

    fn tree_size(&self) -> u64 {
        *self.signed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, size: u64) {
        let mut signed = self.signed.lock().unwrap_or_else(PoisonError::into_inner);
        *signed = size.max(*signed);
    }

    fn ring(&self) -> Arc<KeyRing> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("engine", &self.engine.dialect()).field("rules", &self.rules).finish()
    }
}
