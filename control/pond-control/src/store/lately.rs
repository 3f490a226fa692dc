//! What was read a moment ago and is asked for all the time: which classes have something queued, who the workers are, and what the
//! leases are about that were given out here.
//!
//! Invariants: nothing here decides alone. A job is taken and a lease is compared by statements that look at the rows themselves; what
//! is remembered is forgotten at once when this process changes it, and after [`FRESH`] anyway, because others may share the store.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::held::Held;
use super::id::{JobId, WorkerId};
use super::lease::Lease;
use super::worker::WorkerView;

/// As long as whoever waits for the bell goes without looking.
const FRESH: Duration = Duration::from_millis(500);
/// What order of classes is old.
const HEADS: Duration = Duration::from_millis(20);
/// Workers that are remembered.
const MOST_WORKERS: usize = 4096;
/// Leases that are remembered.
const MOST_LEASES: usize = 1024;

/// The workers that called lately.
#[derive(Debug, Default)]
pub(super) struct Workers(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    /// How often something was forgotten: what was read before that is not kept.
    changes: u64,
    workers: HashMap<WorkerId, (WorkerView, Instant)>,
}

impl Workers {
    pub(super) fn get(&self, id: &WorkerId) -> Option<WorkerView> {
        let remembered = self.lock();
        remembered.workers.get(id).filter(|(_, since)| since.elapsed() < FRESH).map(|(view, _)| view.clone())
    }

    /// Which state of affairs somebody who reads now will see.
    pub(super) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Remembers what was read when there had been so many changes.
    pub(super) fn keep(&self, changes: u64, view: &WorkerView) {
        let mut remembered = self.lock();
        if remembered.changes != changes {
            return;
        }
        if remembered.workers.len() >= MOST_WORKERS {
            remembered.workers.clear();
        }
        remembered.workers.insert(view.id.clone(), (view.clone(), Instant::now()));
    }

    /// Something about a worker was changed.
    pub(super) fn forget(&self) {
        let mut remembered = self.lock();
        remembered.changes += 1;
        remembered.workers.clear();
    }

    /// Something about this one was changed, and about nobody else.
    pub(super) fn forget_one(&self, id: &WorkerId) {
        let mut remembered = self.lock();
        remembered.changes += 1;
        remembered.workers.remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The classes that had something queued, the one that waited longest first.
#[derive(Debug, Default)]
pub(super) struct Heads(Mutex<Option<(Vec<i64>, Instant)>>);

impl Heads {
    pub(super) fn lately(&self) -> Option<Vec<i64>> {
        let heads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heads.as_ref().filter(|(_, asked)| asked.elapsed() < HEADS).map(|(heads, _)| heads.clone())
    }

    /// Their age counts from before they were asked for.
    pub(super) fn keep(&self, asked: Instant, heads: Vec<i64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((heads, asked));
    }
}

/// What leases are about that were offered by this process.
#[derive(Debug, Default)]
pub(super) struct Offers(Mutex<HashMap<JobId, (Lease, Held)>>);

impl Offers {
    pub(super) fn get(&self, lease: &Lease) -> Option<Held> {
        let offers = self.lock();
        offers.get(&lease.job).filter(|(held, _)| held == lease).map(|(_, held)| held.clone())
    }

    pub(super) fn keep(&self, lease: &Lease, held: Held) {
        let mut offers = self.lock();
        if offers.len() >= MOST_LEASES {
            offers.clear();
        }
        offers.insert(lease.job.clone(), (lease.clone(), held));
    }

    /// It is over.
    pub(super) fn forget(&self, lease: &Lease) {
        self.lock().remove(&lease.job);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, (Lease, Held)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
