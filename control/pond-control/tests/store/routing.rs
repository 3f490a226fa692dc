//! Which worker gets which work, and what is said of work that nobody gets.

use pond_control::store::{Actor, ClaimFault, WorkerState};
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

pub(crate) async fn work_that_nobody_may_take_says_so_and_ends(world: &World) {
    let run = world.submit(&sandboxed("{profile: harness, backend: gvisor}")).await;
    let worker = world.worker("native").await;
    world.nothing_for(&worker, START).await;
    let reason = "no worker offers sandbox.gvisor in pool:trusted";
    let waiting = world.store.waiting().await.unwrap();
    assert_eq!(waiting.iter().map(|waiting| waiting.reason.as_str()).collect::<Vec<_>>(), [reason]);
    assert_eq!(world.told(&run).await, [&format!("a queued {reason}"), "run active"]);
    assert_eq!(world.store.end_unmatched(START, at(1)).await.unwrap(), 0);
    let gvisor = [Capability::parse("sandbox.gvisor").unwrap()];
    assert!(world.store.set_capabilities(&worker, &gvisor, at(2)).await.unwrap());
    assert!(!world.store.set_capabilities(&worker, &gvisor, at(3)).await.unwrap());
    assert_eq!(world.store.waiting().await.unwrap(), []);
    assert_eq!(world.told(&run).await, ["a queued", "run active"]);
    assert_eq!(world.store.end_unmatched(at(1), at(4)).await.unwrap(), 0);
    world.store.set_capabilities(&worker, &[], at(5)).await.unwrap();
    assert_eq!(world.store.end_unmatched(at(1), at(6)).await.unwrap(), 1);
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
