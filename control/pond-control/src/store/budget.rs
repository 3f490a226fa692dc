//! What a run has of each budget, what it has used, and the end of a run that used up one.
//!
//! All figures are on the run's row and change under it. Money and bytes of connections are lent: a lease is given a part before it
//! spends, `cost_held` and `egress_held` are the sums of what was lent and what was settled, and never exceed the budget. A lease
//! that ends without a verified result settles at all it was lent, because nobody knows what was spent of it; one that was never
//! acknowledged got no key, and returns it. What a worker says it used can only raise a figure.

mod figures;

use std::time::Duration;

use pond_policy::reason::Reason;
use pond_policy::run::{Allowance, Budget, Crossed};
use pond_policy::stage::State;
use serde_json::json;

use super::Store;
use super::engine::{Fault, Row, Tx, args};
use figures::Bytes;

pub(super) use figures::{Account, Figures};

use super::expire::cancel_in;
use super::flow::HeldRun;
use super::id::{JobId, Moment, RunId};
use super::journal::{self, Action, Actor, Change};
use super::lease::{Lease, LeaseFault, Spent, hold};

/// Output that is still taken when its budget is crossed: what was on its way while every stage is told to stop.
pub const STRAGGLING_OUTPUT: u64 = 16 << 20;
const MICROCENTS: u64 = 1_000_000;
/// No figure grows past this, whatever is claimed.
const MOST: u64 = 1 << 61;
/// Runs looked at in one call.
const MOST_AT_ONCE: i64 = 1000;

/// What is left of the budgets of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    pub wall_until: Moment,
    pub output_bytes: u64,
    pub artifact_bytes: u64,
    pub egress_bytes: u64,
}

/// One budget of a run, in its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    pub budget: Budget,
    pub limit: u64,
    pub used: u64,
    /// Lent to running stages, or settled at what was lent.
    pub set_aside: u64,
}

/// What a piece of output comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Within,
    /// It is taken, and the run has more than it may.
    Crossed(Crossed),
    /// It is not taken.
    NoRoom(Crossed),
}

impl Store {
    /// Lends a lease its first slice: half a share of what is left, where everybody who may need some has one.
    pub async fn lend(&self, lease: &Lease) -> Result<u64, LeaseFault> {
        let mut tx = self.engine.write().await?;
        let (mut run, _) = hold(&mut tx, lease).await?;
        let mut figures = run.figures;
        let sql = "SELECT count(*) AS stages FROM stage WHERE run_id = $1 AND state = 'queued' AND costs = 1";
        let row = tx.row(sql, args![&run.id]).await?;
        let slice = figures.slice(row.map_or(Ok(1), |row| row.count("stages"))?);
        figures.kept(&mut tx, &mut run).await?;
        tx.run("UPDATE job SET lent = lent + $2 WHERE id = $1", args![&lease.job, slice]).await?;
        tx.commit().await?;
        Ok(slice)
    }

    /// Ends the runs whose time is up. How many those were.
    pub async fn end_overdue(&self, now: Moment) -> Result<usize, Fault> {
        let mut tx = self.engine.read().await?;
        let sql = "SELECT id FROM run WHERE ended_at IS NULL AND wall_until < $1 AND cancel IS NULL LIMIT $2";
        let rows = tx.rows(sql, args![now, MOST_AT_ONCE]).await?;
        drop(tx);
        let mut ended = 0;
        for row in rows {
            ended += usize::from(self.overdue(&row.read("id", RunId::parse)?, now).await?);
        }
        Ok(ended)
    }

    async fn overdue(&self, run: &RunId, now: Moment) -> Result<bool, Fault> {
        let mut tx = self.engine.write().await?;
        let Some(mut held) = HeldRun::hold(&mut tx, run).await? else { return Ok(false) };
        let sql = "SELECT created_at, wall_until FROM run WHERE id = $1 AND ended_at IS NULL";
        let Some(row) = tx.row(sql, args![run]).await? else { return Ok(false) };
        let seconds =
            |since: i64| u64::try_from((since - row.int("created_at")?) / 1000).or(Ok::<_, Fault>(0));
        let crossed = Crossed {
            budget: Budget::WallClock,
            limit: seconds(row.int("wall_until")?)?,
            figure: seconds(now.0)?,
        };
        let is_new = cross(&mut tx, &mut held, crossed, now).await?;
        tx.commit().await?;
        Ok(is_new)
    }

