//! No-op jobs a second. All take turns, each turn on an empty database; the Postgres is one, with its commits on disk.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::protocol::{Control, Worker};
use crate::server::{Disk, Server};
use crate::{block_on, say};

#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) jobs: u32,
    /// Each has one job at a time.
    pub(crate) workers: u32,
}

/// A line per turn: who, how many jobs, in how many nanoseconds.
pub(crate) fn measure(load: Load, rounds: u32, peers: &str, modules: &str) {
    let server = Server::start(Disk::Durable);
    for round in 0..rounds {
        let directory = tempfile::tempdir().unwrap();
        let file = format!("sqlite:{}", directory.path().join("pond.db").display());
        tell("sqlite", load, block_on(dispatch(load, file)));
        tell("postgres", load, block_on(dispatch(load, server.database(&format!("pond_{round}")))));
        for peer in ["pg-boss", "graphile-worker"] {
            let database = server.database(&format!("{}_{round}", peer.replace('-', "_")));
            tell(peer, load, of_peer(load, (peers, modules), peer, &database));
        }
    }
}

fn tell(who: &str, load: Load, took: Duration) {
    say(&format!("{who} {} {}", load.jobs, took.as_nanos()));
}

fn of_peer(load: Load, (peers, modules): (&str, &str), peer: &str, database: &str) -> Duration {
    let mut node = Command::new("node");
    node.args([peers, peer, database, &load.jobs.to_string(), &load.workers.to_string()]);
    let output = node.env("NODE_PATH", modules).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let nanoseconds = said.trim().parse();
    Duration::from_nanos(nanoseconds.unwrap_or_else(|_| {
        panic!("{peer}: {said}{}", String::from_utf8_lossy(&output.stderr));
    }))
}

/// From the first poll to the last accepted result. What is queued is queued before.
async fn dispatch(load: Load, address: String) -> Duration {
    let control = Arc::new(Control::open(&address).await);
    let mut workers = Vec::new();
    for _ in 0..load.workers {
        workers.push(control.worker().await);
    }
    for _ in 0..load.jobs {
        control.submit().await;
    }
    control.tell();
    let started = Instant::now();
    let working: Vec<_> = workers.into_iter().map(|worker| tokio::spawn(work(worker))).collect();
    let mut done = 0;
    for worker in working {
        done += worker.await.unwrap();
    }
    let took = started.elapsed();
    assert_eq!(done, load.jobs, "some jobs were not dispatched");
    control.close().await;
    took
}

/// Until there is no more.
async fn work(worker: Worker) -> u32 {
    let mut done = 0;
    while let Some(offer) = worker.poll().await {
        worker.carry_out(&offer).await;
        done += 1;
    }
    done
}
