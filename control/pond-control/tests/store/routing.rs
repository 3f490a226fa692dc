//! Which worker gets which work, and what is said of work that nobody gets.

use std::time::Duration;

use pond_control::store::{Actor, ClaimFault, Moment, Spent, WorkerState};
use pond_policy::capability::Capability;
use pond_policy::tier::Tier;

use super::world::{START, World, at, document, project};

fn sandboxed(block: &str) -> String {
    document(&["a"]).replace("{profile: untrusted-code-write}", block)
}

pub(crate) async fn a_worker_gets_what_it_may_have(world: &World) {
    world.store.create_project(&project("other"), &Actor::System, START).await.unwrap();
    let gvisor = sandboxed("{profile: harness, backend: gvisor}");
    let byo = sandboxed("{profile: harness, tier: byo}");
    let any = sandboxed("{profile: harness, tier: any}");
    let foreign = any.replace("acme", "other");
    let mut runs = Vec::new();
    for (text, second) in [&gvisor, &byo, &any, &foreign].into_iter().zip(0..) {
        runs.push(world.submit_with(text, 0, at(second)).await);
    }
    let native = world.worker("native").await;
    let own = world.worker_of("own", (Tier::Byo, Some("acme")), &["sandbox.gvisor"]).await;
    let theirs = world.worker_of("theirs", (Tier::Byo, Some("other")), &["sandbox.gvisor"]).await;
    let strong = world.worker_of("strong", (Tier::Trusted, None), &["sandbox.gvisor"]).await;
    let mut taken = Vec::new();
    for worker in [&own, &theirs, &native, &strong] {
        let offers = world.store.claim((worker, 0), 9, at(9)).await.unwrap();
        taken.push(offers.into_iter().map(|offer| offer.run).collect::<Vec<_>>());
    }
    // Of the two projects' work open to any pool, a byo worker sees its own tenant's only.
    let [gvisor, byo, any, foreign] = runs.try_into().unwrap();
    assert_eq!(taken, [vec![byo, any], vec![foreign], vec![], vec![gvisor]]);
}

/// Stages ended for which nobody was there so many seconds, by a control plane that was never away.
async fn ended(world: &World, patience: u64, now: Moment) -> u64 {
    world.store.end_unmatched(Duration::from_secs(patience), START, now).await.unwrap()
}

pub(crate) async fn work_that_nobody_may_take_says_so_and_ends(world: &World) {
    let run = world.submit(&sandboxed("{profile: harness, backend: gvisor}")).await;
    let worker = world.worker("native").await;
    world.nothing_for(&worker, START).await;
    let reason = "no worker offers sandbox.gvisor in pool:trusted";
    let waiting = world.store.waiting().await.unwrap();
    assert_eq!(waiting.iter().map(|waiting| waiting.reason.as_str()).collect::<Vec<_>>(), [reason]);
    assert_eq!(world.told(&run).await, [&format!("a queued {reason}"), "run active"]);
    assert_eq!(ended(world, 2, at(1)).await, 0);
    let gvisor = [Capability::parse("sandbox.gvisor").unwrap()];
    assert!(world.store.set_capabilities(&worker, &gvisor, at(2)).await.unwrap());
    assert!(!world.store.set_capabilities(&worker, &gvisor, at(3)).await.unwrap());
    assert_eq!(world.store.waiting().await.unwrap(), []);
    assert_eq!(world.told(&run).await, ["a queued", "run active"]);
    assert_eq!(ended(world, 2, at(4)).await, 0);
    world.store.set_capabilities(&worker, &[], at(5)).await.unwrap();
    // It waited before, but not in vain.
    for (now, some) in [(at(6), 0), (at(7), 0), (at(8), 1)] {
        assert_eq!(ended(world, 2, now).await, some);
    }
    assert_eq!(world.told(&run).await, [&format!("a failed {reason}"), "run failed"]);
}

pub(crate) async fn a_drained_worker_gets_nothing(world: &World) {
    world.submit(&document(&["a"])).await;
    let worker = world.worker("w").await;
    world.store.drain(&worker, &Actor::Worker(worker.clone()), START).await.unwrap();
    let refused = world.store.claim((&worker, 0), 1, START).await;
    assert!(matches!(refused, Err(ClaimFault::NotActive(WorkerState::Draining))));
    assert_eq!(world.store.waiting().await.unwrap().len(), 1);
    world.store.release(&worker, &Actor::System, at(1)).await.unwrap();
    let under_other_keys = world.store.claim((&worker, 1), 1, at(2)).await;
    assert!(matches!(under_other_keys, Err(ClaimFault::OtherKeys)));
    world.claim(&worker, at(2)).await;
}

