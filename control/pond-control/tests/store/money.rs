//! Money of parallel stages: the store that lends it, and the ledger of the gateway that spends it, played against each other. What
//! workers do is drawn from a seed; what they really spent is counted beside both.

use std::collections::BTreeMap;
use std::sync::Arc;

use pond_control::store::{
    Completed, Completion, Lease, LeaseFault, Offer, Outcome, RunId, Spent, Wanted, WorkerId,
};
use pond_gateway::broker::{Ledger, Reservation};
use pond_policy::model::Microcents;
use pond_policy::reason::Reason;

use super::world::{START, World, at, document};

const CENT: u64 = Microcents::PER_CENT;

/// Stages that have a model, and what their run may cost.
fn paid(stages: usize, cents: u64) -> String {
    let names: Vec<String> = (0..stages).map(|at| format!("s{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let document = document(&names).replace("command: [make]", "command: [make]\n      model: claude");
    document.replacen("stages:", &format!("budgets: {{max_cost_cents: {cents}}}\nstages:"), 1)
}

pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// A gateway under a lease, or under one that is over and that nobody has told it of.
struct Spender {
    offer: Offer,
    ledger: Arc<Ledger>,
    calls: Vec<Reservation>,
}

impl Spender {
    async fn begin(world: &World, worker: &WorkerId, now: u64) -> Option<Self> {
        let offer = world.store.claim((worker, 0), 1, at(now)).await.unwrap().pop()?;
        let lent = world.store.lend(&offer.lease).await.unwrap();
        let renewed = world.store.acknowledge(&offer.lease, at(now)).await.unwrap();
        assert_eq!(renewed.lent_microcents, lent);
        Some(Self { offer, ledger: Ledger::new(Microcents(lent)), calls: Vec::new() })
    }

    fn lease(&self) -> &Lease {
        &self.offer.lease
    }

    /// What the provider will charge for, whatever happens now.
    fn committed(&self) -> u64 {
        let standing = self.ledger.standing();
        standing.spent.0 + standing.reserved.0
    }

    fn spent(&self, wanted: Option<Wanted>) -> Spent {
        Spent { cost_microcents: self.ledger.standing().spent.0, wanted, ..Spent::default() }
    }

    /// A call as the broker makes it: set aside, or ask and try again.
    async fn call(&mut self, world: &World, amount: u64, now: u64) {
        if let Ok(held) = self.ledger.reserve(Microcents(amount)) {
            self.calls.push(held);
            return;
        }
        let ceiling = self.committed() + amount;
        let wanted = Wanted { least_microcents: ceiling, most_microcents: ceiling };
        let spent = self.spent(Some(wanted));
        if let Ok(renewed) = world.store.heartbeat(self.lease(), spent, at(now)).await {
            self.ledger.raise(Microcents(renewed.lent_microcents));
            self.calls.extend(self.ledger.reserve(Microcents(amount)));
        }
    }

    fn end_a_call(&mut self, dice: &mut Dice) {
        let Some(call) = self.calls.pop() else { return };
        let cost = dice.roll(call.held().0 + 1);
        // Some break off, and cost all that was set aside.
        if dice.roll(5) == 0 { drop(call) } else { call.settle(Microcents(cost)) }
    }
}

/// Plays one run to its end. What was really spent, by everybody who ever had a lease.
async fn play(world: &World, seed: u64) -> (RunId, u64, u64) {
    let mut dice = Dice::new(seed);
    let stages = usize::try_from(2 + dice.roll(4)).unwrap();
    let cents = 5 + dice.roll(40);
    let begun = seed * 10_000;
    let run = world.submit_with(&paid(stages, cents), 2, at(begun)).await;
    let mut worker = world.worker(&format!("w{seed}")).await;
    let (mut now, mut spenders, mut over) = (begun, Vec::<Spender>::new(), Vec::<Spender>::new());
    for _ in 0..60 {
        now += 1 + dice.roll(3);
        if spenders.len() < stages
            && let Some(spender) = Spender::begin(world, &worker, now).await
        {
            spenders.push(spender);
        }
        let Some(at_work) = spenders.len().checked_sub(1) else { break };
        let who = usize::try_from(dice.roll(u64::try_from(at_work + 1).unwrap())).unwrap();
        match dice.roll(12) {
            0..=5 => spenders[who].call(world, 1 + dice.roll(4 * CENT), now).await,
            6..=8 => spenders[who].end_a_call(&mut dice),
            9 => {
                let spent = spenders[who].spent(None);
                drop(world.store.heartbeat(spenders[who].lease(), spent, at(now)).await);
            }
            10 => over.push(complete(world, spenders.swap_remove(who), now).await),
            // Its lease lapses, and it goes on spending what it has: nobody reaches it.
            _ => {
                let mut lost = spenders.swap_remove(who);
                lapse(world, &spenders, &mut now).await;
                worker = world.worker(&format!("w{seed}-{now}")).await;
                while let Ok(held) = lost.ledger.reserve(Microcents(CENT / 3)) {
                    lost.calls.push(held);
                }
                over.push(lost);
            }
        }
        let really: u64 = spenders.iter().chain(&over).map(Spender::committed).sum();
        assert!(really <= cents * CENT, "seed {seed}: {really} of {}", cents * CENT);
        if world.run(&run).await.run.cancel.is_some() {
            break;
        }
    }
    let really = spenders.iter().chain(&over).map(Spender::committed).sum();
    world.store.cancel(&run, "over", &pond_control::store::Actor::System, at(now)).await.unwrap();
    world.store.expire(at(now + 4000)).await.unwrap();
    (run, really, cents * CENT)
}

/// Everybody but the one that is gone renews, until its lease is over.
async fn lapse(world: &World, others: &[Spender], now: &mut u64) {
    for _ in 0..4 {
        *now += 20;
        for other in others {
            drop(world.store.heartbeat(other.lease(), other.spent(None), at(*now)).await);
        }
    }
    world.store.expire(at(*now)).await.unwrap();
}

/// Ends its calls and hands in its result.
async fn complete(world: &World, mut spender: Spender, now: u64) -> Spender {
    spender.calls.drain(..).for_each(drop);
    let (spent, lease) = (spender.spent(None), spender.lease());
    let completion = Completion { lease, outcome: Outcome::Succeeded, reason: "", spent, envelope: b"e" };
    let completed = world.store.complete(completion, at(now)).await.unwrap();
    assert!(matches!(completed, Completed::Accepted(_) | Completed::Stale), "{completed:?}");
    spender
}

/// Plans that are played, on either engine.
pub(crate) const SEEDS: u64 = 100;

pub(crate) async fn parallel_stages_never_spend_more_than_there_is(world: &World) {
    let mut ends = BTreeMap::<bool, u64>::new();
    for seed in 0..SEEDS {
        let (run, really, budget) = play(world, seed).await;
        let cost = world.store.standing(&run, START).await.unwrap()[1];
        assert!(cost.used + cost.set_aside <= cost.limit, "seed {seed}: {cost:?}");
        assert!(really <= budget, "seed {seed}");
        let cancel = world.run(&run).await.run.cancel;
        *ends.entry(cancel.is_some_and(|why| why.code == "budget_cost")).or_default() += 1;
    }
    // Both ways to end were seen, or the play is too tame to mean anything.
    assert_eq!(ends.len(), 2, "{ends:?}");
}

/// Cents that nobody can be lent any more; none of the workers here says that it spent anything.
async fn set_aside(world: &World, run: &RunId) -> u64 {
    world.store.standing(run, START).await.unwrap()[1].set_aside
}

/// Two stages that ask for nothing more than they were given, and where one says that it spent nothing.
pub(crate) async fn who_reports_less_costs_at_most_its_slice(world: &World) {
    let run = world.submit(&paid(2, 100)).await;
    let worker = world.worker("w").await;
    let liar = Spender::begin(world, &worker, 1).await.unwrap();
    let slice = liar.ledger.standing().ceiling.0;
    liar.ledger.reserve(Microcents(slice)).unwrap().settle(Microcents(slice));
    world.store.heartbeat(liar.lease(), Spent::default(), at(2)).await.unwrap();
    assert_eq!(100 - set_aside(world, &run).await, 75, "what was lent stays set aside, whatever is said");
    // It is not lent more on its word either: a ceiling counts from nothing.
    let wanted = Some(Wanted { least_microcents: slice, most_microcents: slice });
    let renewed = world.store.heartbeat(liar.lease(), Spent { wanted, ..Spent::default() }, at(3)).await;
    assert_eq!(renewed.unwrap().lent_microcents, slice);
    let honest = Spender::begin(world, &worker, 4).await.unwrap();
    let rest = 100 * CENT - slice;
    let wanted = Some(Wanted { least_microcents: rest, most_microcents: rest });
    let all =
        world.store.heartbeat(honest.lease(), Spent { wanted, ..Spent::default() }, at(5)).await.unwrap();
    assert_eq!((all.lent_microcents, all.cancel), (rest, false));
    // Only a result that verified frees what it says was not spent, so that the lie is worth one slice.
    let rejected = Completion {
        lease: liar.lease(),
        outcome: Outcome::Rejected,
        reason: "",
        spent: Spent::default(),
        envelope: b"e",
    };
    world.store.complete(rejected, at(6)).await.unwrap();
    assert_eq!(100 - set_aside(world, &run).await, 0);
}

pub(crate) async fn a_lease_that_lapsed_is_paid_for_in_full(world: &World) {
    let run = world.submit(&paid(2, 100)).await;
    let worker = world.worker("w").await;
    let lost = Spender::begin(world, &worker, 1).await.unwrap();
    assert_eq!(set_aside(world, &run).await, 25);
    world.store.expire(at(100)).await.unwrap();
    let stale = world.store.heartbeat(lost.lease(), Spent::default(), at(100)).await;
    assert!(matches!(stale, Err(LeaseFault::Stale)));
    assert_eq!(set_aside(world, &run).await, 25, "nobody knows what it spent");
    // One that never began got no key, so its money comes back.
    let offer = world.claim(&worker, at(101)).await;
    world.store.lend(&offer.lease).await.unwrap();
    assert_eq!(set_aside(world, &run).await, 44);
    world.store.expire(at(200)).await.unwrap();
    assert_eq!(set_aside(world, &run).await, 25);
    let offer = world.claim(&worker, at(201)).await;
    world.store.lend(&offer.lease).await.unwrap();
    world.store.acknowledge(&offer.lease, at(201)).await.unwrap();
    world.store.give_back(&offer.lease, at(202)).await.unwrap();
    assert_eq!(set_aside(world, &run).await, 44, "given back, and nobody knows");
}

pub(crate) async fn a_call_that_cannot_be_paid_ends_the_run(world: &World) {
    let run = world.submit(&paid(1, 10)).await;
    let worker = world.worker("w").await;
    let spender = Spender::begin(world, &worker, 1).await.unwrap();
    assert_eq!(spender.ledger.standing().ceiling.0, 5 * CENT);
    let ask = |least: u64, most: u64| {
        let wanted = Some(Wanted { least_microcents: least * CENT, most_microcents: most * CENT });
        world.store.heartbeat(spender.lease(), Spent { wanted, ..Spent::default() }, at(2))
    };
    let renewed = ask(6, 20).await.unwrap();
    assert_eq!((renewed.lent_microcents, renewed.cancel), (10 * CENT, false), "as much as there is");
    assert!(ask(11, 20).await.unwrap().cancel);
    let why = "the run's max_cost_cents is 10 cents, and it came to 11";
    assert_eq!(world.run(&run).await.run.cancel, Some(Reason::new("budget_cost", why)));
    // A worker that says it spent more than it was lent has, and that ends a run as well.
    let run = world.submit_with(&paid(1, 10), 0, at(10)).await;
    let spender = Spender::begin(world, &worker, 11).await.unwrap();
    let spent = Spent { cost_microcents: 12 * CENT, ..Spent::default() };
    assert!(world.store.heartbeat(spender.lease(), spent, at(12)).await.unwrap().cancel);
    let why = "the run's max_cost_cents is 10 cents, and it came to 12";
    assert_eq!(world.run(&run).await.run.cancel, Some(Reason::new("budget_cost", why)));
}
