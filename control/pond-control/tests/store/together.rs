//! Several control planes, or several connections of one, work on the same runs at once: every stage ends once.

use std::collections::BTreeMap;
use std::time::Duration;

use pond_control::store::{Action, Completed, Completion, Outcome, Place, Spent, Store, WorkerId};
use sqlx::Connection as _;

use super::world::{START, World, at, document, submit};

const RUNS: usize = 12;

/// Claims, runs and completes until nothing is left; some jobs it forgets about.
async fn work(store: &Store, worker: &WorkerId, forgets: bool) -> usize {
    let mut accepted = 0;
    let mut idle = 0;
    while idle < 20 {
        let offers = store.claim((worker, 0), 2, at(1)).await.unwrap();
        idle = if offers.is_empty() { idle + 1 } else { 0 };
        for (offer, number) in offers.iter().zip(0..) {
            if forgets && number == 1 {
                store.give_back(&offer.lease, at(1)).await.unwrap();
                continue;
            }
            store.acknowledge(&offer.lease, at(1)).await.unwrap();
            let completion = Completion {
                lease: &offer.lease,
                outcome: Outcome::Succeeded,
                reason: "",
                spent: Spent::default(),
                envelope: b"e",
            };
            let answers = tokio::join!(store.complete(completion, at(2)), store.complete(completion, at(2)));
            let answers = [answers.0.unwrap(), answers.1.unwrap()];
            accepted += answers.iter().filter(|answer| matches!(answer, Completed::Accepted(_))).count();
        }
        tokio::task::yield_now().await;
    }
    accepted
}

pub(crate) async fn two_control_planes_share_the_work(world: &World) {
    let beside = world.beside().await;
    let text = document(&["a", "b a", "c a", "d b,c"]);
    let mut runs = Vec::new();
    for number in 0..RUNS {
        let store = if number % 2 == 0 { &world.store } else { &beside };
        runs.push(submit(store, &text, 0, START).await);
    }
    let workers = [world.worker("a").await, world.worker("b").await, world.worker("c").await];
    let done = tokio::join!(
        work(&world.store, &workers[0], true),
        work(&beside, &workers[1], true),
        work(&beside, &workers[2], false),
    );
    let rest = work(&world.store, &workers[0], false).await;
    assert_eq!(done.0 + done.1 + done.2 + rest, RUNS * 4);
    for run in &runs {
        let told = world.told(run).await;
        assert_eq!(told, ["a succeeded", "b succeeded", "c succeeded", "d succeeded", "run succeeded"]);
    }
    // The invariant is read from the log, not from the tables it describes.
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    let mut place = Place::default();
    loop {
        let page = world.store.audit(None, place, 100).await.unwrap();
        let Some(last) = page.last() else { break };
        place = last.place;
        for entry in page.iter().filter(|entry| matches!(entry.action, Action::StageEnded | Action::RunEnded))
        {
            *ends.entry(entry.subject.clone()).or_default() += 1;
        }
    }
    assert_eq!((ends.len(), ends.values().all(|count| *count == 1)), (RUNS * 5, true), "{ends:?}");
    beside.close().await;
}

/// Calls of one kind are asked together; one whose run somebody else holds keeps nobody else. On SQLite there is one writer, and no
/// row that is held.
pub(crate) async fn who_waits_for_a_row_waits_alone(world: &World) {
    if world.address.starts_with("sqlite:") {
        return;
    }
    let worker = world.worker("w").await;
    let mut leases = Vec::new();
    for _ in 0..2 {
        world.submit(&document(&["a"])).await;
        let offer = world.started(&worker, START).await;
        leases.push((offer.run, offer.lease));
    }
    let [(held, waits), (_, passes)] = leases.as_slice() else { panic!("{leases:?}") };
    let completion = |lease| Completion {
        lease,
        outcome: Outcome::Succeeded,
        reason: "",
        spent: Spent::default(),
        envelope: b"e",
    };
    let mut elsewhere = sqlx::PgConnection::connect(&world.address).await.unwrap();
    let mut holding = elsewhere.begin().await.unwrap();
    let lock = "SELECT 1 FROM run WHERE id = $1 FOR UPDATE";
    sqlx::query(lock).bind(held.as_str()).fetch_one(&mut *holding).await.unwrap();
    let waiting = world.store.complete(completion(waits), at(2));
    let passing = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let done = world.store.complete(completion(passes), at(2));
        let done = tokio::time::timeout(Duration::from_secs(20), done).await.map(Result::unwrap);
        holding.commit().await.unwrap();
        done
    };
    let (waited, passed) = tokio::join!(waiting, passing);
    assert!(matches!(passed, Ok(Completed::Accepted(_))), "{passed:?}");
    assert!(matches!(waited, Ok(Completed::Accepted(_))), "{waited:?}");
}

/// Lookups are asked together too: everybody hears of its own worker, and of what was changed here since.
pub(crate) async fn workers_looked_up_at_once_are_each_themselves(world: &World) {
    let store = &world.store;
    let (one, other) = (world.worker("one").await, world.worker("other").await);
    let nobody = WorkerId::parse("worker_00000000000000000000000000000000").unwrap();
    let seen = async || {
        let ask =
            async |id| store.known_worker(id).await.unwrap().map(|worker| (worker.name, worker.seen_at));
        tokio::join!(ask(&one), ask(&other), ask(&nobody), ask(&one))
    };
    let known = |name: &str, seen_at| Some((name.to_owned(), seen_at));
    assert_eq!(seen().await, (known("one", START), known("other", START), None, known("one", START)));
    store.set_capabilities(&one, &[], at(9)).await.unwrap();
    assert_eq!(seen().await, (known("one", at(9)), known("other", START), None, known("one", at(9))));
}
