//! The figures of one run, and what one lease was lent of them: arithmetic under the run's row.
//!
//! Invariants: `held` is the sum of what was lent and what was settled, and lending never carries it over what there is; what a
//! worker says it used can only raise a figure, and more than it was lent is charged to the run.

use pond_policy::run::{Budget, Crossed};

use super::super::engine::{Fault, Row, Tx, args};
use super::super::flow::HeldRun;
use super::super::id::RunId;
use super::super::lease::Spent;
use super::{MICROCENTS, MOST};

/// Bytes that a lease is lent at least when it asks, where there are as many.
const FEW: u64 = 64 << 10;
/// The first loan of a lease, where its share is as much. Later ones are as large as all before, so that what is lent and not
/// used is never more than what was used, and a fast job seldom asks.
const FIRST: u64 = 1 << 20;

/// The figures of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Figures {
    pub(super) cost: Lent,
    pub(super) output: Bytes,
    pub(super) artifacts: Bytes,
    pub(super) egress: Lent,
}

/// What is lent: how much there is, how much was lent or settled, how much is known to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lent {
    pub(super) most: u64,
    pub(super) held: u64,
    pub(super) used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) most: u64,
    pub(super) used: u64,
}

/// What one lease was lent, and what it is known to have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Account {
    pub(in super::super) lent: u64,
    pub(in super::super) cost: u64,
    pub(in super::super) egress_lent: u64,
    pub(in super::super) egress: u64,
}

impl Lent {
    fn free(&self) -> u64 {
        self.most.saturating_sub(self.held)
    }

    /// A lease says that it used so much by now. It counts for no less than it did; one that says it used more than it was
    /// lent has, and the run is charged for it.
    fn report(&mut self, lent: &mut u64, used: &mut u64, says: u64) {
        let now = says.max(*used);
        self.used = self.used.saturating_add(now - *used);
        *used = now;
        let over = now.saturating_sub(*lent);
        self.held = self.held.saturating_add(over);
        *lent = lent.saturating_add(over);
    }

    /// Lends up to `most` in all, if that comes to `least` in all; otherwise what the run would have had to have.
    fn lend(&mut self, lent: &mut u64, (least, most): (u64, u64)) -> Result<(), u64> {
        let more = most.saturating_sub(*lent).min(self.free());
        if lent.saturating_add(more) < least {
            return Err(self.held.saturating_add(least.saturating_sub(*lent)));
        }
        *lent += more;
        self.held += more;
        Ok(())
    }

    /// What was lent and not used is free again.
    fn settle(&mut self, lent: u64, used: u64) {
        self.held = self.held.saturating_sub(lent.saturating_sub(used));
    }
}

impl Figures {
    pub(super) async fn of(tx: &mut Tx, run: &RunId) -> Result<Self, Fault> {
        let sql =
            "SELECT cost_most, cost_held, cost_spent, output_most, output_used, artifact_most, artifact_used,
                      egress_most, egress_held, egress_used FROM run WHERE id = $1";
        Self::read(&tx.row(sql, args![run]).await?.ok_or(Fault::Unreadable { column: "run_id" })?)
    }

    pub(in super::super) fn read(row: &Row) -> Result<Self, Fault> {
        let bytes = |most, used| Ok::<_, Fault>(Bytes { most: row.count(most)?, used: row.count(used)? });
        let lent = |most, held, used| {
            Ok::<_, Fault>(Lent { most: row.count(most)?, held: row.count(held)?, used: row.count(used)? })
        };
        Ok(Self {
            cost: lent("cost_most", "cost_held", "cost_spent")?,
            output: bytes("output_most", "output_used")?,
            artifacts: bytes("artifact_most", "artifact_used")?,
            egress: lent("egress_most", "egress_held", "egress_used")?,
        })
    }

    async fn keep(&self, tx: &mut Tx, run: &RunId) -> Result<(), Fault> {
        tx.run(
            "UPDATE run SET cost_held = $2, cost_spent = $3, output_used = $4, artifact_used = $5, egress_held = $6,
                egress_used = $7 WHERE id = $1",
            args![
                run,
                self.cost.held.min(MOST),
                self.cost.used.min(MOST),
                self.output.used.min(MOST),
                self.artifacts.used.min(MOST),
                self.egress.held.min(MOST),
                self.egress.used.min(MOST)
            ],
        )
        .await
        .map(drop)
    }

    /// Writes them to the row that this transaction holds, if they changed.
    pub(super) async fn kept(self, tx: &mut Tx, run: &mut HeldRun) -> Result<(), Fault> {
        if self != run.figures {
            self.keep(tx, &run.id).await?;
            run.figures = self;
        }
        Ok(())
    }

    /// The first slice of money: half a share of what is left, where `stages` may need some.
    pub(super) fn slice(&mut self, stages: u64) -> u64 {
        let slice = self.cost.free() / (2 * stages.max(1));
        self.cost.held += slice;
        slice
    }

    /// Counts what a worker says that its job has used by now, and lends it more where it asks and there is some. `stages` is
    /// how many have not ended.
    pub(super) fn report(&mut self, account: &mut Account, spent: Spent, stages: u64) -> Option<Crossed> {
        self.egress.report(&mut account.egress_lent, &mut account.egress, spent.egress_bytes);
        self.cost.report(&mut account.lent, &mut account.cost, spent.cost_microcents);
        let crossed = self.crossed();
        if crossed.is_some() {
            return crossed;
        }
        if let Some(wanted) = spent.wanted {
            let bounds = (wanted.least_microcents, wanted.most_microcents);
            if let Err(figure) = self.cost.lend(&mut account.lent, bounds) {
                return Some(self.cost_crossed(figure));
            }
        }
        let least = spent.wanted_egress_bytes?;
        let most = account.egress_lent.saturating_add(self.portion(account, stages)).max(least);
        let lent = self.egress.lend(&mut account.egress_lent, (least, most));
        lent.err().map(|figure| self.egress_crossed(figure))
    }

    /// How many bytes more a lease is lent at once: as many as it has, but no more than leaves every other stage as much
    /// twice. The last one gets what there is.
    fn portion(&self, account: &Account, stages: u64) -> u64 {
        let others = 2 * stages.max(1).saturating_sub(1);
        let share = self.egress.free() / (others + 1);
        account.egress_lent.max(FIRST).min(share).max(FEW)
    }

    /// Which budget a worker's word has carried it over.
    fn crossed(&self) -> Option<Crossed> {
        if self.egress.held > self.egress.most {
            return Some(self.egress_crossed(self.egress.held));
        }
        (self.cost.held > self.cost.most).then(|| self.cost_crossed(self.cost.held))
    }

    fn cost_crossed(&self, figure: u64) -> Crossed {
        let (limit, figure) = (self.cost.most / MICROCENTS, figure.div_ceil(MICROCENTS));
        Crossed { budget: Budget::Cost, limit, figure }
    }

    fn egress_crossed(&self, figure: u64) -> Crossed {
        Crossed { budget: Budget::Egress, limit: self.egress.most, figure }
    }

    /// The lease is over with a verified result: what it was lent and did not use is free again.
    pub(super) fn settle(&mut self, account: Account) {
        self.cost.settle(account.lent, account.cost);
        self.egress.settle(account.egress_lent, account.egress);
    }
}

impl Account {
    pub(in super::super) fn read(row: &Row) -> Result<Self, Fault> {
        Ok(Self {
            lent: row.count("lent")?,
            cost: row.count("cost_microcents")?,
            egress_lent: row.count("egress_lent")?,
            egress: row.count("egress_bytes")?,
        })
    }
}
