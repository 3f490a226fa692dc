//! How many tunnels a job has open and how many bytes it has moved. Zone: host. Invariant: a slot is given back exactly
//! once, by its guard, however the tunnel ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use pond_wire::gateway::Caps;

/// The job's shared counters.
#[derive(Debug)]
pub(crate) struct Tunnels {
    caps: Caps,
    open: AtomicU32,
    opened: AtomicU64,
    moved: AtomicU64,
}

/// One tunnel's place; dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Slot {
    tunnels: Arc<Tunnels>,
    number: u64,
}

impl Tunnels {
    pub(crate) fn new(caps: Caps) -> Arc<Self> {
        let (open, opened, moved) = (AtomicU32::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { caps, open, opened, moved })
    }

    pub(crate) fn caps(&self) -> &Caps {
        &self.caps
    }

    pub(crate) fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// A place for one more tunnel, when there is one.
    pub(crate) fn claim(self: &Arc<Self>) -> Option<Slot> {
        let more = |open: u32| (open < self.caps.tunnels).then_some(open + 1);
        self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Slot { tunnels: Arc::clone(self), number: self.opened.fetch_add(1, Ordering::Relaxed) })
    }

    /// What all tunnels together may still move.
    pub(crate) fn bytes_left(&self) -> u64 {
        self.caps.total_bytes.saturating_sub(self.moved.load(Ordering::Relaxed))
    }

    pub(crate) fn add_moved(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Slot {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn tunnels(&self) -> &Arc<Tunnels> {
        &self.tunnels
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.tunnels.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    //! Slots are counted exactly.
    use super::*;

    pub(crate) fn caps(tunnels: u32) -> Caps {
        Caps { tunnels, tunnel_bytes: 10, total_bytes: 15, idle_seconds: 600, lifetime_seconds: 3600 }
    }

    #[test]
    fn c84_the_next_tunnel_over_the_cap_gets_no_slot() {
        let tunnels = Tunnels::new(caps(2));
        let held = [tunnels.claim(), tunnels.claim()];
        assert_eq!(held.each_ref().map(|slot| slot.as_ref().map(Slot::number)), [Some(0), Some(1)]);
        assert!(tunnels.claim().is_none());
        drop(held);
        assert_eq!((tunnels.open(), tunnels.claim().map(|slot| slot.number())), (0, Some(2)));
    }

    #[test]
    fn c82_a_slot_is_released_once_also_when_its_tunnel_panics() {
        let tunnels = Tunnels::new(caps(2));
        let slot = tunnels.claim();
        let kept = tunnels.claim();
        let panicked = std::thread::spawn(move || {
            let _slot = slot;
            std::panic::resume_unwind(Box::new("a tunnel went wrong"));
        });
        assert!(panicked.join().is_err());
        assert_eq!(tunnels.open(), 1);
        drop(kept);
        assert_eq!(tunnels.open(), 0);
    }

    #[test]
    fn c80_bytes_are_shared_by_all_tunnels() {
        let tunnels = Tunnels::new(caps(2));
        assert_eq!(tunnels.bytes_left(), 15);
        tunnels.add_moved(14);
        assert_eq!(tunnels.bytes_left(), 1);
        tunnels.add_moved(2);
        assert_eq!(tunnels.bytes_left(), 0);
    }
}
