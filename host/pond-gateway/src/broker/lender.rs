//! A ceiling that is a part of a larger one: who to ask when a call does not fit under it.
//!
//! Invariants: calls ask one after the other, each with what the ones before it took; a lender who does not answer in time has
//! said no.

use std::sync::Arc;
use std::time::Duration;

use pond_policy::model::Microcents;
use tokio::sync::{Mutex, MutexGuard, watch};

/// How long a call waits for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the ceiling would have to be: for less than `least` the call is refused, more than `most` it cannot use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Short {
    pub least: Microcents,
    pub most: Microcents,
}

/// Hands a question on; the answer comes as a new ceiling.
pub type Ask = Arc<dyn Fn(Short) + Send + Sync>;

pub(super) struct Lender {
    ask: Ask,
    turn: Mutex<()>,
    answered: watch::Sender<()>,
}

impl Lender {
    pub(super) fn new(ask: Ask) -> Self {
        Self { ask, turn: Mutex::new(()), answered: watch::Sender::new(()) }
    }

    /// While this is held nobody else asks.
    pub(super) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    pub(super) fn answer(&self) {
        self.answered.send_replace(());
    }

    /// Returns when there was an answer, whatever it was, or when it is time to go on without one.
    pub(super) async fn ask(&self, short: Short) {
        let mut answered = self.answered.subscribe();
        (self.ask)(short);
        if let Err(_too_late) = tokio::time::timeout(PATIENCE, answered.changed()).await {}
    }
}
