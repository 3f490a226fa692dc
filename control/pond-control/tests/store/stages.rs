//! Stages that need one another, and runs that are cancelled.

use pond_control::store::{Actor, Completed, Outcome, Spent};
use pond_policy::stage::State;

use super::world::{START, World, at, document};

pub(crate) async fn a_stage_starts_when_its_needs_succeeded(world: &World) {
    let run = world.submit(&document(&["a", "b", "both a,b", "last both"])).await;
    let worker = world.worker("w").await;
    let (one, two) = (world.started(&worker, START).await, world.started(&worker, START).await);
    world.nothing_for(&worker, START).await;
    let accepted = Completed::Accepted(State::Succeeded);
    assert_eq!(world.complete(&one.lease, Outcome::Succeeded, at(1)).await, accepted);
    world.nothing_for(&worker, at(1)).await;
    assert_eq!(world.complete(&two.lease, Outcome::Succeeded, at(2)).await, accepted);
    for _ in ["both", "last"] {
        let next = world.started(&worker, at(3)).await;
        world.nothing_for(&worker, at(3)).await;
        assert_eq!(world.complete(&next.lease, Outcome::Succeeded, at(4)).await, accepted);
    }
    let told =
        ["a succeeded as told", "b succeeded as told", "both succeeded as told", "last succeeded as told"];
    assert_eq!(world.told(&run).await, [&told[..], &["run succeeded"]].concat());
    assert_eq!(world.run(&run).await.run.ended_at, Some(at(4)));
}

pub(crate) async fn what_needs_a_failed_stage_is_cancelled(world: &World) {
    let run = world.submit(&document(&["a", "b a", "c b", "apart"])).await;
    let worker = world.worker("w").await;
    let (first, other) = (world.started(&worker, START).await, world.started(&worker, START).await);
    world.complete(&first.lease, Outcome::Failed, at(1)).await;
    assert_eq!(world.told(&run).await[3..], ["apart running", "run active"]);
    world.complete(&other.lease, Outcome::Succeeded, at(2)).await;
    let told = world.told(&run).await;
    let expected = [
        "a failed as told",
        "b cancelled needs a, which was failed",
        "c cancelled needs b, which was cancelled",
        "apart succeeded as told",
        "run failed",
    ];
    assert_eq!(told, expected);
    world.nothing_for(&worker, at(3)).await;
}

pub(crate) async fn what_needs_a_refused_stage_is_refused(world: &World) {
    let run = world.submit(&document(&["a", "b a", "c b"])).await;
    let worker = world.worker("w").await;
    let offer = world.claim(&worker, START).await;
    world.store.refuse(&offer.lease, "no such backend", at(1)).await.unwrap();
    let expected = [
        "a refused no such backend",
        "b refused needs a, which was refused",
        "c refused needs b, which was refused",
        "run refused",
    ];
    assert_eq!(world.told(&run).await, expected);
}

pub(crate) async fn a_cancelled_run_ends_and_its_jobs_are_told(world: &World) {
    let run = world.submit(&document(&["a", "b a"])).await;
    let worker = world.worker("w").await;
    let offer = world.started(&worker, START).await;
    assert!(world.store.cancel(&run, "too dear", &Actor::System, at(1)).await.unwrap());
    assert!(!world.store.cancel(&run, "again", &Actor::System, at(1)).await.unwrap());
    assert_eq!(world.told(&run).await, ["a running", "b cancelled too dear", "run active"]);
    assert!(world.store.heartbeat(&offer.lease, Spent::default(), at(2)).await.unwrap().cancel);
    let completed = world.complete(&offer.lease, Outcome::Succeeded, at(3)).await;
    assert_eq!(completed, Completed::Accepted(State::Cancelled));
    let expected = ["a cancelled too dear", "b cancelled too dear", "run cancelled"];
    assert_eq!(world.told(&run).await, expected);
    assert_eq!(world.run(&run).await.run.cancel.map(|why| why.sentence).as_deref(), Some("too dear"));
}

pub(crate) async fn a_cancelled_run_that_nobody_works_on_ends_at_once(world: &World) {
    let run = world.submit(&document(&["a", "b a", "c a,b", "d"])).await;
    assert!(world.store.cancel(&run, "never mind", &Actor::System, at(1)).await.unwrap());
    let told = world.told(&run).await;
    assert!(told.iter().all(|line| line.contains("cancelled")), "{told:?}");
    world.nothing_for(&world.worker("w").await, at(2)).await;
    let ends = world.store.events(&run, Default::default(), 100).await.unwrap();
    let ends = ends.iter().filter(|event| event.action.name() == "run.ended").count();
    assert_eq!(ends, 1);
    assert!(!world.store.cancel(&run, "again", &Actor::System, at(3)).await.unwrap());
}
