//! What time alone brings about: leases that lapse, stages nobody may take that have waited long enough, idempotency keys that
//! are old, entries of the audit log that are not in its tree yet. On the control plane's clock, a bounded amount of work at a time; several control planes may do it at once.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::api;
use crate::plane::Plane;
use crate::store::{Fault, Moment};

/// How often, and how long what waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    pub every: Duration,
    /// From when no worker that is there may take a stage to its end.
    pub unmatched: Duration,
    /// How long the same idempotency key means the same run.
    pub keys: Duration,
    /// How long a source waits for a run to work on it.
    pub sources: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(1),
            unmatched: Duration::from_secs(3600),
            keys: Duration::from_secs(24 * 3600),
            sources: Duration::from_secs(24 * 3600),
        }
    }
}

/// What one tick did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ticked {
    pub lapsed: usize,
    /// Runs whose time was up.
    pub overdue: usize,
    pub unmatched: u64,
    pub forgotten: u64,
    pub sources: usize,
}

/// Since when this control plane hears its workers. It was away when it was not running, stopped, or on another clock: workers
/// that called then are not to blame for what lapsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hearing {
    since: Moment,
    last: Moment,
}

impl Hearing {
    /// Ticks without which it was away.
    const MISSED: u32 = 5;

    #[must_use]
    pub fn begin(now: Moment) -> Self {
        Self { since: now, last: now }
    }

    #[must_use]
    pub fn since(self) -> Moment {
        self.since
    }

    /// What is known at the next tick.
    #[must_use]
    pub fn at(self, now: Moment, every: Duration) -> Self {
        let was_away = now < self.last || now > self.last.plus(every * Self::MISSED);
        Self { since: if was_away { now } else { self.since }, last: now }
    }
}

/// Ticks for as long as it is polled. A store that does not answer is told to `report`, and asked again at the next tick.
pub async fn run(plane: Arc<Plane>, pace: Pace, report: impl Fn(&(dyn Error + 'static))) {
    let mut ticks = interval(pace.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut hearing = Hearing::begin(plane.now());
    loop {
        ticks.tick().await;
        let now = plane.now();
        hearing = hearing.at(now, pace.every);
        if let Err(fault) = tick(&plane, pace, hearing.since, now).await {
            report(&fault);
            // Who calls while the store does not answer is not heard either.
            hearing = Hearing::begin(plane.now());
        }
        if let Err(fault) = plane.store.grow_tree(&plane.key).await {
            report(&fault);
        }
        if let Err(fault) = api::renew_vault(&plane) {
            report(&fault);
        }
    }
}

/// One round of a control plane that hears its workers since then.
pub async fn tick(plane: &Plane, pace: Pace, since: Moment, now: Moment) -> Result<Ticked, Fault> {
    if since == now {
        plane.store.shorten_leases(now).await?;
    }
    let ticked = Ticked {
        lapsed: plane.store.expire_heard(since, now).await?.len(),
        overdue: plane.store.end_overdue(now).await?,
        unmatched: plane.store.end_unmatched(pace.unmatched, since, now).await?,
        forgotten: plane.store.forget_keys(now.minus(pace.keys)).await?,
        sources: api::forget_unused(plane, now.minus(pace.sources)).await?,
    };
    if ticked.lapsed > 0 || ticked.overdue > 0 || ticked.unmatched > 0 {
        plane.bell.ring();
    }
    Ok(ticked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stood_still_or_changed_clocks_was_away() {
        let (every, start) = (Duration::from_secs(1), Moment(100_000));
        let hearing = Hearing::begin(start).at(Moment(101_000), every).at(Moment(106_000), every);
        assert_eq!(hearing, Hearing { since: start, last: Moment(106_000) }, "late, but there");
        for back in [Moment(111_001), Moment(105_999)] {
            assert_eq!(hearing.at(back, every), Hearing { since: back, last: back });
        }
    }
}