    /// Where a run stands with each of its budgets; nothing for a run there is not.
    pub async fn standing(&self, run: &RunId, now: Moment) -> Result<Vec<Tally>, Fault> {
        let mut tx = self.engine.read().await?;
        let sql = "SELECT created_at, ended_at, wall_until FROM run WHERE id = $1";
        let Some(row) = tx.row(sql, args![run]).await? else { return Ok(Vec::new()) };
        let begun = row.int("created_at")?;
        let seconds = |at: i64| u64::try_from(at.saturating_sub(begun) / 1000).unwrap_or(0);
        let wall = (row.int("wall_until")?, row.maybe_int("ended_at")?.unwrap_or(now.0));
        let figures = Figures::of(&mut tx, run).await?;
        let bytes =
            |budget, bytes: Bytes| Tally { budget, limit: bytes.most, used: bytes.used, set_aside: 0 };
        let cents = |microcents: u64| microcents.div_ceil(MICROCENTS);
        let time =
            Tally { budget: Budget::WallClock, limit: seconds(wall.0), used: seconds(wall.1), set_aside: 0 };
        let Figures { cost, egress, .. } = figures;
        let cost = Tally {
            budget: Budget::Cost,
            limit: cost.most / MICROCENTS,
            used: cents(cost.used),
            set_aside: cents(cost.held).saturating_sub(cents(cost.used)),
        };
        let set_aside = egress.held.saturating_sub(egress.used);
        let egress = Tally { budget: Budget::Egress, limit: egress.most, used: egress.used, set_aside };
        Ok(vec![
            time,
            cost,
            bytes(Budget::Output, figures.output),
            bytes(Budget::Artifacts, figures.artifacts),
            egress,
        ])
    }
}

impl Left {
    pub(super) fn read(row: &Row) -> Result<Self, Fault> {
        let left = |most, used| Ok::<_, Fault>(row.count(most)?.saturating_sub(row.count(used)?));
        Ok(Self {
            wall_until: Moment(row.int("wall_until")?),
            output_bytes: left("output_most", "output_used")?,
            artifact_bytes: left("artifact_most", "artifact_used")?,
            // Not less what is lent: what others do not use of that may come back, and be lent to this one.
            egress_bytes: left("egress_most", "egress_used")?,
        })
    }

    /// From now to the end of the run's time.
    #[must_use]
    pub fn wall(&self, now: Moment) -> Duration {
        Duration::from_millis(u64::try_from(self.wall_until.0.saturating_sub(now.0)).unwrap_or(0))
    }
}

/// What a heartbeat says, on the run's row.
pub(super) async fn report(
    tx: &mut Tx,
    run: &mut HeldRun,
    account: &mut Account,
    spent: Spent,
    now: Moment,
) -> Result<(), Fault> {
    let mut figures = run.figures;
    let stages = if spent.wanted_egress_bytes.is_some() { open_stages(tx, &run.id).await? } else { 1 };
    let crossed = figures.report(account, spent, stages);
    figures.kept(tx, run).await?;
    match crossed {
        Some(crossed) => cross(tx, run, crossed, now).await.map(drop),
        None => Ok(()),
    }
}

/// Stages that may still need some.
async fn open_stages(tx: &mut Tx, run: &RunId) -> Result<u64, Fault> {
    let sql = "SELECT count(*) AS stages FROM stage WHERE run_id = $1 AND state = 'queued'";
    tx.row(sql, args![run]).await?.map_or(Ok(1), |row| row.count("stages"))
}

/// A verified result has the last word on what its lease used. What it carried over a budget the caller ends the run for, once
/// the stage has its own end.
pub(super) async fn settle(
    tx: &mut Tx,
    run: &mut HeldRun,
    mut account: Account,
    spent: Spent,
    now: Moment,
) -> Result<Option<Crossed>, Fault> {
    let mut figures = run.figures;
    let crossed = figures.report(&mut account, Spent { wanted: None, wanted_egress_bytes: None, ..spent }, 1);
    figures.settle(account);
    figures.kept(tx, run).await?;
    match crossed {
        Some(crossed) if mark(tx, run, crossed, now).await? => Ok(Some(crossed)),
        Some(_) | None => Ok(None),
    }
}

