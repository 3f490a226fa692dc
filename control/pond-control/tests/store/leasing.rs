//! Who has which job, for how long, and what happens when they vanish.

use std::collections::HashSet;
use std::time::Duration;

use pond_control::store::{
    Chunk, ClaimFault, Completed, Lapse, Lease, LeaseFault, LogFault, Outcome, Spent, Stream, WorkerState,
};
use pond_policy::stage::State;
use pond_seal::Digest;

use super::world::{START, World, at, document};

pub(crate) async fn jobs_go_out_in_order_each_under_its_epoch(world: &World) {
    let mut runs = Vec::new();
    for second in 0..3 {
        runs.push(world.submit_with(&document(&["a"]), 0, at(second)).await);
    }
    let worker = world.worker("w").await;
    let offers = world.store.claim((&worker, 0), 2, at(10)).await.unwrap();
    let seen: Vec<_> = offers.iter().map(|offer| (&offer.run, offer.lease.epoch, offer.attempt)).collect();
    assert_eq!(seen, [(&runs[0], 1, 1), (&runs[1], 1, 1)]);
    assert_eq!(world.claim(&worker, at(10)).await.run, runs[2]);
    world.nothing_for(&worker, at(10)).await;
    // A job that comes back is the oldest again, under the next epoch.
    world.store.expire(at(21)).await.unwrap();
    let again = world.claim(&world.worker("next").await, at(21)).await;
    assert_eq!((again.lease.epoch, &again.lease.job, &again.run), (2, &offers[0].lease.job, &runs[0]));
}

pub(crate) async fn claimers_at_once_never_get_the_same_job(world: &World) {
    for _ in 0..40 {
        world.submit(&document(&["a"])).await;
    }
    let mut workers = Vec::new();
    for number in 0..8 {
        workers.push(world.worker(&format!("w{number}")).await);
    }
    let one = async |worker| {
        let mut taken = Vec::new();
        loop {
            let offers = world.store.claim((worker, 0), 1, START).await.unwrap();
            match offers.first() {
                Some(offer) => taken.push(offer.lease.job.clone()),
                None => break taken,
            }
        }
    };
    let [a, b, c, d, e, f, g, h] = workers.as_slice() else { panic!("eight workers") };
    let all = tokio::join!(one(a), one(b), one(c), one(d), one(e), one(f), one(g), one(h));
    let all = [all.0, all.1, all.2, all.3, all.4, all.5, all.6, all.7].concat();
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    // A claim passes over what another is taking, and one that found nothing else stops early; nothing is lost by that.
    let left = world.store.claim((a, 0), 100, START).await.unwrap();
    assert_eq!(all.len() + left.len(), 40);
}

pub(crate) async fn an_offer_is_taken_up_in_time_or_lost(world: &World) {
    world.submit(&document(&["a"])).await;
    let worker = world.worker("w").await;
    let offer = world.claim(&worker, START).await;
    assert!(matches!(
        world.store.heartbeat(&offer.lease, Spent::default(), at(1)).await,
        Err(LeaseFault::Stale)
    ));
    assert_eq!(world.store.expire(at(10)).await.unwrap(), []);
    assert!(matches!(world.store.acknowledge(&offer.lease, at(11)).await, Err(LeaseFault::Stale)));
    let lapsed = world.store.expire(at(11)).await.unwrap();
    assert_eq!((lapsed[0].what, &lapsed[0].worker, lapsed.len()), (Lapse::Requeued, &worker, 1));
    let second = world.started(&worker, at(12)).await;
    // Its answer got lost; it says so again.
    let again = world.store.acknowledge(&second.lease, at(40)).await.unwrap();
    assert_eq!(again.until, at(72));
    assert!(matches!(world.store.acknowledge(&offer.lease, at(40)).await, Err(LeaseFault::Stale)));
}

pub(crate) async fn a_heartbeat_renews_but_not_past_the_deadline(world: &World) {
    let run = world.submit(&document(&["a"])).await;
    let worker = world.worker("w").await;
    let offer = world.started(&worker, START).await;
    // The time limit is 100 s, the grace 60.
    for (now, until) in [(50, 110), (99, 159), (120, 160), (159, 160)] {
        assert_eq!(
            world.store.heartbeat(&offer.lease, Spent::default(), at(now)).await.unwrap().until,
            at(until),
            "{now}"
        );
    }
    assert!(matches!(
        world.store.heartbeat(&offer.lease, Spent::default(), at(160)).await,
        Err(LeaseFault::Stale)
    ));
    assert_eq!(world.store.expire(at(160)).await.unwrap(), []);
    assert_eq!(world.store.expire(at(161)).await.unwrap()[0].what, Lapse::TimedOut);
    assert_eq!(world.told(&run).await, ["a failed its time was up", "run failed"]);
    assert_eq!(world.complete(&offer.lease, Outcome::Succeeded, at(162)).await, Completed::Stale);
}

