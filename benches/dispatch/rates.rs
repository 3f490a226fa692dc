//! No-op jobs a second, and what a job costs in processor time. All take turns, each turn on an empty database; the Postgres is
//! one, with its commits on disk.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cpu::Cpu;

use crate::protocol::{Control, Worker};
use crate::server::{Disk, Server};
use crate::{block_on, say};

#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) jobs: u32,
    /// Each has one job at a time.
    pub(crate) workers: u32,
}

/// What one turn took.
struct Turn {
    took: Duration,
    /// Of the workers, the orchestrator and the control plane; of a peer, of its process, from its start to its end.
    own: Duration,
    /// Of all processes of Postgres.
    database: Duration,
}

/// A line per turn: who, how many jobs, and nanoseconds: how long it took, and the processor time of its own and of Postgres.
pub(crate) fn measure(load: Load, rounds: u32, peers: Option<(&str, &str)>, only: Option<&str>) {
    let server = Server::start(Disk::Durable);
    let asked = |who: &str| only.is_none_or(|only| only == who);
    for round in 0..rounds {
        if asked("sqlite") {
            let directory = tempfile::tempdir().unwrap();
            let file = format!("sqlite:{}", directory.path().join("pond.db").display());
            tell("sqlite", load, &block_on(dispatch(load, file, &server)));
        }
        if asked("postgres") {
            let database = server.database(&format!("pond_{round}"));
            tell("postgres", load, &block_on(dispatch(load, database, &server)));
        }
        for peer in ["pg-boss", "graphile-worker"] {
            if let Some(peers) = peers {
                let database = server.database(&format!("{}_{round}", peer.replace('-', "_")));
                tell(peer, load, &of_peer(load, peers, peer, (&server, &database)));
            }
        }
    }
}

fn tell(who: &str, load: Load, Turn { took, own, database }: &Turn) {
    let [took, own, database] = [took, own, database].map(Duration::as_nanos);
    say(&format!("{who} {} {took} {own} {database}", load.jobs));
}

fn of_peer(
    load: Load,
    (peers, modules): (&str, &str),
    peer: &str,
    (server, database): (&Server, &str),
) -> Turn {
    let before = Cpu::now(server);
    let mut node = Command::new("node");
    node.args([peers, peer, database, &load.jobs.to_string(), &load.workers.to_string()]);
    let output = node.env("NODE_PATH", modules).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let nanoseconds = said.trim().parse();
    let took = Duration::from_nanos(nanoseconds.unwrap_or_else(|_| {
        panic!("{peer}: {said}{}", String::from_utf8_lossy(&output.stderr));
    }));
    let spent = Cpu::now(server).since(before);
    Turn { took, own: spent.children, database: spent.database }
}

/// From the first poll to the last accepted result: that the last polls of all wait for nothing is nobody's time. What is queued is
/// queued before.
async fn dispatch(load: Load, address: String, server: &Server) -> Turn {
    let control = Arc::new(Control::open(&address).await);
    let mut workers = Vec::new();
    for _ in 0..load.workers {
        workers.push(control.worker().await);
    }
    for _ in 0..load.jobs {
        control.submit().await;
    }
    control.tell();
    let (started, before) = (Instant::now(), Cpu::now(server));
    let working: Vec<_> = workers.into_iter().map(|worker| tokio::spawn(work(worker))).collect();
    let (mut done, mut last) = (0, started);
    for worker in working {
        let (jobs, ended) = worker.await.unwrap();
        (done, last) = (done + jobs, last.max(ended));
    }
    let (took, spent) = (last.duration_since(started), Cpu::now(server).since(before));
    assert_eq!(done, load.jobs, "some jobs were not dispatched");
    control.close().await;
    Turn { took, own: spent.own, database: spent.database }
}

/// Until there is no more. How many there were, and when the last was over.
async fn work(worker: Worker) -> (u32, Instant) {
    let (mut done, mut last) = (0, Instant::now());
    while let Some(first) = worker.poll().await {
        let mut next = Some(first);
        while let Some(offer) = next {
            next = worker.carry_out(&offer).await;
            (done, last) = (done + 1, Instant::now());
        }
    }
    (done, last)
}