/// A lease ends without a verified result. Before it was acknowledged no key was given out for it, so nothing was spent;
/// afterwards all of it counts as spent.
pub(super) async fn forfeit(tx: &mut Tx, run: &RunId, job: &JobId, state: State) -> Result<(), Fault> {
    if state != State::Leased {
        return Ok(());
    }
    tx.run(
        "UPDATE run SET cost_held = cost_held - (SELECT lent FROM job WHERE job.id = $2)
         WHERE id = $1 AND EXISTS (SELECT 1 FROM job WHERE job.id = $2 AND lent > 0)",
        args![run, job],
    )
    .await
    .map(drop)
}

/// Counts a piece of output. Of what goes to a person, what is on its way is taken beyond the budget; of results nothing is.
pub(super) async fn take_output(
    tx: &mut Tx,
    run: &mut HeldRun,
    budget: Budget,
    size: u64,
) -> Result<Taken, Fault> {
    let mut figures = run.figures;
    let (bytes, slack) = match budget {
        Budget::Artifacts => (&mut figures.artifacts, 0),
        Budget::Output | Budget::WallClock | Budget::Cost | Budget::Egress => {
            (&mut figures.output, STRAGGLING_OUTPUT)
        }
    };
    let used = bytes.used.saturating_add(size);
    let crossed = Crossed { budget, limit: bytes.most, figure: used };
    if used > bytes.most.saturating_add(slack) {
        return Ok(Taken::NoRoom(crossed));
    }
    let within = used <= bytes.most;
    bytes.used = used;
    figures.kept(tx, run).await?;
    Ok(if within { Taken::Within } else { Taken::Crossed(crossed) })
}

/// Ends a run that used up a budget: every stage of it, at once, with the reason. Whether it was not ending already.
pub(super) async fn cross(
    tx: &mut Tx,
    run: &mut HeldRun,
    crossed: Crossed,
    now: Moment,
) -> Result<bool, Fault> {
    Ok(mark(tx, run, crossed, now).await? && end(tx, run, crossed, now).await?)
}

/// Writes down which budget it was: the first one counts.
async fn mark(tx: &mut Tx, run: &HeldRun, crossed: Crossed, now: Moment) -> Result<bool, Fault> {
    let sql = "UPDATE run SET crossed = $2, crossed_figure = $3
               WHERE id = $1 AND ended_at IS NULL AND cancel IS NULL AND crossed IS NULL";
    let (budget, figure) = (crossed.budget.name(), crossed.figure.min(MOST));
    if tx.run(sql, args![&run.id, budget, figure]).await? == 0 {
        return Ok(false);
    }
    let change = Change {
        actor: &Actor::System,
        action: Action::BudgetCrossed,
        project: Some(&run.project),
        run: Some(&run.id),
        stage: None,
        subject: run.id.as_str(),
        detail: json!({"budget": budget, "limit": crossed.limit, "figure": crossed.figure}),
    };
    journal::write(tx, now, &change);
    Ok(true)
}

pub(super) async fn end(
    tx: &mut Tx,
    run: &mut HeldRun,
    crossed: Crossed,
    now: Moment,
) -> Result<bool, Fault> {
    let reason = Reason::new(crossed.budget.code(), crossed.to_string()).to_string();
    cancel_in(tx, run, &reason, &Actor::System, now).await
}

/// The figures a run begins with, as its row has them.
pub(super) fn beginning(has: &Allowance, now: Moment) -> [u64; 5] {
    let wall_until = now.plus(has.wall_clock.duration()).0;
    [
        u64::try_from(wall_until).unwrap_or(0),
        has.max_cost_cents.get().saturating_mul(MICROCENTS),
        has.max_output_bytes.bytes(),
        has.max_artifact_bytes.bytes(),
        has.max_egress_bytes.bytes(),
    ]
}