pub(crate) async fn a_lease_that_lapsed_is_good_for_nothing(world: &World) {
    let run = world.submit(&document(&["a"])).await;
    let (lost, next) = (world.worker("lost").await, world.worker("next").await);
    let old = world.started(&lost, START).await.lease;
    assert_eq!(world.store.expire(at(61)).await.unwrap()[0].what, Lapse::Requeued);
    nothing_works(world, &old).await;
    let new = world.started(&next, at(62)).await.lease;
    assert_eq!((&new.job, new.epoch), (&old.job, 2));
    nothing_works(world, &old).await;
    for forged in [
        Lease { epoch: 2, ..old.clone() },
        Lease { worker: lost.clone(), ..new.clone() },
        Lease { epoch: 1, ..new.clone() },
        Lease { epoch: 3, ..new.clone() },
    ] {
        nothing_works(world, &forged).await;
    }
    assert_eq!(world.complete(&new, Outcome::Succeeded, at(63)).await, Completed::Accepted(State::Succeeded));
    assert_eq!(world.told(&run).await, ["a succeeded as told", "run succeeded"]);
}

pub(crate) async fn nothing_works(world: &World, lease: &Lease) {
    let store = &world.store;
    assert!(matches!(store.acknowledge(lease, at(62)).await, Err(LeaseFault::Stale)), "{lease:?}");
    assert!(
        matches!(store.heartbeat(lease, Spent::default(), at(62)).await, Err(LeaseFault::Stale)),
        "{lease:?}"
    );
    assert!(matches!(store.give_back(lease, at(62)).await, Err(LeaseFault::Stale)), "{lease:?}");
    assert!(matches!(store.refuse(lease, "no", at(62)).await, Err(LeaseFault::Stale)), "{lease:?}");
    let chain = Digest::of(b"any");
    let chunk = Chunk { stream: Stream::Stdout, sequence: 0, offset: 0, bytes: b"x", chain };
    assert!(matches!(store.append_log(lease, chunk, at(62)).await, Err(LogFault::Stale)), "{lease:?}");
    assert_eq!(world.complete(lease, Outcome::Succeeded, at(62)).await, Completed::Stale, "{lease:?}");
}

pub(crate) async fn a_job_that_costs_three_workers_is_given_up(world: &World) {
    let run = world.submit(&document(&["bomb", "after bomb"])).await;
    let workers = [world.worker("a").await, world.worker("b").await, world.worker("c").await];
    // The same worker twice, an offer nobody took up: neither is the job's doing.
    let course = [(0, true), (0, true), (1, false), (1, true), (2, true)];
    let mut told = Vec::new();
    for ((worker, starts), round) in course.into_iter().zip(0..) {
        let now = at(round * 100);
        let offer = world.claim(&workers[worker], now).await;
        if starts {
            world.store.acknowledge(&offer.lease, now).await.unwrap();
        }
        told.extend(world.store.expire(now.plus(Duration::from_secs(61))).await.unwrap());
    }
    let told: Vec<Lapse> = told.into_iter().map(|lapsed| lapsed.what).collect();
    let expected = [Lapse::Requeued, Lapse::Requeued, Lapse::Requeued, Lapse::Requeued, Lapse::Poisoned];
    assert_eq!(told, expected);
    let expected = [
        "bomb failed too many workers were lost on it",
        "after cancelled needs bomb, which was failed",
        "run failed",
    ];
    assert_eq!(world.told(&run).await, expected);
    let states = world.store.workers().await.unwrap().into_iter().map(|worker| worker.state);
    assert!(states.into_iter().all(|state| state == WorkerState::Active));
}

