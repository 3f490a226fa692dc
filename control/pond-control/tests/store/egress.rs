//! Bytes of connections of parallel stages: the store lends them, gateways carry no more than they were lent. What workers do is
//! drawn from a seed; what was really carried is counted beside it.

use std::collections::BTreeMap;

use pond_control::store::{Actor, Completion, Lease, Offer, Outcome, RunId, Spent, WorkerId};
use pond_policy::reason::Reason;
use pond_policy::run::Budget;

use super::budgets::limited;
use super::money::Dice;
use super::world::{START, World, at};

const MIB: u64 = 1 << 20;

/// A gateway under a lease, or under one that is over and that nobody has told it of.
struct Carrier {
    offer: Offer,
    lent: u64,
    moved: u64,
}

impl Carrier {
    async fn begin(world: &World, worker: &WorkerId, now: u64) -> Option<Self> {
        let offer = world.store.claim((worker, 0), 1, at(now)).await.unwrap().pop()?;
        let renewed = world.store.acknowledge(&offer.lease, at(now)).await.unwrap();
        assert_eq!(renewed.lent_egress_bytes, 0, "nothing is lent before somebody asks");
        Some(Self { offer, lent: 0, moved: 0 })
    }

    fn lease(&self) -> &Lease {
        &self.offer.lease
    }

    /// What it says; `asking` when its tunnels wait.
    fn said(&self, asking: bool) -> Spent {
        let wanted_egress_bytes = asking.then_some(self.moved + 1);
        Spent { egress_bytes: self.moved, wanted_egress_bytes, ..Spent::default() }
    }

    /// Carries so much, and asks as often as it must.
    async fn carry(&mut self, world: &World, mut bytes: u64, now: u64) {
        while bytes > 0 {
            let part = bytes.min(self.lent - self.moved);
            self.moved += part;
            bytes -= part;
            if bytes > 0 {
                let before = self.lent;
                let renewed = world.store.heartbeat(self.lease(), self.said(true), at(now)).await;
                self.lent = renewed.map_or(before, |renewed| renewed.lent_egress_bytes.max(before));
                if self.lent == before {
                    return;
                }
            }
        }
    }

    async fn complete(&self, world: &World, now: u64) {
        let (spent, lease) = (self.said(false), self.lease());
        let completion = Completion { lease, outcome: Outcome::Succeeded, reason: "", spent, envelope: b"e" };
        world.store.complete(completion, at(now)).await.unwrap();
    }
}

fn stages(count: usize, budget: &str) -> String {
    let names: Vec<String> = (0..count).map(|at| format!("s{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    limited(&names, budget)
}

/// Plays one run. What was really carried, by everybody who ever had a lease.
async fn play(world: &World, seed: u64) -> (RunId, u64, u64) {
    let mut dice = Dice::new(seed);
    let count = usize::try_from(2 + dice.roll(4)).unwrap();
    let budget = 1 + dice.roll(40 * MIB);
    let begun = seed * 10_000;
    let run = world.submit_with(&stages(count, &format!("max_egress_bytes: {budget}")), 2, at(begun)).await;
    let mut worker = world.worker(&format!("w{seed}")).await;
    let (mut now, mut carriers, mut over) = (begun, Vec::<Carrier>::new(), Vec::<Carrier>::new());
    for _ in 0..60 {
        now += 1 + dice.roll(3);
        if carriers.len() < count
            && let Some(carrier) = Carrier::begin(world, &worker, now).await
        {
            carriers.push(carrier);
        }
        let Some(last) = carriers.len().checked_sub(1) else { break };
        let who = usize::try_from(dice.roll(u64::try_from(last + 1).unwrap())).unwrap();
        match dice.roll(12) {
            0..=8 => carriers[who].carry(world, 1 + dice.roll(6 * MIB), now).await,
            9 | 10 => {
                let done = carriers.swap_remove(who);
                done.complete(world, now).await;
                over.push(done);
            }
            // Its lease lapses, and it carries on with what it has: nobody reaches it.
            _ => {
                let mut lost = carriers.swap_remove(who);
                for _ in 0..4 {
                    now += 20;
                    for other in &carriers {
                        drop(world.store.heartbeat(other.lease(), other.said(false), at(now)).await);
                    }
                }
                world.store.expire(at(now)).await.unwrap();
                worker = world.worker(&format!("w{seed}-{now}")).await;
                lost.moved = lost.lent;
                over.push(lost);
            }
        }
        let really: u64 = carriers.iter().chain(&over).map(|carrier| carrier.moved).sum();
        assert!(really <= budget, "seed {seed}: {really} of {budget}");
        if world.run(&run).await.run.cancel.is_some() {
            break;
        }
    }
    let really = carriers.iter().chain(&over).map(|carrier| carrier.moved).sum();
    world.store.cancel(&run, "over", &Actor::System, at(now)).await.unwrap();
    world.store.expire(at(now + 4000)).await.unwrap();
    (run, really, budget)
}

pub(crate) async fn parallel_stages_never_carry_more_than_there_is(world: &World) {
    let mut ends = BTreeMap::<bool, u64>::new();
    for seed in 0..super::money::SEEDS {
        let (run, really, budget) = play(world, seed).await;
        let standing = world.store.standing(&run, START).await.unwrap();
        let egress = standing.iter().find(|one| one.budget == Budget::Egress).unwrap();
        assert!(egress.used + egress.set_aside <= egress.limit, "seed {seed}: {egress:?}");
        assert!(really <= budget, "seed {seed}");
        let cancel = world.run(&run).await.run.cancel;
        *ends.entry(cancel.is_some_and(|why| why.code == "budget_egress")).or_default() += 1;
    }
    // Both ways to end were seen, or the play is too tame to mean anything.
    assert_eq!(ends.len(), 2, "{ends:?}");
}

pub(crate) async fn bytes_are_lent_as_they_are_used(world: &World) {
    let run = world.submit(&stages(3, "max_egress_bytes: 100m")).await;
    let worker = world.worker("w").await;
    let mut one = Carrier::begin(world, &worker, 1).await.unwrap();
    let mut lent = Vec::new();
    for _ in 0..8 {
        one.carry(world, one.lent - one.moved + 1, 2).await;
        lent.push(one.lent / MIB);
    }
    // Twice as much each time, and a fifth of what is left once that is less: two others may need some.
    assert_eq!(lent, [1, 2, 4, 8, 16, 32, 45, 56]);
    let set_aside = async || world.store.standing(&run, START).await.unwrap()[4].set_aside / MIB;
    assert_eq!(set_aside().await, 10, "what it was lent and has not said that it used");
    one.complete(world, 3).await;
    assert_eq!(set_aside().await, 0, "a verified result frees the rest");
    // Whoever only ever says that it needs more is lent no more than there is, and then the run is over.
    let mut two = Carrier::begin(world, &worker, 4).await.unwrap();
    let left = world.store.held(two.lease()).await.unwrap().unwrap().left;
    assert_eq!(left.egress_bytes, 100 * MIB - one.moved, "the most that it can ever be lent");
    two.carry(world, 100 * MIB, 5).await;
    assert_eq!(one.moved + two.moved, 100 * MIB);
    let why = "the run's max_egress_bytes is 104857600 bytes, and it came to 104857601";
    assert_eq!(world.run(&run).await.run.cancel, Some(Reason::new("budget_egress", why)));
}
