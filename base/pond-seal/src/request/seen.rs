//! The nonces of one worker's requests, each kept until the time of its request can no longer pass. Bounded: a worker that asks too
//! often refuses itself, and no other worker.

use std::collections::BTreeSet;

use super::{RequestFault, RequestNonce};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenNonces {
    /// By the last second at which the request would pass, so that what can be forgotten comes first.
    seen: BTreeSet<(u64, RequestNonce)>,
    most: usize,
}

impl SeenNonces {
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { seen: BTreeSet::new(), most }
    }

    /// The time is part of what was signed, so that a replay brings the same `until` along.
    pub(super) fn admit(&mut self, nonce: RequestNonce, until: u64, now: u64) -> Result<(), RequestFault> {
        self.forget(now);
        if self.seen.contains(&(until, nonce)) {
            return Err(RequestFault::Replayed);
        }
        if self.seen.len() >= self.most {
            return Err(RequestFault::Full);
        }
        self.seen.insert((until, nonce));
        Ok(())
    }

    /// Lets go of what can no longer pass.
    pub fn forget(&mut self, now: u64) {
        while self.seen.first().is_some_and(|(until, _)| *until < now) {
            self.seen.pop_first();
        }
    }

    /// How many are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }
}
