//! An engine that is stopped, or started anew, as an init system does it, in the middle of a run: the job ends with it and is told
//! apart from one that failed, what it made is kept where it lies on this host's disk, and nothing is left when the engine is back.

use std::process::Child;

use serde_json::json;

use super::daemon::Daemon;
use super::killed::{bystander, nothing_of_ours_is_left, start, swept};
use crate::support::{World, names};

/// What a run says whose engine went.
fn told(pond: Child, world: &World, way: &str) {
    let output = pond.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("[engine_gone]"), "{said}");
    if way == "stream" {
        assert!(said.contains("result not collected"), "{said}");
        return;
    }
    assert_eq!(output.status.code(), Some(137), "{said}");
    let last = names(&world.state().join("runs")).into_iter().max().unwrap();
    let applied = world.run(&["apply", &last]);
    assert_eq!((applied.code, world.read("made")), (0, "work\n".to_owned()), "{applied:?}");
    std::fs::remove_file(world.project().join("made")).unwrap();
}

fn stopped(way: &str) {
    let (mut daemon, world) = (Daemon::start(), World::new());
    // A first run brings the image.
    assert_eq!(daemon.run(&world, &["run", "-q", "--backend", "docker", "--", "true"]).code, 0);
    bystander(&daemon, "pond-20200101-000000-bystander");
    daemon.api("POST", "/volumes/create", Some(&json!({ "Name": "pond-bystander" })));
    let bystanders = daemon.containers();

    // It stays away for a while: whoever runs something else meanwhile does not wait for it.
    let pond = start(&daemon, &world, "docker", way);
    daemon.stop();
    told(pond, &world, way);
    assert_eq!(world.run(&["run", "-q", "--", "true"]).code, 0);
    daemon.restart();
    swept(&daemon, &world);
    nothing_of_ours_is_left(&daemon, &world, &bystanders);

    // It is back at once, perhaps before pond has asked it anything.
    let pond = start(&daemon, &world, "gvisor", way);
    daemon.stop();
    daemon.restart();
    told(pond, &world, way);
    swept(&daemon, &world);
    nothing_of_ours_is_left(&daemon, &world, &bystanders);
    let done = daemon.run(&world, &["run", "-q", "--backend", "docker", "--", "echo", "again"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, "again\n"), "{done:?}");
}

#[test]
fn an_engine_that_is_stopped_or_restarted_leaves_nothing_of_a_job() {
    stopped("bind");
}

#[test]
fn an_engine_that_is_stopped_or_restarted_leaves_nothing_of_a_streamed_job() {
    stopped("stream");
}
