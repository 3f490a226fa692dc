//! What a run was refused is said once it is over: the rule, and the smallest change that would allow it.

use serde_json::{Value, json};

use crate::support::World;

/// The findings of the newest run, as `pond explain` tells them.
fn explained(world: &World) -> Vec<Value> {
    let done = world.run(&["explain", "--json"]);
    let explanation: Value =
        serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"));
    explanation["findings"].as_array().unwrap().clone()
}

fn codes(findings: &[Value]) -> Vec<&str> {
    findings.iter().map(|finding| finding["code"].as_str().unwrap()).collect()
}

#[test]
fn a_job_that_got_everything_has_nothing_to_explain() {
    let world = World::new();
    assert_eq!(world.summary(&[], &["true"])["findings"], json!([]));
    assert_eq!(explained(&world), Vec::<Value>::new());
    let done = world.run(&["explain"]);
    assert!(done.stdout.contains("nothing was refused"), "{done:?}");
}

#[test]
fn memory_is_explained_with_the_limit_and_a_larger_one() {
    let world = World::new();
    let eat = "python3 -c 'x = bytearray(400 << 20)'; true";
    let summary = world.summary(&["--memory", "64m"], &["sh", "-c", eat]);
    assert_eq!(summary["exit_code"], 0, "{summary:#}");
    let findings = explained(&world);
    assert_eq!(codes(&findings), ["memory_limit"]);
    assert_eq!(findings[0]["rule"], "memory: 64 MiB");
    assert_eq!(findings[0]["advice"], "allow it more with --memory 128m");
}

#[test]
fn refused_processes_are_counted() {
    let world = World::new();
    let fork = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do sleep 1 & done; wait";
    world.summary(&["--pids", "8"], &["bash", "-c", fork]);
    let findings = explained(&world);
    assert_eq!(codes(&findings), ["pids_limit"]);
    assert_eq!(findings[0]["advice"], "allow it more with --pids 16");
    assert!(findings[0]["count"].as_u64().unwrap() > 0);
}

#[test]
fn a_full_disk_and_a_time_limit_are_both_told() {
    let world = World::new();
    let fill = "head -c 100G /dev/zero > big; sleep 60";
    let summary = world.summary(
        &["--profile", "untrusted-code-read", "--timeout", "20s"],
        &["sh", "-c", &format!("cd; {fill}")],
    );
    assert_eq!(summary["exit_code"], 124, "{summary:#}");
    assert_eq!(codes(&explained(&world)), ["disk_full", "time_limit"]);
}

#[test]
fn a_run_that_is_not_there_is_named() {
    let world = World::new();
    let done = world.run(&["explain", "20200101-000000-000000000"]);
    assert_eq!(done.code, 125);
    assert!(done.stderr.contains("there is no run"), "{done:?}");
}

#[test]
fn a_denied_command_is_explained_until_another_runs() {
    let world = World::new();
    let sealed = ["run", "--profile", "untrusted-code-test", "--"];
    assert_eq!(world.run(&[&sealed[..], &["sh", "-c", "id"]].concat()).code, 125);
    let findings = explained(&world);
    assert_eq!(codes(&findings), ["command_shell"]);
    assert!(findings[0]["rule"].as_str().unwrap().contains("pytest"), "{findings:?}");
    assert_eq!(world.run(&[&sealed[..], &["echo", "hi"]].concat()).code, 0);
    assert_eq!(explained(&world), Vec::<Value>::new());
}
