//! After any ending nothing of a job is left, and what a killed pond leaves is gone after the next start.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{Traces, World, first_line};

#[test]
fn nothing_is_left_after_any_ending() {
    let world = World::new();
    world.shell("true");
    let before = Traces::of(&world, &BTreeSet::new());
    world.shell("exit 3");
    world.run(&["run", "--timeout", "1s", "--", "sleep", "100"]);
    world.run(&["run", "--memory", "32m", "--", "python3", "-c", "x=[bytearray(1<<20) for _ in range(999)]"]);
    world.run(&["run", "--", "no-such-command"]);
    world.shell("setsid sleep 1000 & (sleep 1000 &) ; exit 0");
    assert_eq!(Traces::of(&world, &BTreeSet::new()), before);
}

#[test]
fn a_killed_pond_takes_its_job_along_and_the_next_start_sweeps() {
    let world = World::new();
    world.shell("true");
    let before = Traces::of(&world, &BTreeSet::new());
    let mut child = world
        .pond(&["run", "--", "sh", "-c", "echo started; sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(first_line(&mut child), "started\n");
    // While it runs there is something to find, or the counting finds nothing ever.
    let during = Traces::of(&world, &BTreeSet::new());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        !during.cgroups.is_empty() && during.live.len() == 1 && !during.processes.is_empty(),
        "{during:?}"
    );
    wait_until(|| during.cgroups.iter().all(|group| tasks(group).is_empty()));
    world.shell("true");
    assert_eq!(Traces::of(&world, &during.live), before);
}

pub(crate) fn tasks(group: &std::path::Path) -> String {
    std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default()
}

pub(crate) fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "still not so after 20 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}