pub(crate) async fn a_worker_that_loses_many_jobs_gets_no_more(world: &World) {
    for _ in 0..4 {
        world.submit(&document(&["a"])).await;
    }
    let (bad, good) = (world.worker("bad").await, world.worker("good").await);
    for offer in world.store.claim((&bad, 0), 3, START).await.unwrap() {
        world.store.acknowledge(&offer.lease, START).await.unwrap();
    }
    assert_eq!(world.store.expire(at(61)).await.unwrap().len(), 3);
    let view = world.store.worker(&bad).await.unwrap().unwrap();
    assert_eq!((view.state, view.reason.as_str()), (WorkerState::Quarantined, "3 jobs were lost on it"));
    let refused = world.store.claim((&bad, 0), 1, at(62)).await;
    assert!(matches!(refused, Err(ClaimFault::NotActive(WorkerState::Quarantined))));
    assert_eq!(world.store.claim((&good, 0), 9, at(62)).await.unwrap().len(), 4);
    let system = pond_control::store::Actor::System;
    world.store.release(&bad, &system, at(70)).await.unwrap();
    world.nothing_for(&bad, at(71)).await;
}

/// A control plane that was away has not heard who called; what lapsed meanwhile goes back, and nobody pays for it.
pub(crate) async fn what_lapsed_while_nobody_listened_is_nobody_s_fault(world: &World) {
    for _ in 0..3 {
        world.submit(&document(&["a"])).await;
    }
    let worker = world.worker("w").await;
    for offer in world.store.claim((&worker, 0), 3, START).await.unwrap() {
        world.store.acknowledge(&offer.lease, START).await.unwrap();
    }
    let lapsed = world.store.expire_heard(at(30), at(61)).await.unwrap();
    let lapsed: Vec<Lapse> = lapsed.into_iter().map(|lapsed| lapsed.what).collect();
    assert_eq!(lapsed, [Lapse::Requeued; 3]);
    assert_eq!(world.store.worker(&worker).await.unwrap().unwrap().state, WorkerState::Active);
    for offer in world.store.claim((&worker, 0), 3, at(62)).await.unwrap() {
        world.store.acknowledge(&offer.lease, at(62)).await.unwrap();
    }
    // From then on a whole lease has passed in which it could have called.
    assert_eq!(world.store.expire_heard(at(62), at(123)).await.unwrap().len(), 3);
    assert_eq!(world.store.worker(&worker).await.unwrap().unwrap().state, WorkerState::Quarantined);
}

/// A clock that was ahead and is set right does not keep a job with a worker that is gone.
pub(crate) async fn a_clock_that_goes_back_keeps_no_job(world: &World) {
    world.submit(&document(&["a"])).await;
    let worker = world.worker("w").await;
    let offer = world.started(&worker, at(3600)).await;
    assert_eq!(world.store.shorten_leases(at(0)).await.unwrap(), 1);
    assert_eq!(world.store.shorten_leases(at(0)).await.unwrap(), 0);
    assert_eq!(world.store.expire(at(60)).await.unwrap(), []);
    assert_eq!(world.store.expire(at(61)).await.unwrap()[0].what, Lapse::Requeued);
    nothing_works(world, &offer.lease).await;
}

pub(crate) async fn a_job_given_back_counts_for_nobody(world: &World) {
    let run = world.submit(&document(&["a"])).await;
    let worker = world.worker("w").await;
    for round in 0..5 {
        let offer = world.started(&worker, at(round)).await;
        assert_eq!(offer.lease.epoch, round + 1);
        world.store.give_back(&offer.lease, at(round)).await.unwrap();
        nothing_works(world, &offer.lease).await;
    }
    assert_eq!(world.told(&run).await, ["a queued", "run active"]);
    assert_eq!(world.store.worker(&worker).await.unwrap().unwrap().state, WorkerState::Active);
}

pub(crate) async fn a_job_its_worker_does_not_run_is_over(world: &World) {
    let worker = world.worker("w").await;
    let run = world.submit(&document(&["a"])).await;
    let offer = world.claim(&worker, at(1)).await;
    world.store.refuse(&offer.lease, "policy", at(2)).await.unwrap();
    nothing_works(world, &offer.lease).await;
    assert_eq!(world.told(&run).await, ["a refused policy", "run refused"]);
    // Too late to refuse what has started.
    let run = world.submit(&document(&["a"])).await;
    let offer = world.started(&worker, at(3)).await;
    world.store.refuse(&offer.lease, "no disk", at(4)).await.unwrap();
    nothing_works(world, &offer.lease).await;
    assert_eq!(world.told(&run).await, ["a failed no disk", "run failed"]);
}
