//! SIGKILL of each of pond's processes at each step of a run: whatever died, and wherever, the next start finds and removes
//! what is left, and works.
//!
//! A step is a system call that changes something outside the process that makes it; the victim dies on the way into it. Each
//! test runs itself again as pid 1 of a pid namespace of its own: there, whatever a run left alive is its child, and whatever
//! `/proc` shows of processes, namespaces and locks is its doing.

mod census;
mod tracer;

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use crate::support::{World, names};
use census::Census;
use tracer::{Role, Victim};

/// More steps than any process of a run has: a test that does not come to an end is wrong.
const MOST_STEPS: usize = 1000;

/// Runs this very test inside its own pid and mount namespaces, and there the body.
#[expect(clippy::disallowed_methods, reason = "tests start the program they test")]
fn alone(test: &str, body: fn()) {
    if std::process::id() == 1 {
        return body();
    }
    // What lives on keeps the test waiting for it.
    let output = Command::new("timeout")
        .args(["--verbose", "200", "unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        // Nothing here is meant to survive the machine, and a disk takes its time to promise that it would.
        .env("TMPDIR", "/dev/shm")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Kills `role` at birth, at its first step, at its second, until a run comes to its end unharmed.
fn at_every_step(role: Role) {
    let world = World::new();
    world.write("f", "before\n");
    assert_eq!(world.shell("true").code, 0);
    let expected = Census::of(&world, &BTreeSet::new());
    for step in 0..MOST_STEPS {
        let traced = tracer::run(&world, Victim { role, step });
        let Some(call) = traced.killed_before else {
            assert!(step > 1, "{role:?} made no step");
            assert_eq!((traced.code, world.shell("true").code), (Some(0), 0));
            return;
        };
        let what = format!("{role:?} killed at step {step}, on its way into system call {call}");
        // Dead before any sweep: a lifeline, not the next start, ends what a victim leaves running.
        assert_eq!(census::processes(), BTreeSet::new(), "{what}");
        let dead = names(&world.state().join("live"));
        match traced.code {
            None => works(&world, &what),
            Some(code) => assert!(survived(role, code) && dead.is_empty(), "{what}: exit {code}, {dead:?}"),
        }
        assert_eq!(Census::of(&world, &dead), expected, "{what}");
    }
    panic!("{role:?} still makes steps after {MOST_STEPS}");
}

/// pond lived on, cleaned up itself, and says what is true: the job had ended, it was killed, or nothing ran.
fn survived(victim: Role, code: u8) -> bool {
    match victim {
        Role::Launcher | Role::Holder => [0, 125].contains(&code),
        Role::Init => [0, 125, 137].contains(&code),
        Role::Job => code == 137,
        Role::Pond | Role::Other => false,
    }
}

/// The next start does.
fn works(world: &World, what: &str) {
    let next = world.shell("cat f");
    assert_eq!((next.code, next.stdout.as_str()), (0, "before\n"), "{what}: {next:?}");
}

#[test]
fn pond() {
    alone("killed::pond", || at_every_step(Role::Pond));
}

#[test]
fn the_launcher() {
    alone("killed::the_launcher", || at_every_step(Role::Launcher));
}

#[test]
fn the_holder_of_the_owner_namespace() {
    alone("killed::the_holder_of_the_owner_namespace", || at_every_step(Role::Holder));
}

#[test]
fn init() {
    alone("killed::init", || at_every_step(Role::Init));
}

#[test]
fn the_job_before_it_executes() {
    alone("killed::the_job_before_it_executes", || at_every_step(Role::Job));
}

/// The first run of a state directory also makes its rooms and the template of the job's disk.
#[test]
fn pond_in_its_first_run() {
    alone("killed::pond_in_its_first_run", || {
        let settled = World::new();
        assert_eq!(settled.shell("true").code, 0);
        let expected = Census::of(&settled, &BTreeSet::new());
        for step in 1..MOST_STEPS {
            let world = World::new();
            world.write("f", "before\n");
            let traced = tracer::run(&world, Victim { role: Role::Pond, step });
            let what = format!("first run killed at step {step}, {:?}", traced.killed_before);
            let dead = names(&world.state().join("live"));
            works(&world, &what);
            assert_eq!(Census::of(&world, &dead), expected, "{what}");
            if traced.launched {
                return;
            }
        }
        panic!("no launch after {MOST_STEPS} steps");
    });
}
