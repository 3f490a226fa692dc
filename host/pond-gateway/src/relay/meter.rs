//! What one tunnel has moved, when it last did and what it may still move.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pond_wire::gateway::Close;

use crate::tunnels::{Claim, Tunnels};

/// The counters of one tunnel.
#[derive(Debug)]
pub(crate) struct Meter {
    tunnels: Arc<Tunnels>,
    started: Instant,
    up: AtomicU64,
    down: AtomicU64,
    /// Milliseconds after `started`.
    last_moved: AtomicU64,
    half_closed: AtomicBool,
}

/// Bytes each way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) up: u64,
    pub(crate) down: u64,
}

/// Where a direction's bytes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Upstream,
}

/// One direction's view of the meter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow<'a> {
    meter: &'a Meter,
    source: Side,
}

impl Meter {
    pub(crate) fn new(tunnels: &Arc<Tunnels>) -> Self {
        Self {
            tunnels: Arc::clone(tunnels),
            started: Instant::now(),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            last_moved: AtomicU64::new(0),
            half_closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn moved(&self) -> Moved {
        Moved { up: self.up.load(Ordering::Relaxed), down: self.down.load(Ordering::Relaxed) }
    }

    /// What this tunnel may still move, as far as itself is concerned.
    fn tunnel_left(&self) -> Result<u64, Close> {
        let Moved { up, down } = self.moved();
        match self.tunnels.caps().tunnel_bytes.saturating_sub(up.saturating_add(down)) {
            0 => Err(Close::TunnelBytes),
            left => Ok(left),
        }
    }

    /// What it may still move, where nobody is asked for more.
    pub(crate) fn room_now(&self) -> Result<u64, Close> {
        match (self.tunnel_left()?, self.tunnels.bytes_left()) {
            (_, 0) => Err(Close::TotalBytes),
            (tunnel, total) => Ok(tunnel.min(total)),
        }
    }

    /// Leave to move some of `wanted`, where nobody is asked for more; `None` while others claim all that is left.
    pub(super) fn claim_now(&self, wanted: usize) -> Result<Option<Claim<'_>>, Close> {
        let room = self.room_now()?;
        Ok(self.tunnels.claim_now(as_u64(wanted).min(room)))
    }

    pub(crate) fn age_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn half_closed(&self) -> bool {
        self.half_closed.load(Ordering::Relaxed)
    }

    pub(super) fn idle(&self) -> Duration {
        Duration::from_secs(self.tunnels.caps().idle_seconds.into())
    }

    pub(super) fn quiet_for(&self) -> Duration {
        Duration::from_millis(self.age_ms().saturating_sub(self.last_moved.load(Ordering::Relaxed)))
    }

    pub(super) fn life_left(&self) -> Duration {
        let life = Duration::from_secs(self.tunnels.caps().lifetime_seconds.into());
        life.saturating_sub(self.started.elapsed())
    }
}

impl<'a> Flow<'a> {
    pub(super) fn new(meter: &'a Meter, source: Side) -> Self {
        Self { meter, source }
    }

    pub(super) fn moved(self) -> u64 {
        match self.source {
            Side::Client => self.meter.moved().up,
            Side::Upstream => self.meter.moved().down,
        }
    }

    /// Leave to move some of `wanted`, never none. Nothing is waited for while it is held: others need what it leaves.
    pub(super) async fn claim(self, wanted: usize) -> Result<Claim<'a>, Close> {
        let claim = self.meter.tunnels.claim_bytes(as_u64(wanted)).await;
        // The tunnel's own part is looked at last: its other direction moved on while this one waited.
        let tunnel = self.meter.tunnel_left()?;
        claim.map(|claim| claim.at_most(tunnel)).ok_or(Close::TotalBytes)
    }

    /// Counts what was moved by this leave.
    pub(super) fn moves(self, claim: Claim<'_>, count: usize) {
        let count = as_u64(count);
        let counter = match self.source {
            Side::Client => &self.meter.up,
            Side::Upstream => &self.meter.down,
        };
        counter.fetch_add(count, Ordering::Relaxed);
        claim.moved(count);
        self.meter.last_moved.store(self.meter.age_ms(), Ordering::Relaxed);
    }

    /// This direction is done; says whether the other one was before.
    pub(super) fn end(self) -> bool {
        let last = self.meter.half_closed.swap(true, Ordering::Relaxed);
        self.meter.last_moved.store(self.meter.age_ms(), Ordering::Relaxed);
        last
    }

    pub(super) fn source_lost(self) -> Close {
        match self.source {
            Side::Client => Close::ClientReset,
            Side::Upstream => Close::UpstreamReset,
        }
    }

    pub(super) fn sink_lost(self) -> Close {
        match self.source {
            Side::Client => Close::UpstreamReset,
            Side::Upstream => Close::ClientReset,
        }
    }
}

fn as_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pond_wire::gateway::Caps;

    /// How much leave there is.
    async fn left(flow: Flow<'_>, wanted: usize) -> Result<u64, Close> {
        flow.claim(wanted).await.map(|claim| u64::try_from(claim.size()).unwrap())
    }

    async fn moves(flow: Flow<'_>, count: usize) {
        flow.moves(flow.claim(count).await.unwrap(), count);
    }

    #[tokio::test]
    async fn c80_both_directions_count_and_so_do_all_tunnels() {
        let tunnels = Tunnels::new(Caps {
            tunnels: 2,
            tunnel_bytes: 10,
            total_bytes: 15,
            lent_bytes: None,
            idle_seconds: 600,
            lifetime_seconds: 3600,
        });
        let (one, two) = (Meter::new(&tunnels), Meter::new(&tunnels));
        let (up, down) = (Flow::new(&one, Side::Client), Flow::new(&one, Side::Upstream));
        assert_eq!((left(up, 100).await, left(up, 3).await), (Ok(10), Ok(3)));
        moves(up, 6).await;
        moves(down, 3).await;
        let both = (left(up, 100).await, left(down, 100).await, one.room_now());
        assert_eq!(both, (Ok(1), Ok(1), Ok(1)));
        moves(down, 1).await;
        let full = Close::TunnelBytes;
        assert_eq!((left(up, 1).await, one.room_now()), (Err(full), Err(full)));
        let other = Flow::new(&two, Side::Client);
        assert_eq!((left(other, 100).await, two.room_now()), (Ok(5), Ok(5)));
        moves(other, 5).await;
        let full = Close::TotalBytes;
        assert_eq!((left(other, 1).await, two.room_now()), (Err(full), Err(full)));
        assert_eq!(one.moved(), Moved { up: 6, down: 4 });
    }
}