/// A worker that joined and never came, and one that left without a word.
pub(crate) async fn who_was_not_seen_for_a_while_is_not_there(world: &World) {
    let run = world.submit(&document(&["a"])).await;
    let worker = world.worker("w").await;
    for then in [START, at(120)] {
        assert_eq!(ended(world, 10, then).await, 0);
        assert_eq!(world.told(&run).await, ["a queued", "run active"]);
    }
    assert_eq!(ended(world, 10, at(121)).await, 0);
    let why = "no worker that may have it was seen since 2027-01-15 08:00:00 UTC";
    assert_eq!(world.told(&run).await, [&format!("a queued {why}"), "run active"]);
    // It is back, and gone again.
    let same = world.store.worker(&worker).await.unwrap().unwrap().have.capabilities;
    world.store.set_capabilities(&worker, &same, at(125)).await.unwrap();
    assert_eq!(ended(world, 10, at(135)).await, 0);
    assert_eq!(world.told(&run).await, ["a queued", "run active"]);
    for (now, some) in [(at(246), 0), (at(255), 0), (at(256), 1)] {
        assert_eq!(ended(world, 10, now).await, some);
    }
    let why = "no worker that may have it was seen since 2027-01-15 08:02:05 UTC";
    assert_eq!(world.told(&run).await, [&format!("a failed {why}"), "run failed"]);
}

pub(crate) async fn who_has_a_long_job_is_there(world: &World) {
    let long = document(&["long"]).replace("timeout: 100s", "timeout: 1h");
    world.submit(&long).await;
    let worker = world.worker("w").await;
    let has = world.started(&worker, START).await;
    let run = world.submit(&document(&["a"])).await;
    for then in [50, 100, 150, 200, 250, 300] {
        world.store.heartbeat(&has.lease, Spent::default(), at(then)).await.unwrap();
        assert_eq!(ended(world, 1, at(then)).await, 0);
        assert_eq!(world.told(&run).await, ["a queued", "run active"]);
    }
}

/// Who was drained for a moment costs nothing, however long what it may have has been queued.
pub(crate) async fn in_vain_is_counted_from_when_nobody_was_there(world: &World) {
    let run = world.submit(&document(&["a"])).await;
    let worker = world.worker("w").await;
    assert_eq!(ended(world, 10, at(60)).await, 0);
    world.store.drain(&worker, &Actor::System, at(61)).await.unwrap();
    assert_eq!(ended(world, 10, at(62)).await, 0);
    world.store.release(&worker, &Actor::System, at(63)).await.unwrap();
    assert_eq!(ended(world, 10, at(64)).await, 0);
    world.store.drain(&worker, &Actor::System, at(65)).await.unwrap();
    let young = world.submit_with(&document(&["a"]), 0, at(70)).await;
    for (now, some) in [(at(66), 0), (at(75), 0), (at(76), 1), (at(79), 0), (at(80), 1)] {
        assert_eq!(ended(world, 10, now).await, some);
    }
    let why = "no worker is in pool:trusted; one that offers sandbox.* is needed";
    for run in [&run, &young] {
        assert_eq!(world.told(run).await, [&format!("a failed {why}"), "run failed"]);
    }
}

/// After a start, and after having been away, nobody is missed at once and nothing has waited yet.
pub(crate) async fn a_control_plane_that_was_away_gives_everybody_time(world: &World) {
    let run = world.submit(&document(&["a"])).await;
    world.worker("w").await;
    let patience = Duration::from_secs(10);
    let started = world.beside().await;
    for then in [1000, 1119] {
        assert_eq!(started.end_unmatched(patience, at(1000), at(then)).await.unwrap(), 0);
        assert_eq!(started.waiting().await.unwrap(), []);
    }
    assert_eq!(started.end_unmatched(patience, at(1000), at(1120)).await.unwrap(), 0);
    assert_eq!(started.waiting().await.unwrap().len(), 1);
    // It stood still, and hears again.
    for then in [2000, 2119, 2120, 2129] {
        assert_eq!(started.end_unmatched(patience, at(2000), at(then)).await.unwrap(), 0);
    }
    assert_eq!(world.told(&run).await, ["a queued", "run active"]);
    assert_eq!(started.end_unmatched(patience, at(2000), at(2130)).await.unwrap(), 1);
    started.close().await;
}
