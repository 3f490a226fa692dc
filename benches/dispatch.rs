//! Measures the store at the protocol: no-op jobs claimed, acknowledged and completed a second, on SQLite and on a durable
//! Postgres of its own. Each job is a run of one stage; each completion ends a run, with its audit entries and events.
//! `dispatch [JOBS [WORKERS [BATCH]]]` prints one line per engine.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "an instrument stops at the first surprise, and starts what it measures"
)]

#[path = "../control/pond-control/tests/store/server.rs"]
#[expect(dead_code, reason = "the tests need more of it")]
mod server;
#[path = "../control/pond-control/tests/store/world.rs"]
#[expect(dead_code, reason = "the tests need more of it")]
mod world;

use std::io::Write as _;
use std::time::Instant;

use pond_control::store::{Completed, Outcome, WorkerId};
use server::{Disk, Server};
use world::{START, World, block_on, document, project};

struct Load {
    jobs: usize,
    workers: usize,
    /// Jobs asked for at once.
    batch: u32,
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u32>().unwrap());
    let mut next = |default| numbers.next().unwrap_or(default);
    let size = |number: u32| usize::try_from(number).unwrap();
    let load = Load { jobs: size(next(4000)), workers: size(next(8)), batch: next(1) };
    let directory = tempfile::tempdir().unwrap();
    report("sqlite", &load, format!("sqlite:{}", directory.path().join("pond.db").display()));
    let server = Server::start(Disk::Durable);
    report("postgres", &load, server.database("dispatch"));
}

fn report(engine: &str, load: &Load, address: String) {
    let (submitted, dispatched) = block_on(measure(load, address));
    let mut out = std::io::stdout();
    let Load { jobs, workers, batch } = load;
    writeln!(
        out,
        "{engine}: {jobs} jobs, {workers} workers, {batch} a claim: {submitted:.0} submitted/s, {dispatched:.0} claimed+acknowledged+completed/s"
    )
    .unwrap();
}

/// Per second: submissions, and whole dispatches.
async fn measure(load: &Load, address: String) -> (f64, f64) {
    let world: &'static World = Box::leak(Box::new(World::open(address).await));
    world.store.create_project(&project("acme"), &pond_control::store::Actor::System, START).await.unwrap();
    let text = document(&["noop"]);
    let started = Instant::now();
    let share = load.jobs / load.workers;
    let submitters = (0..load.workers).map(|_| {
        let text = text.clone();
        tokio::spawn(async move {
            for _ in 0..share {
                world.submit(&text).await;
            }
        })
    });
    for submitter in submitters.collect::<Vec<_>>() {
        submitter.await.unwrap();
    }
    let submitted = rate(share * load.workers, started);
    let mut ids = Vec::new();
    for number in 0..load.workers {
        ids.push(world.worker(&format!("w{number}")).await);
    }
    let started = Instant::now();
    let batch = load.batch;
    let workers: Vec<_> = ids.into_iter().map(|id| tokio::spawn(work(world, id, batch))).collect();
    let mut done = 0;
    for worker in workers {
        done += worker.await.unwrap();
    }
    assert_eq!(done, share * load.workers, "some jobs were not dispatched");
    (submitted, rate(done, started))
}

async fn work(world: &World, worker: WorkerId, batch: u32) -> usize {
    let mut done = 0;
    loop {
        let offers = world.store.claim(&worker, batch, START).await.unwrap();
        if offers.is_empty() {
            return done;
        }
        for offer in offers {
            world.store.acknowledge(&offer.lease, START).await.unwrap();
            let completed = world.complete(&offer.lease, Outcome::Succeeded, START).await;
            assert!(matches!(completed, Completed::Accepted(_)));
            done += 1;
        }
    }
}

fn rate(count: usize, since: Instant) -> f64 {
    f64::from(u32::try_from(count).unwrap()) / since.elapsed().as_secs_f64()
}
