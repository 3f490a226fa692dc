//! How many tunnels a job has open and how many bytes it has moved, counted by both threads at once. Zone: host. Invariants: a
//! slot is given back exactly once, by its guard, however the tunnel ends; no byte is moved that was not claimed before, in one
//! atomic step, so that nobody takes what another has taken; what is lent is never taken back, and who finds nothing left of
//! it waits for an answer, which is asked for once for all who wait.

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
    /// What was moved, and what somebody is about to move.
    claimed: AtomicU64,
    loan: Option<Loan>,
}

/// Leave to move so many bytes. It is held for one system call; what was not moved by then is anybody's again.
#[derive(Debug)]
pub(crate) struct Claim<'t> {
    tunnels: &'t Tunnels,
    bytes: u64,
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
        let loan = caps.lent_bytes.map(|lent| Loan {
            lent: watch::Sender::new(lent),
            asked: AtomicBool::new(false),
            ask: Notify::new(),
        });
        Arc::new(Self {
            caps,
            open: AtomicU32::new(0),
            opened: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            claimed: AtomicU64::new(0),
            loan,
        })
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

    /// What all tunnels together may move by now.
    fn most(&self) -> u64 {
        let lent = self.loan.as_ref().map_or(u64::MAX, |loan| *loan.lent.borrow());
        self.caps.total_bytes.min(lent)
    }

    /// What they have not moved of it. Others may be about to: only a claim is leave.
    pub(crate) fn bytes_left(&self) -> u64 {
        self.most().saturating_sub(self.moved())
    }

    /// Leave to move at most `wanted` bytes, if any are left that nobody claims.
    pub(crate) fn claim_now(&self, wanted: u64) -> Option<Claim<'_>> {
        let most = self.most();
        let granted = |claimed: u64| {
            Some(most.saturating_sub(claimed)).filter(|left| *left > 0).map(|left| left.min(wanted))
        };
        let more = |claimed: u64| granted(claimed).map(|bytes| claimed + bytes);
        let before = self.claimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        granted(before).map(|bytes| Claim { tunnels: self, bytes })
    }

    /// The same, once nobody can be asked for more; `None` then.
    pub(crate) async fn claim_bytes(&self, wanted: u64) -> Option<Claim<'_>> {
        loop {
            if let Some(claim) = self.claim_now(wanted) {
                return Some(claim);
            }
            if self.room().await == 0 {
                return None;
            }
            // The other thread has claimed the last bytes and will know in a moment how many of them it moves.
            tokio::task::yield_now().await;
        }
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
            if !loan.asked.swap(true, Ordering::AcqRel) {
                loan.ask.notify_one();
            }
            if answers.changed().await.is_err() || *answers.borrow() <= before {
                return self.bytes_left();
            }
        }
    }

    /// Resolves when tunnels wait for more than was lent.
    pub(crate) async fn short(&self) {
        let Some(loan) = &self.loan else { return std::future::pending().await };
        loop {
            loan.ask.notified().await;
            // The answer may have come while the question was being asked, by the other thread. It woke whoever waits for it; who
            // finds nothing after it asks anew.
            loan.asked.swap(false, Ordering::AcqRel);
            if self.bytes_left() == 0 {
                loan.asked.store(true, Ordering::Release);
                return;
            }
        }
    }

    /// The answer: what was lent in all by now. No more than before is a no.
    pub(crate) fn lend(&self, total: u64) {
        let Some(loan) = &self.loan else { return };
        loan.asked.store(false, Ordering::Release);
        loan.lent.send_modify(|lent| *lent = total.max(*lent));
    }
}

