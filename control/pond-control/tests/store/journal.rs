//! What is written down: every move, in order, for followers too, and no secret.

use pond_control::store::{Action, Actor, Completed, Completion, Outcome, Place, Spent};
use pond_policy::stage::State;
use serde_json::json;

use super::world::{START, World, at, document, name, project};

const WHOLE: [Action; 8] = [
    Action::RunSubmitted,
    Action::StageQueued,
    Action::StageLeased,
    Action::StageRunning,
    Action::ResultAccepted,
    Action::StageEnded,
    Action::RunEnded,
    Action::StageRequeued,
];

pub(crate) async fn every_move_is_written_down_once_and_told(world: &World) {
    let run = world.submit(&document(&["a"])).await;
    let worker = world.worker("w").await;
    world.started(&worker, START).await;
    world.store.expire(at(61)).await.unwrap();
    let offer = world.started(&worker, at(62)).await;
    // As a worker's result comes: with nothing to say about it.
    let (lease, spent, envelope) = (&offer.lease, Spent::default(), b"signed".as_slice());
    let ordinary = Completion { lease, outcome: Outcome::Succeeded, reason: "", spent, envelope };
    assert_eq!(world.store.complete(ordinary, at(63)).await.unwrap(), Completed::Accepted(State::Succeeded));
    let expected = [0, 1, 2, 3, 7, 2, 3, 4, 5, 6].map(|number: usize| WHOLE[number]);
    let events = world.store.events(&run, Place::default(), 100).await.unwrap();
    assert_eq!(events.iter().map(|event| event.action).collect::<Vec<_>>(), expected);
    let audit = world.store.audit(None, Place::default(), 100).await.unwrap();
    let about_run = audit.iter().filter(|entry| WHOLE.contains(&entry.action));
    assert_eq!(about_run.map(|entry| entry.action).collect::<Vec<_>>(), expected);
    let (job, worker_name) = (offer.lease.job.as_str(), worker.as_str());
    let told = |at: usize| serde_json::from_str::<serde_json::Value>(&events[at].detail).unwrap();
    assert_eq!(told(5), json!({"job": job, "worker": worker_name, "epoch": 2}));
    assert_eq!(told(6), json!({"job": job, "epoch": 2}));
    assert_eq!((&told(7)["job"], &told(7)["outcome"]), (&json!(job), &json!("succeeded")));
    assert_eq!(told(8), json!({"state": "succeeded", "reason": "", "code": ""}));
    assert_eq!(told(9), json!({"state": "succeeded"}));
    let accepted = audit.iter().find(|entry| entry.action == Action::ResultAccepted).unwrap();
    assert_eq!((&accepted.actor, accepted.project.as_deref()), (&worker.to_string(), Some("acme")));
    let before = audit.len();
    // What changes nothing writes nothing.
    world.store.expire(at(64)).await.unwrap();
    assert_eq!(world.store.complete(ordinary, at(64)).await.unwrap(), Completed::Replayed);
    world.nothing_for(&worker, at(64)).await;
    assert_eq!(world.store.audit(None, Place::default(), 100).await.unwrap().len(), before);
}

pub(crate) async fn nothing_secret_is_written_down(world: &World) {
    let system = Actor::System;
    let (acme, key) = (project("acme"), name("K"));
    world.store.set_credential(Some(&acme), &key, b"planted-secret", &system, START).await.unwrap();
    world.store.release_credential(&acme, &key, (&system, None), at(1)).await.unwrap();
    let audit = world.store.audit(None, Place::default(), 100).await.unwrap();
    let actions: Vec<Action> = audit.iter().map(|entry| entry.action).collect();
    assert_eq!(actions, [Action::ProjectCreated, Action::CredentialSet, Action::CredentialReleased]);
    assert!(!format!("{audit:?}").contains("planted"));
    let path = world.address.strip_prefix("sqlite:");
    for file in path.into_iter().flat_map(|path| [path.to_owned(), format!("{path}-wal")]) {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!bytes.windows(14).any(|window| window == b"planted-secret"), "{file}");
    }
}

pub(crate) async fn readers_go_on_where_they_stopped(world: &World) {
    let run = world.submit(&document(&["a", "b", "c a"])).await;
    let other = world.submit(&document(&["a"])).await;
    let all = world.store.events(&run, Place::default(), 100).await.unwrap();
    let mut place = Place::default();
    let mut seen = Vec::new();
    loop {
        let page = world.store.events(&run, place, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        place = Place::parse(&last.place.to_string()).unwrap();
        seen.extend(page);
    }
    assert_eq!((seen.len(), &seen), (3, &all));
    assert_eq!(world.store.events(&other, Place::default(), 100).await.unwrap().len(), 2);
    for bad in ["", "1", "1-", "-1-2", "01-2", "1-2-3", "a-b", "1-99999999999999999999"] {
        assert_eq!(Place::parse(bad), None, "{bad}");
    }
}

pub(crate) async fn a_refused_call_is_written_down_for_its_project(world: &World) {
    let (acme, other) = (project("acme"), project("other"));
    let call = async |project| {
        let detail = serde_json::json!({"code": "scope_missing"});
        let who = (&Actor::Nobody, Action::RequestRefused);
        world.store.note_for(project, who, "GET /v1/runs", detail, START).await.unwrap();
    };
    call(None).await;
    call(Some(&acme)).await;
    let read = async |project| {
        let entries = world.store.audit(project, Place::default(), 100).await.unwrap();
        entries.into_iter().filter(|entry| entry.action == Action::RequestRefused).collect::<Vec<_>>()
    };
    let entries = read(None).await;
    assert_eq!(entries.len(), 2);
    assert_eq!((entries[0].actor.as_str(), entries[0].subject.as_str()), ("nobody", "GET /v1/runs"));
    assert_eq!((read(Some(&acme)).await, read(Some(&other)).await), (entries[1..].to_vec(), Vec::new()));
}
