//! Runs come in: once each, whole, and in pages that hold still.

use std::time::Duration;

use pond_control::store::{
    Actor, Asked, Idempotency, Lease, NewBundle, RunState, SourceView, Submission, SubmitFault, Submitted,
    Work,
};
use pond_policy::stage::State;
use pond_seal::Digest;

use super::world::{START, World, at, document, parse, project};

pub(crate) async fn a_run_is_stored_and_shown(world: &World) {
    let text = document(&["build", "test build"]);
    let id = world.submit(&text).await;
    let view = world.run(&id).await;
    let (run, stages) = (&view.run, &view.stages);
    assert_eq!((run.project.as_str(), run.state, run.open_stages), ("acme", RunState::Active, 2));
    assert_eq!((run.created_at, run.ended_at, &run.cancel), (START, None, &None));
    let shown: Vec<_> =
        stages.iter().map(|stage| (stage.name.as_str(), stage.state, stage.job.is_some())).collect();
    assert_eq!(shown, [("build", State::Queued, true), ("test", State::Queued, false)]);
    let offer = world.claim(&world.worker("w").await, at(1)).await;
    let held = world.store.held(&offer.lease).await.unwrap().unwrap();
    let work = Work {
        document: text.into_bytes(),
        position: 0,
        name: "build".to_owned(),
        timeout: Duration::from_secs(100),
    };
    assert_eq!((held.work, held.offered_at, held.until, held.source), (work, at(1), at(11), None));
    let other = Lease { epoch: 2, ..offer.lease };
    assert_eq!(world.store.held(&other).await.unwrap(), None, "another lease");
}

pub(crate) async fn the_same_key_is_the_same_run(world: &World) {
    let (text, other) = (document(&["a"]), document(&["b"]));
    let (run, other_run) = (parse(&text), parse(&other));
    let keyed = |key, scope| Idempotency { scope, key, fingerprint: Digest::of(text.as_bytes()) };
    let submission = |idempotency| Submission {
        run: &run,
        document: text.as_bytes(),
        source: None,
        retries: 0,
        idempotency: Some(idempotency),
    };
    let send = async |submission| world.store.submit(submission, &Actor::System, START).await;
    let Submitted::New(first) = send(submission(keyed("k", "alice"))).await.unwrap() else {
        panic!("replayed")
    };
    assert_eq!(send(submission(keyed("k", "alice"))).await.unwrap(), Submitted::Replayed(first.clone()));
    let different = Submission {
        run: &other_run,
        document: other.as_bytes(),
        source: None,
        retries: 0,
        idempotency: Some(Idempotency { fingerprint: Digest::of(other.as_bytes()), ..keyed("k", "alice") }),
    };
    assert!(matches!(send(different).await, Err(SubmitFault::KeyReused)));
    for new in [keyed("k", "bob"), keyed("k2", "alice")] {
        assert!(matches!(send(submission(new)).await.unwrap(), Submitted::New(_)));
    }
    assert_eq!(world.store.runs(every(10)).await.unwrap().rows.len(), 3);
    assert_eq!(world.store.forget_keys(at(1)).await.unwrap(), 3);
    assert!(matches!(send(submission(keyed("k", "alice"))).await.unwrap(), Submitted::New(_)));
}

pub(crate) async fn one_key_sent_at_once_makes_one_run(world: &World) {
    let text = document(&["a"]);
    let run = parse(&text);
    let idempotency = Some(Idempotency { scope: "s", key: "k", fingerprint: Digest::of(b"same") });
    let submission =
        Submission { run: &run, document: text.as_bytes(), source: None, retries: 0, idempotency };
    let send = || world.store.submit(submission, &Actor::System, START);
    let answers = tokio::join!(send(), send(), send(), send());
    let answers = [answers.0.unwrap(), answers.1.unwrap(), answers.2.unwrap(), answers.3.unwrap()];
    let new = answers.iter().filter(|answer| matches!(answer, Submitted::New(_))).count();
    let id = |answer: &Submitted| match answer {
        Submitted::New(id) | Submitted::Replayed(id) => id.clone(),
    };
    assert_eq!((new, answers.iter().all(|answer| id(answer) == id(&answers[0]))), (1, true), "{answers:?}");
    assert_eq!(world.store.runs(every(10)).await.unwrap().rows.len(), 1);
}

