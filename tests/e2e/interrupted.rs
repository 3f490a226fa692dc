//! Somebody interrupts pond: whatever it does at that moment ends, what was whole is kept, and nothing else is left.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use crate::support::{Traces, World, first_line, names};

/// Starts a job in a process group of its own, as a shell does, and waits for its first line.
fn begun(world: &World, flags: &[&str], line: &str) -> Child {
    let mut pond = world.pond(&[&["run"], flags, &["--", "sh", "-c", line]].concat());
    pond.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pond.spawn().unwrap();
    assert_eq!(first_line(&mut child), "up\n");
    child
}

fn ended(mut child: Child) -> (i32, String) {
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code().unwrap(), said)
}

/// The keys Ctrl-C and Ctrl-\ reach every process of the group, a service manager only pond itself.
#[test]
fn every_signal_that_asks_for_an_end_ends_the_run_and_keeps_its_result() {
    let world = World::new();
    world.shell("true");
    for (signal, group) in
        [(Signal::INT, true), (Signal::QUIT, true), (Signal::QUIT, false), (Signal::TERM, false)]
    {
        let before = Traces::of(&world, &BTreeSet::new());
        let child = begun(&world, &[], "echo x > made; echo up; exec sleep 600");
        let pid = Pid::from_child(&child);
        if group { kill_process_group(pid, signal) } else { kill_process(pid, signal) }.unwrap();
        let (code, said) = ended(child);
        assert_eq!(code, 130, "{signal:?}: {said}");
        assert!(said.contains("interrupted") && said.contains("1 file changed"), "{signal:?}: {said}");
        assert_eq!(Traces::of(&world, &BTreeSet::new()), before, "{signal:?}");
    }
}

#[test]
fn reading_a_large_result_is_told_and_can_be_given_up() {
    let world = World::new();
    world.shell("true");
    let before = Traces::of(&world, &BTreeSet::new());
    let runs = names(&world.state().join("runs"));
    let mut child = begun(&world, &[], "echo up; for i in 1 2 3 4; do truncate -s 1000M big$i; done");
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("pond: reading what the job changed: ") && line.contains("MiB"), "{line}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    for part in ["exit 0", "result not collected: reading it was interrupted", "the run is kept"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let run = names(&world.state().join("runs")).difference(&runs).next().unwrap().clone();
    let kept = names(&world.state().join("runs").join(&run));
    assert!(kept.contains("run.json") && kept.contains("stdout.log"), "{kept:?}");
    assert!(!kept.contains("objects") && !kept.contains("changes.json"), "{kept:?}");
    assert_eq!(Traces::of(&world, &BTreeSet::new()), before);
    let listed: Value = serde_json::from_str(&world.run(&["runs", "--json"]).stdout).unwrap();
    assert_eq!((&listed[0]["run"], &listed[0]["changed"]), (&run.into(), &Value::Null));
    let apply = world.run(&["apply"]);
    assert!(apply.code == 125 && apply.stderr.contains("no result to apply"), "{apply:?}");
}
