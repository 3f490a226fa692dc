//! Stages that several workers run: they agree, one is outvoted, or nobody is believed.

use std::time::Duration;

use pond_control::store::{
    Action, Actor, Ballot, Completed, Completion, Offer, Outcome, Place, Spent, Standing, WorkerId,
    WorkerState,
};
use pond_policy::stage::State;
use pond_policy::tier::Tier;
use pond_seal::Digest;

use super::world::{START, World, at, document};

const AGAIN: Completed = Completed::Accepted(State::Queued);
const SUCCEEDED: Completed = Completed::Accepted(State::Succeeded);
const FAILED: Completed = Completed::Accepted(State::Failed);

/// A result that is compared by `what`, of which two must be equal.
async fn votes(world: &World, offer: &Offer, what: &str) -> Completed {
    let lease = &offer.lease;
    let completion = Completion {
        lease,
        outcome: Outcome::Succeeded,
        reason: "",
        spent: Spent::default(),
        envelope: b"signed",
    };
    let ballot = Ballot { digest: Digest::of(what.as_bytes()), quorum: 2, differs: "a/path\nanother" };
    world.store.complete_among(completion, Some(ballot), at(5)).await.unwrap()
}

async fn standings(world: &World, offer: &Offer) -> Vec<(WorkerId, Standing)> {
    let results = world.store.results(&offer.stage).await.unwrap();
    results.into_iter().map(|result| (result.worker, result.standing)).collect()
}

async fn state(world: &World, worker: &WorkerId) -> WorkerState {
    world.store.worker(worker).await.unwrap().unwrap().state
}

pub(crate) async fn a_result_counts_when_another_worker_agrees(world: &World) {
    let run = world.submit_with(&document(&["a", "b a"]), 3, START).await;
    let (one, two) = (world.worker("one").await, world.worker("two").await);
    let first = world.started(&one, START).await;
    assert_eq!(votes(world, &first, "x").await, AGAIN);
    assert_eq!(votes(world, &first, "x").await, Completed::Replayed);
    assert_eq!(standings(world, &first).await, [(one.clone(), Standing::Unconfirmed)]);
    world.nothing_for(&one, at(6)).await;
    let second = world.started(&two, at(6)).await;
    assert_eq!((second.stage.clone(), second.attempt), (first.stage.clone(), 2));
    assert_ne!(second.lease.job, first.lease.job);
    assert_eq!(votes(world, &second, "x").await, SUCCEEDED);
    let both = [(one.clone(), Standing::Confirmed), (two.clone(), Standing::Confirmed)];
    assert_eq!(standings(world, &first).await, both);
    assert_eq!(world.store.results(&first.stage).await.unwrap()[1].differs, ["a/path", "another"]);
    assert_eq!(
        (state(world, &one).await, state(world, &two).await),
        (WorkerState::Active, WorkerState::Active)
    );
    // What needed it goes on, and whoever ran it may have that.
    let next = world.started(&one, at(7)).await;
    world.complete(&next.lease, Outcome::Succeeded, at(8)).await;
    assert_eq!(world.told(&run).await, ["a succeeded", "b succeeded as told", "run succeeded"]);
}

pub(crate) async fn a_worker_that_is_outvoted_gets_no_more(world: &World) {
    let run = world.submit(&document(&["a"])).await;
    let liar = world.worker("liar").await;
    let first = world.started(&liar, START).await;
    assert_eq!(votes(world, &first, "a lie").await, AGAIN);
    let (one, two) = (world.worker("one").await, world.worker("two").await);
    let second = world.started(&one, at(6)).await;
    assert_eq!(votes(world, &second, "the truth").await, AGAIN);
    world.nothing_for(&liar, at(6)).await;
    world.nothing_for(&one, at(6)).await;
    let third = world.started(&two, at(7)).await;
    assert_eq!(votes(world, &third, "the truth").await, SUCCEEDED);
    let expected = [
        (liar.clone(), Standing::Distrusted),
        (one.clone(), Standing::Confirmed),
        (two, Standing::Confirmed),
    ];
    assert_eq!(standings(world, &first).await, expected);
    assert_eq!(
        (state(world, &liar).await, state(world, &one).await),
        (WorkerState::Quarantined, WorkerState::Active)
    );
    assert_eq!(world.told(&run).await, ["a succeeded", "run succeeded"]);
    let audit = world.store.audit(None, Place::default(), 100).await.unwrap();
    let about = |action: Action| audit.iter().filter(|entry| entry.action == action).count();
    assert_eq!((about(Action::ResultDistrusted), about(Action::WorkerQuarantined)), (1, 1));
    world.store.release(&liar, &Actor::System, at(8)).await.unwrap();
}