pub(crate) async fn an_unknown_project_has_no_runs(world: &World) {
    let text = document(&["a"]).replace("acme", "other");
    let run = parse(&text);
    let submission =
        Submission { run: &run, document: text.as_bytes(), source: None, retries: 0, idempotency: None };
    let refused = world.store.submit(submission, &Actor::System, START).await;
    assert!(matches!(refused, Err(SubmitFault::UnknownProject(unknown)) if unknown == project("other")));
    assert_eq!(world.store.runs(every(10)).await.unwrap().rows, []);
}

pub(crate) async fn pages_do_not_shift(world: &World) {
    let mut submitted = Vec::new();
    for second in 0..7 {
        submitted.push(world.submit_with(&document(&["a"]), 0, at(second)).await);
    }
    let acme = project("acme");
    let three = Asked { project: Some(&acme), ..every(3) };
    let first = world.store.runs(three).await.unwrap();
    world.submit_with(&document(&["late"]), 0, at(100)).await;
    let second = world.store.runs(Asked { after: first.next.as_ref(), ..three }).await.unwrap();
    let third = world.store.runs(Asked { after: second.next.as_ref(), ..three }).await.unwrap();
    assert_eq!((first.next.is_some(), second.next.is_some(), third.next), (true, true, None));
    let seen: Vec<_> = [first.rows, second.rows, third.rows].concat().into_iter().map(|run| run.id).collect();
    submitted.reverse();
    assert_eq!(seen, submitted);
    let nobodys = project("other");
    assert_eq!(world.store.runs(Asked { project: Some(&nobodys), ..three }).await.unwrap().rows, []);
    world.store.cancel(&submitted[2], "enough", &Actor::System, at(200)).await.unwrap();
    for asked in [every(9), three] {
        let cancelled = Asked { state: Some(RunState::Cancelled), ..asked };
        let rows = world.store.runs(cancelled).await.unwrap().rows;
        assert_eq!(rows.into_iter().map(|run| run.id).collect::<Vec<_>>(), [submitted[2].clone()]);
    }
    assert_eq!(world.store.runs(every(1000)).await.unwrap().rows.len(), 8);
}

pub(crate) async fn a_run_works_on_a_source_of_its_own_project(world: &World) {
    let (acme, other) = (project("acme"), project("other"));
    let bundle = |project| NewBundle {
        project,
        place: "blobs/1",
        digest: Digest::of(b"ciphertext"),
        input: Digest::of(b"tree"),
        size: 10,
        key: b"the key",
    };
    let system = Actor::System;
    let mine = world.store.store_bundle(bundle(&acme), &system, START).await.unwrap();
    let theirs = world.store.store_bundle(bundle(&other), &system, START).await.unwrap();
    let text = document(&["a"]);
    let run = parse(&text);
    let submission = Submission {
        run: &run,
        document: text.as_bytes(),
        source: Some(&theirs),
        retries: 0,
        idempotency: None,
    };
    let refused = world.store.submit(submission, &system, START).await;
    assert!(matches!(refused, Err(SubmitFault::UnknownSource(unknown)) if unknown == theirs));
    let given = Submission { source: Some(&mine), ..submission };
    let Submitted::New(id) = world.store.submit(given, &system, START).await.unwrap() else {
        panic!("replayed")
    };
    let source = SourceView { bundle: mine.clone(), input: Digest::of(b"tree"), size: 10 };
    assert_eq!(world.store.source(&id).await.unwrap(), Some(source));
    assert_eq!(world.run(&id).await.source, Some(mine));
    assert_eq!(world.store.project_of(&id).await.unwrap(), Some(acme));
    let nothing = world.submit(&text).await;
    assert_eq!(world.store.source(&nothing).await.unwrap(), None);
    assert_eq!(world.store.forget_bundles(START).await.unwrap(), [""; 0]);
    assert_eq!(world.store.forget_bundles(at(1)).await.unwrap(), ["blobs/1"], "nobody works on theirs");
    assert_eq!(world.store.forget_bundles(at(1)).await.unwrap(), [""; 0], "a run works on mine");
}

fn every(limit: u32) -> Asked<'static> {
    Asked { project: None, state: None, after: None, limit }
}
