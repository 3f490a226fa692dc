//! Machines become workers, and stop being them.

use pond_control::store::{Actor, ClaimFault, EnrollFault, Grant, NewWorker, WorkerFault, WorkerState};
use pond_policy::tags::Tag;
use pond_policy::tier::Tier;
use pond_seal::Digest;

use super::leasing::nothing_works;
use super::world::{START, World, at, document, project};

pub(crate) async fn a_token_makes_one_worker(world: &World) {
    let token = Digest::of(b"join");
    let acme = project("acme");
    let gpu = [Tag::parse("gpu").unwrap()];
    let grant = Grant { tier: Tier::Byo, tenant: Some(&acme), tags: &gpu, expires_at: at(60) };
    world.store.issue_enrollment(&token, grant, &Actor::System, START).await.unwrap();
    let named = |name: &'static str| NewWorker { name, sign_key: name, seal_key: "x", capabilities: &[] };
    let enroll = |name, second| world.store.enroll(&token, named(name), at(second));
    assert!(matches!(enroll("late", 60).await, Err(EnrollFault::Token)));
    let unknown = world.store.enroll(&Digest::of(b"guess"), named("x"), at(1)).await;
    assert!(matches!(unknown, Err(EnrollFault::Token)));
    let both = tokio::join!(enroll("one", 1), enroll("two", 1));
    let made: Vec<_> = [both.0, both.1].into_iter().filter_map(Result::ok).collect();
    let [id] = made.as_slice() else { panic!("{made:?}") };
    let worker = world.store.worker(id).await.unwrap().unwrap();
    let tags: Vec<&str> = worker.have.tags.iter().map(Tag::as_str).collect();
    assert_eq!((tags, worker.state), (vec!["pool:byo", "tenant:acme", "gpu"], WorkerState::Active));
    assert!(matches!(enroll("three", 2).await, Err(EnrollFault::Token)));

    let second = Digest::of(b"second");
    world.store.issue_enrollment(&second, grant, &Actor::System, START).await.unwrap();
    let key = worker.sign_key.as_str();
    let same = NewWorker { name: "again", sign_key: key, seal_key: "x", capabilities: &[] };
    assert!(matches!(world.store.enroll(&second, same, at(2)).await, Err(EnrollFault::KeyTaken)));
    // The token was not used up by that.
    world.store.enroll(&second, named("other key"), at(3)).await.unwrap();
}

pub(crate) async fn grants_are_the_control_planes(world: &World) {
    let (acme, reserved) = (project("acme"), [Tag::parse("tenant:other").unwrap()]);
    for (tier, tenant, tags) in
        [(Tier::Any, Some(&acme), &[][..]), (Tier::Byo, None, &[]), (Tier::Trusted, None, &reserved)]
    {
        let grant = Grant { tier, tenant, tags, expires_at: at(60) };
        let issued = world.store.issue_enrollment(&Digest::of(b"x"), grant, &Actor::System, START).await;
        assert!(matches!(issued, Err(EnrollFault::Grant)), "{grant:?}");
    }
}

pub(crate) async fn a_revoked_worker_has_nothing(world: &World) {
    let runs = [world.submit(&document(&["a"])).await, world.submit(&document(&["b"])).await];
    let (worker, next) = (world.worker("w").await, world.worker("next").await);
    let (one, two) = (world.started(&worker, START).await, world.started(&worker, START).await);
    world.store.cancel(&runs[1], "changed my mind", &Actor::System, at(1)).await.unwrap();
    let mut dropped = world.store.revoke(&worker, &Actor::System, at(2)).await.unwrap();
    dropped.sort();
    assert_eq!(dropped, [one.lease.job.clone(), two.lease.job.clone()]);
    for lease in [&one.lease, &two.lease] {
        nothing_works(world, lease).await;
    }
    assert_eq!(world.told(&runs[0]).await, ["a queued", "run active"]);
    assert_eq!(world.told(&runs[1]).await, ["b cancelled changed my mind", "run cancelled"]);
    let claimed = world.store.claim((&worker, 0), 1, at(3)).await;
    assert!(matches!(claimed, Err(ClaimFault::NotActive(WorkerState::Revoked))));
    let offer = world.started(&next, at(3)).await;
    assert!(offer.lease.job == one.lease.job && offer.lease.epoch > one.lease.epoch + 1);
    for again in [
        world.store.revoke(&worker, &Actor::System, at(4)).await.map(|_| ()),
        world.store.release(&worker, &Actor::System, at(4)).await,
        world.store.set_capabilities(&worker, &[], at(4)).await.map(|_| ()),
    ] {
        assert!(matches!(again, Err(WorkerFault::Is(WorkerState::Revoked))));
    }
}
