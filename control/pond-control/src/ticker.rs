//! What time alone brings about: leases that lapse, stages nobody may take that have waited long enough, idempotency keys that
//! are old. On the control plane's clock, a bounded amount of work at a time; several control planes may do it at once.

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
    /// From being queued to the end of a stage that no worker may take.
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

/// Ticks for as long as it is polled. A store that does not answer is told to `report`, and asked again at the next tick.
pub async fn run(plane: Arc<Plane>, pace: Pace, report: impl Fn(&Fault)) {
    let mut ticks = interval(pace.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(fault) = tick(&plane, pace, plane.now()).await {
            report(&fault);
        }
    }
}

/// One round.
pub async fn tick(plane: &Plane, pace: Pace, now: Moment) -> Result<Ticked, Fault> {
    let ticked = Ticked {
        lapsed: plane.store.expire(now).await?.len(),
        overdue: plane.store.end_overdue(now).await?,
        unmatched: plane.store.end_unmatched(now.minus(pace.unmatched), now).await?,
        forgotten: plane.store.forget_keys(now.minus(pace.keys)).await?,
        sources: api::forget_unused(plane, now.minus(pace.sources)).await?,
    };
    if ticked.lapsed > 0 || ticked.overdue > 0 || ticked.unmatched > 0 {
        plane.bell.ring();
    }
    Ok(ticked)
}
