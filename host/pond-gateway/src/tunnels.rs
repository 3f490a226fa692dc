//! How many tunnels a job has open and how many bytes it has moved. Zone: host. Invariants: a slot is given back exactly
//! once, by its guard, however the tunnel ends; what is lent is never taken back, and who finds nothing left of it waits for an
//! answer, which is asked for once for all who wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use pond_wire::gateway::Caps;
use tokio::sync::{Notify, watch};

/// The job's shared counters.
#[derive(Debug)]
pub(crate) struct Tunnels {
    caps: Caps,
    open: AtomicU32,
    opened: AtomicU64,
    moved: AtomicU64,
    loan: Option<Loan>,
}

/// Bytes that are lent, and more of them to be had.
#[derive(Debug)]
struct Loan {
    /// In all, with every answer.
    lent: watch::Sender<u64>,
    /// Somebody waits for an answer.
    asked: AtomicBool,
    ask: Notify,
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
        let loan = caps.lent_bytes.map(|lent| Loan {
            lent: watch::Sender::new(lent),
            asked: AtomicBool::new(false),
            ask: Notify::new(),
        });
        Arc::new(Self { caps, open, opened, moved, loan })
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
        let lent = self.loan.as_ref().map_or(u64::MAX, |loan| *loan.lent.borrow());
        self.caps.total_bytes.min(lent).saturating_sub(self.moved())
    }

    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// The same as [`Self::bytes_left`], once nobody can be asked for more.
    pub(crate) async fn room(&self) -> u64 {
        loop {
            let left = self.bytes_left();
            let Some(loan) = self.loan.as_ref().filter(|_| left == 0 && self.moved() < self.caps.total_bytes)
            else {
                return left;
            };
            let mut answers = loan.lent.subscribe();
            let before = *answers.borrow_and_update();
            if self.bytes_left() > 0 {
                continue;
            }
            if !loan.asked.swap(true, Ordering::Relaxed) {
                loan.ask.notify_one();
            }
            if answers.changed().await.is_err() || *answers.borrow() <= before {
                return self.bytes_left();
            }
        }
    }

    /// Resolves when tunnels wait for more than was lent.
    pub(crate) async fn short(&self) {
        match &self.loan {
            Some(loan) => loan.ask.notified().await,
            None => std::future::pending().await,
        }
    }

    /// The answer: what was lent in all by now. No more than before is a no.
    pub(crate) fn lend(&self, total: u64) {
        let Some(loan) = &self.loan else { return };
        loan.asked.store(false, Ordering::Relaxed);
        loan.lent.send_modify(|lent| *lent = total.max(*lent));
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
        Caps {
            tunnels,
            tunnel_bytes: 10,
            total_bytes: 15,
            lent_bytes: None,
            idle_seconds: 600,
            lifetime_seconds: 3600,
        }
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

    #[tokio::test]
    async fn who_finds_nothing_left_of_a_loan_waits_for_one_answer() {
        let tunnels = Tunnels::new(Caps { lent_bytes: Some(0), ..caps(2) });
        let lender = async {
            let mut asked = 0;
            for total in [4, 4] {
                tunnels.short().await;
                asked += 1;
                tunnels.lend(total);
            }
            asked
        };
        // Both wait for the first answer; who comes too late for it asks again, and is told no.
        let mover = || async {
            let left = tunnels.room().await;
            tunnels.add_moved(left);
            left
        };
        let (one, two, asked) = tokio::join!(mover(), mover(), lender);
        assert_eq!((one + two, one.min(two), asked), (4, 0, 2), "one of them took all of it");
        // What is lent is never taken back, and no loan is more than the job may move.
        tunnels.lend(1);
        assert_eq!(tunnels.bytes_left(), 0);
        tunnels.lend(u64::MAX);
        tunnels.lend(1);
        assert_eq!(tunnels.room().await, 11);
        tunnels.add_moved(11);
        assert_eq!(tunnels.room().await, 0, "nobody is asked any more");
    }
}
