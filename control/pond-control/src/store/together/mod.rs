//! The ordinary course of workers' calls, several of one kind at once: what arrives while others are under way shares a transaction
//! with whatever else did. On Postgres that is one statement, on SQLite a few, however many calls there are.
//!
//! What is out of the ordinary gets no answer here, and nothing was changed for it: its caller goes the long way, which decides. A
//! worker that says something twice at once is answered once from here, and once of it alone. What every call looks up is looked up
//! for all of them in the same way.

mod postgres;
mod sqlite;

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use super::Store;
use super::dialect::Dialect;
use super::engine::{Fault, Row};
use super::gather::Gather;
use super::held::Held;
use super::id::{JobId, Moment, WorkerId};
use super::lease::{Lease, Renewed};
use super::worker::WorkerView;

/// Larger pieces go alone: whoever asks for others holds a copy of what they bring.
pub(super) const MOST_PIECE: usize = 16 << 10;

/// A line for each kind of call.
#[derive(Debug, Default)]
pub(super) struct Lines {
    taking: Gather<Take, Taken>,
    starting: Gather<Start, Renewed>,
    appending: Gather<Piece, bool>,
    finishing: Gather<Finish, ()>,
    knowing: Gather<WorkerId, WorkerView>,
    heads: Gather<(), Vec<i64>>,
}

/// An active worker asks for the oldest job of a class.
#[derive(Debug)]
pub(super) struct Take {
    pub(super) class: i64,
    pub(super) project: String,
    pub(super) worker: WorkerId,
    /// Of its keys: who changed them meanwhile is somebody else.
    pub(super) generation: u64,
    pub(super) until: Moment,
    pub(super) now: Moment,
}

#[derive(Debug)]
pub(super) struct Taken {
    pub(super) job: JobId,
    pub(super) epoch: u64,
    pub(super) held: Held,
}

#[derive(Debug)]
pub(super) struct Start {
    pub(super) lease: Lease,
    pub(super) until: Moment,
    /// What comes on top of the stage's time limit.
    pub(super) grace: Moment,
    pub(super) now: Moment,
}

/// The first piece of a stream.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) lease: Lease,
    pub(super) stream: &'static str,
    /// Whether it counts as a result's, or as output.
    pub(super) of_result: bool,
    pub(super) size: u64,
    pub(super) chain: [u8; 32],
    pub(super) bytes: Vec<u8>,
}

/// The end of a job that was all that was left of its run.
#[derive(Debug)]
pub(super) struct Finish {
    pub(super) lease: Lease,
    pub(super) digest: [u8; 32],
    pub(super) envelope: Vec<u8>,
    /// All that it sent, if that came with its end: then it has sent nothing before.
    pub(super) piece: Option<Piece>,
    pub(super) now: Moment,
    /// What is told of the result, the stage and the run.
    pub(super) told: [String; 3],
}

impl Store {
    pub(super) async fn take_together(&self, take: Take) -> Option<Taken> {
        let together = async |all: &[Take]| {
            // Most wait for the same; who waits for something else asks alone.
            let class = all.first().map(|one| one.class);
            let some = firsts(all, |one| (Some(one.class) == class).then_some(&one.worker));
            let found = match self.engine.dialect() {
                Dialect::Postgres => postgres::take(&self.engine, &some).await,
                Dialect::Sqlite => sqlite::take(&self.engine, &some).await,
            };
            answers(all, found, |one| &one.worker)
        };
        self.lines.taking.ask(take, together).await
    }

    pub(super) async fn start_together(&self, start: Start) -> Option<Renewed> {
        let together = async |all: &[Start]| {
            let some = firsts(all, |one| Some(&one.lease.job));
            let found = match self.engine.dialect() {
                Dialect::Postgres => postgres::start(&self.engine, &some).await,
                Dialect::Sqlite => sqlite::start(&self.engine, &some).await,
            };
            answers(all, found, |one| &one.lease.job)
        };
        self.lines.starting.ask(start, together).await
    }

    /// Whether the job is to be stopped, if the piece was stored.
    pub(super) async fn append_together(&self, piece: Piece) -> Option<bool> {
        let together = async |all: &[Piece]| {
            let stream = all.first().map(|one| one.stream);
            let some = firsts(all, |one| (Some(one.stream) == stream).then_some(&one.lease.job));
            let found = match self.engine.dialect() {
                Dialect::Postgres => postgres::append(&self.engine, &some).await,
                Dialect::Sqlite => sqlite::append(&self.engine, &some).await,
            };
            answers(all, found, |one| &one.lease.job)
        };
        self.lines.appending.ask(piece, together).await
    }

    /// Whether it is over.
    pub(super) async fn finish_together(&self, finish: Finish) -> bool {
        let together = async |all: &[Finish]| {
            let some = firsts(all, |one| Some(&one.lease.job));
            let found = match self.engine.dialect() {
                Dialect::Postgres => postgres::finish(&self.engine, &some).await,
                Dialect::Sqlite => sqlite::finish(&self.engine, &some).await,
            };
            answers(all, found, |one| &one.lease.job)
        };
        self.lines.finishing.ask(finish, together).await.is_some()
    }
}

/// What is only read. Whoever asks hears of a moment after it asked, as if it had asked alone.
impl Store {
    pub(super) async fn know_together(&self, id: WorkerId) -> Option<WorkerView> {
        let together = async |all: &[WorkerId]| {
            let found = self.workers_named(&firsts(all, |one| Some(one))).await;
            answers(all, found, |one| one)
        };
        self.lines.knowing.ask(id, together).await
    }

    pub(super) async fn heads_together(&self) -> Option<Vec<i64>> {
        let together = async |all: &[()]| {
            // Without an answer each asks for itself, and hears of the fault.
            let heads = self.queue_heads().await.ok();
            all.iter().map(|()| heads.clone()).collect()
        };
        self.lines.heads.ask((), together).await
    }
}

/// Those with a key, and of each key the first.
fn firsts<Q, K: Hash + Eq>(all: &[Q], key: impl Fn(&Q) -> Option<&K>) -> Vec<&Q> {
    let mut seen = HashSet::new();
    all.iter().filter(|one| key(one).is_some_and(|key| seen.insert(key))).collect()
}

/// One for each question, in their order. Where the transaction failed there are none: whoever asked asks alone, and hears why.
fn answers<Q, K: Hash + Eq, A>(
    all: &[Q],
    found: Result<HashMap<K, A>, Fault>,
    key: impl Fn(&Q) -> &K,
) -> Vec<Option<A>> {
    let mut found = found.unwrap_or_default();
    all.iter().map(|one| found.remove(key(one))).collect()
}

impl Taken {
    fn read(row: &Row) -> Result<Self, Fault> {
        Ok(Self { job: row.read("id", JobId::parse)?, epoch: row.count("epoch")?, held: Held::read(row)? })
    }
}
