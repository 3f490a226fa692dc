//! A backend that is not really there is refused, and nothing of the job has run.

use super::daemon::{Daemon, FORGETFUL, LIAR};
use crate::done::Done;
use crate::support::{World, names};

/// The job would say so if it ran.
const JOB: [&str; 4] = ["--", "sh", "-c", "echo ran; echo ran > f"];

fn refused(done: &Done, why: &str) {
    assert!(done.code == 125 && done.stdout.is_empty() && done.stderr.contains(why), "{why:?}: {done:?}");
}

fn nothing_is_left(world: &World) {
    assert_eq!(names(&world.state().join("live")).len(), 0);
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
    refused(&run(&["--backend", "firecracker"], ""), "firecracker: no runtime for it is registered");
    assert_eq!(daemon.containers(), Vec::<String>::new());
    nothing_is_left(&world);
    // The control: the same job where the name is true.
    let done = run(&sealed, "runsc");
    assert!(done.stdout == "ran\n", "{done:?}");
}

/// The engine passed every limit on and has no warning; what the kernel holds is something else.
#[test]
fn a_limit_or_a_network_that_was_lost_on_the_way_is_noticed() {
    let (daemon, world) = (Daemon::start(), World::new());
    let run = |runtime: &str, profile: &str| {
        let arguments = [&["run", "--backend", "gvisor", "--profile", profile], &JOB[..]].concat();
        Done::of(daemon.pond(&world, &arguments).env("SWARM_GVISOR_RUNTIME", runtime).output().unwrap())
    };
    let reasons = ["memory.limit_in_bytes", "cpu.cfs_quota_us", "pids.max", "isolation_mismatch: the runtime gave"];
    for ((runtime, _), reason) in FORGETFUL.into_iter().zip(reasons) {
        for profile in ["untrusted-code-read", "untrusted-code-write"] {
            refused(&run(runtime, profile), reason);
        }
    }
    assert_eq!(daemon.containers(), Vec::<String>::new());
    nothing_is_left(&world);
    let done = run("runsc", "untrusted-code-write");
    assert!(done.stdout == "ran\n", "{done:?}");
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
