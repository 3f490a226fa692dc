//! What will happen in a round, decided before it begins: a list of moments and acts that follows from the seed alone.

use crate::dice::Dice;
use crate::site::{Ground, Role, WORKERS};

/// Whom something happens to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whom {
    Process(Role),
    /// Whatever runs a job on this worker at that moment.
    JobOf(usize),
    GatewayOf(usize),
    Postgres,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Quick,
    Slow,
    Fails,
    TwoInTurn,
    Loud,
    WithSecret,
    WithSource,
    Sealed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Submit(Work),
    /// The run that was submitted as the so-manieth before.
    Cancel(u64),
    Kill(Whom),
    Revive(Whom),
    Stop(Whom),
    Continue(Whom),
    /// Mishaps in a hundred requests, on this way.
    Weather(usize, u64),
    FillDisk,
    FreeDisk,
    /// A result is held back, its worker sleeps through its lease, and the result comes when somebody else has the job.
    Limbo,
}

/// Milliseconds from the beginning of the round, and what happens then.
pub(crate) type Plan = Vec<(u64, Act)>;

const WORKS: [Work; 8] = [
    Work::Quick,
    Work::Slow,
    Work::Fails,
    Work::TwoInTurn,
    Work::Loud,
    Work::WithSecret,
    Work::WithSource,
    Work::Sealed,
];

pub(crate) fn plan(ground: Ground, dice: &mut Dice) -> Plan {
    let (mut plan, mut now) = (Plan::new(), 0);
    for way in 0..3 {
        let rough = dice.percent(60);
        plan.push((now, Act::Weather(way, if rough { dice.between(5, 35) } else { 0 })));
    }
    for _ in 0..dice.between(3, 6) {
        plan.push((now, Act::Submit(dice.one_of(&WORKS))));
        now += dice.between(20, 300);
    }
    for _ in 0..dice.between(3, 7) {
        misfortune(ground, dice, now, &mut plan);
        now += dice.between(100, 900);
        if dice.percent(40) {
            plan.push((now, Act::Submit(dice.one_of(&WORKS))));
        }
        if dice.percent(15) {
            plan.push((now, Act::Cancel(dice.between(0, 4))));
        }
    }
    if dice.percent(20) {
        plan.extend([(now, Act::Submit(Work::Slow)), (now, Act::Limbo)]);
    }
    plan.sort_by_key(|(at, _)| *at);
    plan
}

fn misfortune(ground: Ground, dice: &mut Dice, now: u64, plan: &mut Plan) {
    if ground == Ground::SmallDisk && dice.percent(40) {
        plan.extend([(now, Act::FillDisk), (now + dice.between(300, 3000), Act::FreeDisk)]);
        return;
    }
    let whom = whom(ground, dice);
    if dice.percent(60) {
        plan.extend([(now, Act::Kill(whom)), (now + dice.between(100, 2500), Act::Revive(whom))]);
    } else {
        // Some sleep longer than any lease, and wake up as if nothing had happened.
        let is_worker = matches!(whom, Whom::Process(Role::Worker(_)));
        let sleep = if dice.percent(if is_worker { 60 } else { 20 }) {
            dice.between(7000, 9000)
        } else {
            dice.between(200, 3000)
        };
        plan.extend([(now, Act::Stop(whom)), (now + sleep, Act::Continue(whom))]);
    }
}

fn whom(ground: Ground, dice: &mut Dice) -> Whom {
    let worker = dice.one_of(&[0, WORKERS - 1]);
    let all = [
        Whom::Process(Role::Control),
        Whom::Process(Role::Orchestrator),
        Whom::Process(Role::Worker(worker)),
        Whom::Process(Role::Worker(1 - worker)),
        Whom::JobOf(worker),
        Whom::GatewayOf(worker),
        Whom::Postgres,
    ];
    dice.one_of(if ground == Ground::Postgres { &all } else { &all[..6] })
}

#[test]
fn the_same_seed_is_the_same_plan() {
    for ground in [Ground::Sqlite, Ground::Postgres, Ground::SmallDisk] {
        let of = |seed| plan(ground, &mut Dice::new(seed));
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
        // Whoever is stopped or killed comes back.
        for (_, act) in of(7) {
            match act {
                Act::Kill(whom) => assert!(of(7).iter().any(|(_, other)| *other == Act::Revive(whom))),
                Act::Stop(whom) => assert!(of(7).iter().any(|(_, other)| *other == Act::Continue(whom))),
                Act::Submit(_)
                | Act::Cancel(_)
                | Act::Revive(_)
                | Act::Continue(_)
                | Act::Weather(..)
                | Act::FillDisk
                | Act::FreeDisk
                | Act::Limbo => {}
            }
        }
    }
}
