//! What a person got wrong is told as what it is, and before anything was begun for it.

use std::fs::create_dir;

use crate::done::Done;
use crate::support::World;

#[test]
fn a_directory_is_no_command() {
    let world = World::new();
    create_dir(world.project().join("src")).unwrap();
    let done = world.run(&["run", "--", "./src"]);
    let says = "the command is a directory: name a program in it";
    assert!(done.code == 125 && done.stderr.contains(says), "{done:?}");
}

#[test]
fn a_setting_that_no_backend_understands_is_refused_on_every_one() {
    let world = World::new();
    let mut pond = world.pond(&["run", "--backend", "native", "--", "echo", "ran"]);
    let done = Done::of(pond.env("POND_CONTAINER_TRANSFER", "tar").output().unwrap());
    let says = "POND_CONTAINER_TRANSFER is \"tar\"";
    assert!(done.code == 125 && done.stdout.is_empty() && done.stderr.contains(says), "{done:?}");
}

#[test]
fn an_attack_on_a_backend_that_is_not_there_is_not_begun() {
    let world = World::new();
    let mut pond = world.pond(&["attack", "--backend", "docker"]);
    let done = Done::of(pond.env("DOCKER_HOST", "unix:///nonexistent/docker.sock").output().unwrap());
    assert!(done.code != 0 && done.stderr.contains("no container engine answers"), "{done:?}");
    assert!(!done.stderr.contains("unconfined"), "{done:?}");
}
