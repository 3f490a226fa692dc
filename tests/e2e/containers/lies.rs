//! A backend that is not really there is refused, and nothing of the job has run.

use super::daemon::{Daemon, LIAR};
use crate::done::Done;
use crate::support::{World, names};

/// The job would say so if it ran.
const JOB: [&str; 4] = ["--", "sh", "-c", "echo ran; echo ran > f"];

fn refused(done: &Done, why: &str) {
    assert!(done.code == 125 && done.stdout.is_empty() && done.stderr.contains(why), "{why:?}: {done:?}");
}

fn nothing_is_left(world: &World) {
    assert_eq!(names(&world.state().join("live")).len(), 0, "records");
    assert_eq!(names(&world.state().join("runs")).len(), 0);
    let scratch = names(&world.state().join("scratch"));
    assert!(scratch.iter().all(|name| name.ends_with(".image")), "{scratch:?}");
}

#[test]
fn a_runtime_that_is_not_what_it_claims_is_refused() {
    let (daemon, world) = (Daemon::start(), World::new());
    let run = |flags: &[&str], runtime: &str| {
        let arguments = [&["run"], flags, &JOB].concat();
        let mut pond = daemon.pond(&world, &arguments);
        Done::of(pond.env("SWARM_GVISOR_RUNTIME", runtime).output().unwrap())
    };
    let sealed = ["--backend", "gvisor", "--profile", "untrusted-code-read"];
    refused(&run(&sealed, LIAR), "isolation_mismatch: the runtime that should be gVisor");
    refused(&run(&sealed, "nosuch"), "no runtime \"nosuch\" is registered");
    refused(&run(&["--backend", "gvisor"], "runsc-own-network"), "a network stack of its own");
    assert_eq!(daemon.containers(), Vec::<String>::new());
    nothing_is_left(&world);
    // The control: the same job where the name is true.
    let done = run(&sealed, "runsc");
    assert!(done.stdout == "ran\n", "{done:?}");
}

/// runc is registered as `kata-fc`, the first name that is looked for.
#[test]
fn a_machine_that_is_none_is_refused() {
    let (daemon, world) = (Daemon::start(), World::new());
    daemon.import("tools", &["/bin/sh"], &[]);
    let run = |flags: &[&str], runtime: &str| {
        let arguments = [&["run", "--backend", "firecracker"], flags, &JOB].concat();
        let mut pond = daemon.pond(&world, &arguments);
        Done::of(pond.env("SWARM_KATA_RUNTIME", runtime).output().unwrap())
    };
    let sealed = ["--profile", "untrusted-code-read", "--image", "tools"];
    for runtime in ["", "kata-fc", LIAR, "runc"] {
        refused(
            &run(&sealed, runtime),
            "isolation_mismatch: the runtime that should be a virtual machine runs",
        );
    }
    // gVisor is no machine either, whatever it is called.
    refused(&run(&sealed, "runsc"), "isolation_mismatch: the runtime that should be a virtual machine says");
    refused(&run(&sealed, "nosuch"), "no runtime \"nosuch\" is registered");
    refused(&run(&["--image", "tools"], ""), "a network of its own");
    refused(&run(&["--profile", "untrusted-code-read"], ""), "name an image of the engine's with --image");
    let mut pond = daemon.pond(&world, &[&["run", "--backend", "firecracker"], &sealed[..], &JOB].concat());
    let bound = Done::of(pond.env("POND_CONTAINER_TRANSFER", "bind").output().unwrap());
    refused(&bound, "shares no directory with this host");
    assert_eq!(daemon.containers(), Vec::<String>::new());
    nothing_is_left(&world);
}

#[test]
fn an_engine_that_does_not_see_the_jobs_disk_shows_the_job_nothing() {
    let (daemon, world) = (Daemon::start_apart(), World::new());
    let done = daemon.run(&world, &[&["run", "--backend", "docker"][..], &JOB].concat());
    refused(&done, "could not mount the workspace: Permission denied");
    assert_eq!(daemon.containers(), Vec::<String>::new());
    nothing_is_left(&world);
}

#[test]
fn without_an_engine_there_is_no_backend() {
    let world = World::new();
    let run = |address: &str, flags: &[&str]| {
        let mut pond = world.pond(&[&["run", "--backend", "docker"], flags, &JOB].concat());
        Done::of(pond.env("DOCKER_HOST", address).output().unwrap())
    };
    refused(
        &run("unix:///nonexistent/docker.sock", &[]),
        "no container engine answers at /nonexistent/docker.sock",
    );
    refused(&run("tcp://127.0.0.1:2375", &[]), "DOCKER_HOST is \"tcp://127.0.0.1:2375\"");
    nothing_is_left(&world);
}
