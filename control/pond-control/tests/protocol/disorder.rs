//! An orchestrator that keeps everything it ever saw and delivers, repeats, misdirects and damages it in any order, before the real
//! doors. It gains nothing: a call counts once, where it was made for; a job's result is one its holder signed.

use pond_wire::orch::Route;
use proptest::prelude::*;

use super::turns::turning;
use super::whole::finished;
use super::worker::{Sent, Worker, deliver, lease};
use super::world::{World, block_on, plain};

#[derive(Debug, Clone, Copy)]
enum Act {
    Poll,
    Acknowledge,
    Complete,
    /// The end of a job nobody began, and the question for the next.
    Turn,
    Deliver,
    Repeat,
    Misdirect,
    Damage,
}

const ACTS: [Act; 8] = [
    Act::Poll,
    Act::Acknowledge,
    Act::Complete,
    Act::Turn,
    Act::Deliver,
    Act::Repeat,
    Act::Misdirect,
    Act::Damage,
];

/// Everything it ever saw: calls, and how often each was served.
#[derive(Default)]
struct Memory {
    calls: Vec<(Sent, usize)>,
    signed: Vec<Vec<u8>>,
}

async fn act(
    world: &World,
    workers: &mut [Worker],
    memory: &mut Memory,
    (act, who, which): (Act, usize, usize),
) {
    let worker = &mut workers[who % 2];
    match act {
        Act::Poll => memory.calls.push((worker.polling().0, 0)),
        Act::Acknowledge => {
            if let Ok(Some(offer)) = worker.poll().await {
                let body =
                    pond_wire::orch::Acknowledge { version: pond_wire::orch::Version, lease: lease(&offer) };
                memory.calls.push((worker.signed(Route::Acknowledge, &body).0, 0));
            }
        }
        Act::Complete => {
            if let Ok(Some(offer)) = worker.poll().await {
                worker.acknowledge(&offer).await.unwrap();
                let envelope = finished(worker, &offer).await;
                let body = worker.completion(&offer, envelope.clone());
                memory.calls.push((worker.signed(Route::Complete, &body).0, 0));
                memory.signed.push(envelope);
            }
        }
        Act::Turn => {
            if let Ok(Some(offer)) = worker.poll().await {
                let (body, envelope) = turning(worker, &offer);
                memory.calls.push((worker.signed(Route::Complete, &body).0, 0));
                memory.signed.push(envelope);
            }
        }
        Act::Deliver | Act::Repeat => {
            let count = memory.calls.len();
            if let Some((sent, served)) = memory.calls.get_mut(which % count.max(1)) {
                *served += usize::from(deliver(world.at, sent).await.0 == 200);
                assert!(*served <= 1, "{} was served twice", sent.path);
            }
        }
        Act::Misdirect | Act::Damage => {
            let Some((mut sent, _)) = memory.calls.get(which % memory.calls.len().max(1)).cloned() else {
                return;
            };
            if matches!(act, Act::Misdirect) {
                let other =
                    Route::ALL.into_iter().filter(|route| route.path() != sent.path).nth(which % 7 + 2);
                sent.path = other.unwrap().path().to_owned();
            } else {
                let at = which % sent.body.len();
                sent.body[at] ^= 1;
            }
            assert_ne!(deliver(world.at, &sent).await.0, 200, "{sent:?}");
        }
    }
}

async fn play(steps: Vec<(usize, usize, usize)>) {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", directory.path().join("pond.db").display());
    let world = World::open(address, directory.path().into(), Default::default()).await;
    let acme = super::world::project("acme");
    let (actor, now) = (pond_control::store::Actor::System, super::world::clock());
    world.plane.store.create_project(&acme, &actor, now).await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..6 {
        runs.push(world.submit(&plain()).await);
    }
    let mut workers = [world.worker().await, world.worker().await];
    let mut memory = Memory::default();
    for (what, who, which) in steps {
        act(&world, &mut workers, &mut memory, (ACTS[what], who, which)).await;
    }
    for run in runs {
        let view = world.plane.store.run(&run).await.unwrap().unwrap();
        let results = world.plane.store.results(&view.stages[0].id).await.unwrap();
        assert!(results.len() <= 1, "{results:?}");
        for result in results {
            assert!(memory.signed.contains(&result.envelope), "a result that nobody signed");
        }
    }
    world.plane.store.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn no_sequence_of_acts_gains_anything(steps in proptest::collection::vec((0..ACTS.len(), 0..2_usize, 0..40_usize), 10..40)) {
        block_on(play(steps));
    }
}
