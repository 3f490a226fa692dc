//! Results count once, from whoever holds the lease, and from nobody else.

use pond_control::store::{Actor, Completed, Completion, Lease, Outcome, Spent};
use pond_policy::stage::State;
use pond_seal::Digest;

use super::world::{START, World, at, document};

const ACCEPTED: Completed = Completed::Accepted(State::Succeeded);

async fn send(world: &World, lease: &Lease, envelope: &[u8]) -> Completed {
    let completion =
        Completion { lease, outcome: Outcome::Succeeded, reason: "", spent: Spent::default(), envelope };
    world.store.complete(completion, at(5)).await.unwrap()
}

pub(crate) async fn a_result_is_accepted_once(world: &World) {
    let run = world.submit(&document(&["a"])).await;
    let worker = world.worker("w").await;
    let offer = world.started(&worker, START).await;
    assert_eq!(send(world, &offer.lease, b"signed").await, ACCEPTED);
    assert_eq!(send(world, &offer.lease, b"signed").await, Completed::Replayed);
    assert_eq!(send(world, &offer.lease, b"another").await, Completed::Stale);
    let other = world.worker("other").await;
    for forged in [Lease { worker: other, ..offer.lease.clone() }, Lease { epoch: 2, ..offer.lease.clone() }]
    {
        assert_eq!(send(world, &forged, b"signed").await, Completed::Stale);
    }
    let results = world.store.results(&offer.stage).await.unwrap();
    let [result] = results.as_slice() else { panic!("{results:?}") };
    assert_eq!((&result.job, result.epoch, result.outcome), (&offer.lease.job, 1, Outcome::Succeeded));
    assert_eq!((result.digest, result.envelope.as_slice()), (Digest::of(b"signed"), &b"signed"[..]));
    assert_eq!(world.told(&run).await, ["a succeeded", "run succeeded"]);
}

pub(crate) async fn a_result_sent_twice_at_once_is_accepted_once(world: &World) {
    let worker = world.worker("w").await;
    for _ in 0..10 {
        world.submit(&document(&["a"])).await;
        let lease = world.claim(&worker, START).await.lease;
        let answers = tokio::join!(
            send(world, &lease, b"one"),
            send(world, &lease, b"one"),
            send(world, &lease, b"two"),
            send(world, &lease, b"two"),
        );
        let mut answers = [answers.0, answers.1, answers.2, answers.3].map(|answer| format!("{answer:?}"));
        answers.sort();
        assert_eq!(answers, ["Accepted(Succeeded)", "Replayed", "Stale", "Stale"]);
    }
}

pub(crate) async fn a_result_of_an_old_lease_is_stale(world: &World) {
    world.submit(&document(&["a"])).await;
    let (slow, fast) = (world.worker("slow").await, world.worker("fast").await);
    let old = world.started(&slow, START).await.lease;
    world.store.expire(at(61)).await.unwrap();
    assert_eq!(send(world, &old, b"late").await, Completed::Stale);
    let new = world.started(&fast, at(62)).await.lease;
    assert_eq!(send(world, &old, b"late").await, Completed::Stale);
    assert_eq!(send(world, &new, b"good").await, ACCEPTED);
    assert_eq!(send(world, &old, b"good").await, Completed::Stale);
}

pub(crate) async fn a_result_under_an_offer_that_lapsed_is_stale(world: &World) {
    let run = world.submit(&document(&["a"])).await;
    let worker = world.worker("w").await;
    // In time, and late with nobody having looked yet: also of a result that takes the long way.
    let offered = world.claim(&worker, START).await.lease;
    for (outcome, reason) in [(Outcome::Succeeded, ""), (Outcome::Failed, "no"), (Outcome::Rejected, "lie")] {
        let completion =
            Completion { lease: &offered, outcome, reason, spent: Spent::default(), envelope: b"late" };
        assert_eq!(world.store.complete(completion, at(11)).await.unwrap(), Completed::Stale, "{outcome:?}");
    }
    assert_eq!(world.told(&run).await, ["a leased", "run active"]);
    let completion = Completion {
        lease: &offered,
        outcome: Outcome::Failed,
        reason: "no",
        spent: Spent::default(),
        envelope: b"in time",
    };
    let ended = world.store.complete(completion, at(10)).await.unwrap();
    assert_eq!(ended, Completed::Accepted(State::Failed));
}

pub(crate) async fn a_failed_stage_is_tried_again(world: &World) {
    let run = world.submit_with(&document(&["a", "b a"]), 1, START).await;
    let worker = world.worker("w").await;
    let first = world.started(&worker, START).await;
    let again = world.complete(&first.lease, Outcome::Failed, at(1)).await;
    assert_eq!(again, Completed::Accepted(State::Queued));
    assert_eq!(world.complete(&first.lease, Outcome::Failed, at(1)).await, Completed::Replayed);
    let second = world.started(&worker, at(2)).await;
    assert_eq!((second.attempt, second.lease.epoch, &second.stage), (2, 1, &first.stage));
    assert_ne!(second.lease.job, first.lease.job);
    world.complete(&second.lease, Outcome::Failed, at(3)).await;
    let expected = ["a failed as told", "b cancelled needs a, which was failed", "run failed"];
    assert_eq!(world.told(&run).await, expected);
    let attempts: Vec<u64> =
        world.store.results(&first.stage).await.unwrap().iter().map(|result| result.attempt).collect();
    assert_eq!(attempts, [1, 2]);
}

pub(crate) async fn a_result_that_does_not_verify_fails_the_stage(world: &World) {
    let run = world.submit_with(&document(&["a"]), 3, START).await;
    let worker = world.worker("w").await;
    let offer = world.started(&worker, START).await;
    let completed = world.complete(&offer.lease, Outcome::Rejected, at(1)).await;
    assert_eq!(completed, Completed::Accepted(State::Failed));
    assert_eq!(world.told(&run).await, ["a failed as told", "run failed"]);
}

pub(crate) async fn a_result_of_a_cancelled_job_is_kept(world: &World) {
    let run = world.submit(&document(&["a"])).await;
    let worker = world.worker("w").await;
    let offer = world.started(&worker, START).await;
    world.store.cancel(&run, "budget", &Actor::System, at(1)).await.unwrap();
    assert_eq!(send(world, &offer.lease, b"partial").await, Completed::Accepted(State::Cancelled));
    let results = world.store.results(&offer.stage).await.unwrap();
    assert_eq!(results[0].envelope, b"partial");
    // One that nobody ends is cancelled when its lease lapses.
    let run = world.submit(&document(&["b"])).await;
    world.started(&worker, at(10)).await;
    world.store.cancel(&run, "budget", &Actor::System, at(11)).await.unwrap();
    world.store.expire(at(100)).await.unwrap();
    assert_eq!(world.told(&run).await, ["b cancelled budget", "run cancelled"]);
}