impl Claim<'_> {
    /// How many; nobody asks for more than a buffer holds.
    pub(crate) fn size(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    /// Gives back what is more than `most`.
    pub(crate) fn at_most(mut self, most: u64) -> Self {
        self.keep(self.bytes.min(most));
        self
    }

    /// So many of them were moved.
    pub(crate) fn moved(mut self, bytes: u64) {
        self.tunnels.moved.fetch_add(bytes, Ordering::Relaxed);
        self.keep(bytes);
        self.bytes = 0;
    }

    fn keep(&mut self, bytes: u64) {
        self.tunnels.claimed.fetch_sub(self.bytes.saturating_sub(bytes), Ordering::Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.keep(0);
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

    fn as_u64(size: usize) -> u64 {
        u64::try_from(size).unwrap()
    }

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
        let claim = tunnels.claim_now(20).unwrap();
        assert_eq!(
            (as_u64(claim.size()), tunnels.bytes_left(), tunnels.claim_now(1).is_none()),
            (15, 15, true)
        );
        claim.moved(12);
        assert_eq!(tunnels.bytes_left(), 3);
        drop(tunnels.claim_now(3));
        let claim = tunnels.claim_now(20).map(|claim| claim.at_most(2)).unwrap();
        assert_eq!(
            (as_u64(claim.size()), tunnels.claim_now(20).map(|rest| as_u64(rest.size()))),
            (2, Some(1))
        );
        claim.moved(2);
        tunnels.claim_now(20).unwrap().moved(1);
        assert_eq!((tunnels.moved(), tunnels.bytes_left(), tunnels.claim_now(0).is_none()), (15, 0, true));
    }

    /// Threads that move a few bytes each time, fewer than they claimed, as a socket gives them.
    #[test]
    fn threads_at_the_edge_of_an_allowance_move_all_of_it_and_not_a_byte_more() {
        const TOTAL: u64 = 100_003;
        let tunnels = Tunnels::new(Caps { total_bytes: TOTAL, ..caps(2) });
        let mover = |wanted: u64| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let mut moved = 0;
                while let Some(claim) = tunnels.claim_bytes(wanted).await {
                    let part = as_u64(claim.size()).div_ceil(2);
                    std::thread::yield_now();
                    claim.moved(part);
                    moved += part;
                }
                moved
            })
        };
        let moved: Vec<u64> = std::thread::scope(|scope| {
            let movers = [7, 64, 1000, 50_000].map(|wanted| scope.spawn(move || mover(wanted)));
            movers.map(|mover| mover.join().unwrap()).into()
        });
        assert_eq!((moved.iter().sum::<u64>(), tunnels.moved(), tunnels.bytes_left()), (TOTAL, TOTAL, 0));
    }

    #[test]
    fn threads_at_the_cap_never_hold_more_slots_than_there_are_and_no_number_twice() {
        let tunnels = Tunnels::new(caps(3));
        let opener = || {
            let mut numbers = Vec::new();
            for _ in 0..5_000 {
                let slot = tunnels.claim();
                assert!(tunnels.open() <= 3);
                numbers.extend(slot.as_ref().map(Slot::number));
                std::thread::yield_now();
            }
            numbers
        };
        let mut numbers: Vec<u64> = std::thread::scope(|scope| {
            let openers = [(); 4].map(|()| scope.spawn(opener));
            openers.map(|opener| opener.join().unwrap()).concat()
        });
        numbers.sort_unstable();
        let expected: Vec<u64> = (0..u64::try_from(numbers.len()).unwrap()).collect();
        assert_eq!((numbers, tunnels.open()), (expected, 0));
    }

    /// The other thread asks at the moment at which the answer comes.
    #[tokio::test]
    async fn a_question_that_was_answered_meanwhile_is_not_asked() {
        let tunnels = Tunnels::new(Caps { lent_bytes: Some(0), ..caps(2) });
        let loan = tunnels.loan.as_ref().unwrap();
        let asked = async || {
            tokio::time::timeout(std::time::Duration::from_millis(20), tunnels.short()).await.is_ok()
        };
        let late = || {
            loan.asked.store(true, Ordering::Relaxed);
            loan.ask.notify_one();
        };
        tunnels.lend(4);
        late();
        assert!(!asked().await);
        tunnels.claim_now(4).unwrap().moved(4);
        late();
        assert!(asked().await, "there is nothing left by now");
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
            let Some(claim) = tunnels.claim_bytes(u64::MAX >> 1).await else { return 0 };
            let left = as_u64(claim.size());
            claim.moved(left);
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
        tunnels.claim_now(11).unwrap().moved(11);
        assert_eq!(tunnels.room().await, 0, "nobody is asked any more");
    }
}
