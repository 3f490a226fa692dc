//! What one tunnel has moved, when it last did and what it may still move.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pond_wire::gateway::Close;

use crate::tunnels::Tunnels;

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

    /// What it may still move, where nobody is asked for more.
    pub(crate) fn room_now(&self) -> Result<u64, Close> {
        let Moved { up, down } = self.moved();
        match self.tunnels.caps().tunnel_bytes.saturating_sub(up.saturating_add(down)) {
            0 => Err(Close::TunnelBytes),
            tunnel => match self.tunnels.bytes_left() {
                0 => Err(Close::TotalBytes),
                total => Ok(tunnel.min(total)),
            },
        }
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

    /// How much of `wanted` may be read now; never zero. It holds until the caller waits for something: others take as well.
    pub(super) async fn allowance(self, wanted: usize) -> Result<usize, Close> {
        let total = self.meter.tunnels.room().await;
        let Moved { up, down } = self.meter.moved();
        let tunnel = self.meter.tunnels.caps().tunnel_bytes.saturating_sub(up.saturating_add(down));
        match (tunnel, total) {
            (0, _) => Err(Close::TunnelBytes),
            (_, 0) => Err(Close::TotalBytes),
            (tunnel, total) => Ok(usize::try_from(tunnel.min(total)).unwrap_or(usize::MAX).min(wanted)),
        }
    }

    pub(super) fn add(self, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let counter = match self.source {
            Side::Client => &self.meter.up,
            Side::Upstream => &self.meter.down,
        };
        counter.fetch_add(count, Ordering::Relaxed);
        self.meter.tunnels.add_moved(count);
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

#[cfg(test)]
mod tests {
    use super::*;
    use pond_wire::gateway::Caps;

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
        assert_eq!((up.allowance(100).await, up.allowance(3).await), (Ok(10), Ok(3)));
        up.add(6);
        down.add(3);
        let left = (up.allowance(100).await, down.allowance(100).await, one.room_now());
        assert_eq!(left, (Ok(1), Ok(1), Ok(1)));
        down.add(1);
        let full = Close::TunnelBytes;
        assert_eq!((up.allowance(1).await, one.room_now()), (Err(full), Err(full)));
        let other = Flow::new(&two, Side::Client);
        assert_eq!((other.allowance(100).await, two.room_now()), (Ok(5), Ok(5)));
        other.add(5);
        let full = Close::TotalBytes;
        assert_eq!((other.allowance(1).await, two.room_now()), (Err(full), Err(full)));
        assert_eq!(one.moved(), Moved { up: 6, down: 4 });
    }
}
