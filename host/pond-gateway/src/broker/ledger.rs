//! The ceiling: money is set aside before a call and settled after it, under one lock, so that no number of parallel calls
//! can spend more than there is. A reservation that is dropped unsettled is spent whole: an accident must not be free.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pond_policy::model::Microcents;
use thiserror::Error;

/// The call does not fit under what is left of the ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the cost ceiling of {ceiling} does not cover this request: {spent} spent, {reserved} set aside")]
pub struct Exhausted {
    pub ceiling: Microcents,
    pub spent: Microcents,
    pub reserved: Microcents,
}

/// What a job has spent and may still spend.
#[derive(Debug)]
pub struct Ledger(Mutex<Standing>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub ceiling: Microcents,
    pub spent: Microcents,
    pub reserved: Microcents,
}

/// Money set aside for one call.
#[derive(Debug)]
#[must_use = "a reservation that is dropped is spent"]
pub struct Reservation {
    ledger: Arc<Ledger>,
    held: Microcents,
}

impl Standing {
    pub(super) fn free(&self) -> Microcents {
        self.ceiling.minus(self.spent).minus(self.reserved)
    }

    fn exhausted(&self) -> Exhausted {
        Exhausted { ceiling: self.ceiling, spent: self.spent, reserved: self.reserved }
    }

    fn take(&mut self, amount: Microcents) -> Result<(), Exhausted> {
        if amount > self.free() {
            return Err(self.exhausted());
        }
        self.reserved = self.reserved.plus(amount);
        Ok(())
    }
}

impl Ledger {
    pub fn new(ceiling: Microcents) -> Arc<Self> {
        let standing = Standing { ceiling, spent: Microcents(0), reserved: Microcents(0) };
        Arc::new(Self(Mutex::new(standing)))
    }

    pub fn standing(&self) -> Standing {
        *self.lock()
    }

    /// A higher ceiling. A lower one would be below what is promised already, and changes nothing.
    pub fn raise(&self, ceiling: Microcents) {
        let mut standing = self.lock();
        standing.ceiling = standing.ceiling.max(ceiling);
    }

    pub fn reserve(self: &Arc<Self>, amount: Microcents) -> Result<Reservation, Exhausted> {
        self.reserve_within(amount, amount)
    }

    /// Sets aside as much as is free, at most `most`; fails if that is less than `least`.
    pub fn reserve_within(
        self: &Arc<Self>,
        least: Microcents,
        most: Microcents,
    ) -> Result<Reservation, Exhausted> {
        let mut standing = self.lock();
        let held = most.min(standing.free()).max(least);
        standing.take(held)?;
        Ok(Reservation { ledger: Arc::clone(self), held })
    }

    /// The figures are whole after every statement, so a panic elsewhere leaves them true.
    fn lock(&self) -> MutexGuard<'_, Standing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    pub fn held(&self) -> Microcents {
        self.held
    }

    /// Makes sure that at least `amount` is set aside.
    pub fn grow_to(&mut self, amount: Microcents) -> Result<(), Exhausted> {
        let more = amount.minus(self.held);
        self.ledger.lock().take(more)?;
        self.held = self.held.plus(more);
        Ok(())
    }

    /// Gives back what is held above `amount`.
    pub fn shrink_to(&mut self, amount: Microcents) {
        let less = self.held.minus(amount);
        let mut standing = self.ledger.lock();
        standing.reserved = standing.reserved.minus(less);
        self.held = self.held.minus(less);
    }

    /// Ends the reservation at the true cost, be it less or more than was held.
    pub fn settle(mut self, cost: Microcents) {
        self.close(cost);
    }

    fn close(&mut self, cost: Microcents) {
        let mut standing = self.ledger.lock();
        standing.reserved = standing.reserved.minus(self.held);
        standing.spent = standing.spent.plus(cost);
        self.held = Microcents(0);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.held > Microcents(0) {
            self.close(self.held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CENT: u64 = Microcents::PER_CENT;

    fn figures(ledger: &Ledger) -> (u64, u64) {
        let standing = ledger.standing();
        (standing.spent.0, standing.reserved.0)
    }

    #[test]
    fn c128_the_second_of_two_requests_at_sixty_percent_is_refused() {
        let ledger = Ledger::new(Microcents(100));
        let first = ledger.reserve(Microcents(60)).unwrap();
        assert_eq!(ledger.reserve(Microcents(60)).unwrap_err(), ledger.standing().exhausted());
        first.settle(Microcents(10));
        ledger.reserve(Microcents(60)).unwrap().settle(Microcents(60));
        assert_eq!(figures(&ledger), (70, 0));
    }

    #[test]
    fn c128_a_dropped_reservation_is_spent() {
        let ledger = Ledger::new(Microcents(100));
        drop(ledger.reserve(Microcents(40)).unwrap());
        assert_eq!(figures(&ledger), (40, 0));
    }

    #[test]
    fn a_reservation_takes_what_is_free_and_grows_within_it() {
        let ledger = Ledger::new(Microcents(100));
        let mut held = ledger.reserve_within(Microcents(10), Microcents(500)).unwrap();
        assert_eq!(held.held(), Microcents(100));
        held.shrink_to(Microcents(30));
        assert_eq!(held.grow_to(Microcents(101)).unwrap_err().reserved, Microcents(30));
        held.grow_to(Microcents(70)).unwrap();
        held.grow_to(Microcents(5)).unwrap();
        assert_eq!(held.held(), Microcents(70));
        assert_eq!(
            ledger.reserve_within(Microcents(31), Microcents(90)).unwrap_err().reserved,
            Microcents(70)
        );
        held.settle(Microcents(120));
        assert_eq!(figures(&ledger), (120, 0));
        assert_eq!(ledger.standing().free(), Microcents(0));
    }

    #[test]
    fn a_ceiling_is_raised_and_never_lowered() {
        let ledger = Ledger::new(Microcents(10));
        let held = ledger.reserve(Microcents(10)).unwrap();
        ledger.raise(Microcents(5));
        assert_eq!(ledger.standing().ceiling, Microcents(10));
        ledger.reserve(Microcents(1)).unwrap_err();
        ledger.raise(Microcents(11));
        ledger.reserve(Microcents(1)).unwrap().settle(Microcents(1));
        held.settle(Microcents(10));
        assert_eq!(figures(&ledger), (11, 0));
    }

    /// A thousand callers on real threads, each paying up to what it reserved, for a hundred seeds.
    #[test]
    fn c128_a_thousand_parallel_calls_never_cross_the_ceiling() {
        for seed in 0..100u64 {
            let ledger = Ledger::new(Microcents(10 * CENT + seed * 977));
            std::thread::scope(|scope| {
                for worker in 0..8u64 {
                    let ledger = &ledger;
                    scope.spawn(move || spend(ledger, seed * 8 + worker, 125));
                }
            });
            let standing = ledger.standing();
            assert!(standing.spent <= standing.ceiling, "seed {seed}: {standing:?}");
            assert_eq!(standing.reserved, Microcents(0), "seed {seed}");
        }
    }

    fn spend(ledger: &Arc<Ledger>, seed: u64, calls: u32) {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for _ in 0..calls {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let amount = state % (CENT / 10);
            match ledger.reserve(Microcents(amount)) {
                Err(_) => {}
                Ok(held) if state & 16 == 0 => drop(held),
                Ok(held) => held.settle(Microcents(amount - state % (amount + 1))),
            }
        }
    }
}