pub(crate) async fn where_nobody_agrees_nobody_is_believed_or_blamed(world: &World) {
    let run = world.submit_with(&document(&["a", "b a"]), 5, START).await;
    let mut last = None;
    for name in ["one", "two", "three"] {
        let worker = world.worker(name).await;
        let offer = world.started(&worker, START).await;
        let told = votes(world, &offer, name).await;
        assert_eq!(told, if name == "three" { FAILED } else { AGAIN });
        last = Some((worker, offer));
    }
    let (worker, offer) = last.unwrap();
    assert!(standings(world, &offer).await.iter().all(|(_, standing)| *standing == Standing::Distrusted));
    assert_eq!(state(world, &worker).await, WorkerState::Active);
    let told = world.told(&run).await;
    assert_eq!(told[0], "a failed 3 workers ran it, and no 2 agree");
    assert_eq!(told.last().unwrap(), "run failed");
}

pub(crate) async fn the_trusted_pool_is_asked_first(world: &World) {
    let text = document(&["a"]).replace("untrusted-code-write", "untrusted-code-write, tier: any");
    world.submit(&text).await;
    let byo = |name: &'static str| world.worker_of(name, (Tier::Byo, Some("acme")), &["sandbox.native"]);
    let (own, other) = (byo("own").await, byo("other").await);
    let first = world.started(&own, START).await;
    let trusted = world.worker("trusted").await;
    assert_eq!(votes(world, &first, "x").await, AGAIN);
    world.nothing_for(&other, at(6)).await;
    let second = world.started(&trusted, at(6)).await;
    assert_eq!(votes(world, &second, "x").await, SUCCEEDED);
    // Without one of the pool, whoever may run it.
    world.store.drain(&trusted, &Actor::System, at(7)).await.unwrap();
    world.submit(&text).await;
    let first = world.started(&own, at(8)).await;
    assert_eq!(votes(world, &first, "x").await, AGAIN);
    let second = world.started(&other, at(9)).await;
    assert_eq!(votes(world, &second, "x").await, SUCCEEDED);
}

pub(crate) async fn who_waits_for_another_worker_is_told_and_not_for_ever(world: &World) {
    let run = world.submit(&document(&["a"])).await;
    let only = world.worker("only").await;
    let first = world.started(&only, START).await;
    assert_eq!(votes(world, &first, "x").await, AGAIN);
    let why = "another worker has to confirm it: 1 ran it, and no other may";
    assert_eq!(world.told(&run).await[0], format!("a queued {why}"));
    assert_eq!(world.store.queued(9).await.unwrap()[0].avoid, std::slice::from_ref(&only));
    let plain = world.submit_with(&document(&["a"]), 0, at(6)).await;
    for (now, ended) in [(at(7), 0), (at(12), 0), (at(13), 1)] {
        let patience = Duration::from_secs(6);
        assert_eq!(world.store.end_unmatched(patience, START, now).await.unwrap(), ended);
    }
    assert_eq!(world.told(&run).await, [format!("a failed {why}"), "run failed".to_owned()]);
    assert_eq!(world.told(&plain).await, ["a queued", "run active"]);
    assert_eq!(standings(world, &first).await, [(only, Standing::Unconfirmed)]);
}

pub(crate) async fn a_lost_or_cancelled_second_run_changes_no_rule(world: &World) {
    let run = world.submit(&document(&["a"])).await;
    let (one, two) = (world.worker("one").await, world.worker("two").await);
    let first = world.started(&one, START).await;
    assert_eq!(votes(world, &first, "x").await, AGAIN);
    world.started(&two, at(6)).await;
    world.store.expire(at(90)).await.unwrap();
    world.nothing_for(&one, at(91)).await;
    let again = world.started(&two, at(91)).await;
    world.store.cancel(&run, "enough", &Actor::System, at(92)).await.unwrap();
    assert_eq!(votes(world, &again, "x").await, Completed::Accepted(State::Cancelled));
    let expected = [(one, Standing::Unconfirmed), (two, Standing::Single)];
    assert_eq!(standings(world, &first).await, expected);
}
