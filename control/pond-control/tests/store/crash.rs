//! Somebody pulls the plug. What a caller was told is there afterwards, and the store goes on.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use pond_control::store::{Actor, Asked, Outcome, RunId, StageId, Store};

use super::server::{Disk, Server};
use super::world::{START, World, block_on, document, project, submit};

/// Set for the process that writes until it is killed: the store's address.
const ROLE: &str = "POND_TEST_WRITE_TO";
/// Acknowledged writes before the plug is pulled.
const ENOUGH: usize = 60;

/// What the other tests execute: this test binary again, as a writer. Run as a test it has nothing to write to.
#[test]
fn writer_process() {
    let Ok(address) = std::env::var(ROLE) else { return };
    block_on(async {
        let world = World::open(address).await;
        // Several at once, so that some share a commit when the plug is pulled.
        tokio::join!(write(&world, 0), write(&world, 1), write(&world, 2));
    });
}

async fn write(world: &World, number: u32) {
    let worker = world.worker(&format!("writer-{}-{number}", std::process::id())).await;
    loop {
        let run = world.submit(&document(&["a", "b a"])).await;
        tell(&format!("submitted {run}"));
        for offer in world.store.claim((&worker, 0), 1, START).await.unwrap() {
            world.complete(&offer.lease, Outcome::Succeeded, START).await;
            tell(&format!("completed {}", offer.stage));
        }
    }
}

/// On standard error: a test's standard output belongs to its runner.
fn tell(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Starts a writer, lets it write, pulls the plug, and returns what it had been told.
fn write_until(address: &str, plug: impl FnOnce()) -> Vec<String> {
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::writer_process", "--nocapture"])
        .env(ROLE, address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(writer.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut told: Vec<String> = lines.by_ref().take(ENOUGH).collect();
    plug();
    writer.kill().unwrap();
    told.extend(lines);
    writer.wait().unwrap();
    told.retain(|line| line.starts_with("submitted ") || line.starts_with("completed "));
    assert!(told.len() >= ENOUGH, "the writer failed: {told:?}");
    told
}

async fn check(store: &Store, told: &[String]) {
    let mut runs = Vec::new();
    let mut after = None;
    loop {
        let page = store
            .runs(Asked { project: None, state: None, after: after.as_ref(), limit: 200 })
            .await
            .unwrap();
        runs.extend(page.rows.into_iter().map(|run| run.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    for line in told {
        let (what, id) = line.split_once(' ').unwrap();
        if what == "submitted" {
            assert!(runs.contains(&RunId::parse(id).unwrap()), "{id} was acknowledged and is gone");
        } else {
            let stage = StageId::parse(id).unwrap();
            assert_eq!(store.results(&stage).await.unwrap().len(), 1, "{id}");
        }
    }
    // No run is in between: its stages are as its events say, and it goes on.
    for run in &runs {
        let view = store.run(run).await.unwrap().unwrap();
        assert_eq!(view.stages.len(), 2, "{view:?}");
    }
    submit(store, &document(&["a", "b a"]), 0, START).await;
}

#[test]
fn a_killed_process_loses_nothing_it_was_told() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", directory.path().join("pond.db").display());
    for _ in 0..3 {
        block_on(async { prepare(&address).await.store.close().await });
        let told = write_until(&address, || {});
        block_on(async {
            let world = World::open(address.clone()).await;
            check(&world.store, &told).await;
            world.store.close().await;
        });
    }
}

#[test]
fn a_killed_postgres_loses_nothing_it_acknowledged() {
    let mut server = Server::start(Disk::Durable);
    let address = server.database("crash");
    for _ in 0..2 {
        block_on(async { prepare(&address).await.store.close().await });
        let told = write_until(&address, || server.kill());
        server.launch();
        block_on(async {
            let world = World::open(address.clone()).await;
            check(&world.store, &told).await;
            world.store.close().await;
        });
    }
}

/// A control plane whose Postgres goes away and comes back finds it again.
#[test]
fn a_store_outlives_its_postgres() {
    let mut server = Server::start(Disk::Durable);
    let address = server.database("back");
    block_on(async {
        let world = prepare(&address).await;
        let run = world.submit(&document(&["a"])).await;
        server.kill();
        world.store.run(&run).await.unwrap_err();
        server.launch();
        let mut tries = 0;
        // Each connection of the pool has to find out once.
        while world.store.run(&run).await.is_err() {
            tries += 1;
            assert!(tries < 20, "the store never came back");
        }
        assert_eq!(world.run(&run).await.run.open_stages, 1);
        world.store.close().await;
    });
}

async fn prepare(address: &str) -> World {
    let world = World::open(address.to_owned()).await;
    world.store.create_project(&project("acme"), &Actor::System, START).await.unwrap();
    world
}
