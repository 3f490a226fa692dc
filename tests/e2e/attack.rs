//! The catalogue holds on this host, its probes bite where nothing holds them, and the doctor says what is so.

use serde_json::Value;

use crate::support::{Done, World};

/// What `pond attack --json` with these arguments says, and its exit code.
fn attack(arguments: &[&str]) -> (Value, i32) {
    let world = World::new();
    let done = world.run(&[&["attack", "--json"], arguments].concat());
    let report = serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"));
    (report, done.code)
}

/// The probes of a report with this verdict.
fn with_verdict<'a>(report: &'a Value, kind: &str) -> Vec<&'a Value> {
    let probes = report["probes"].as_array().unwrap();
    probes.iter().filter(|probe| probe["verdict"]["kind"] == kind).collect()
}

#[test]
fn everything_holds_and_every_probe_proves_something() {
    let (report, code) = attack(&[]);
    assert_eq!(with_verdict(&report, "breached"), Vec::<&Value>::new());
    assert_eq!(with_verdict(&report, "broken"), Vec::<&Value>::new());
    assert_eq!((&report["canaries"], code), (&serde_json::json!([]), 0));
    assert_eq!(report["held"], with_verdict(&report, "held").len());
    // Whoever may do everything unconfined has a control for nearly everything.
    if rustix::process::geteuid().is_root() {
        assert!(report["held"].as_u64().unwrap() > 165, "{report:#}");
    }
}

#[test]
fn the_read_only_profile_tells_no_more_than_the_others() {
    let (report, code) = attack(&["--profile", "untrusted-code-read", "--case", "K34", "K35", "C02"]);
    assert_eq!((&report["breached"], &report["broken"], code), (&0.into(), &0.into(), 0), "{report:#}");
}

#[test]
fn without_a_sandbox_the_same_probes_break_out() {
    let cases: Vec<String> = (1..=44).map(|number| format!("K{number:02}")).collect();
    let cases = cases.iter().map(String::as_str).chain(["N01", "N02", "N04"]);
    let arguments: Vec<&str> = ["--profile", "none", "--case"].into_iter().chain(cases).collect();
    let (report, code) = attack(&arguments);
    assert_eq!(with_verdict(&report, "held"), Vec::<&Value>::new());
    assert_eq!(with_verdict(&report, "broken"), Vec::<&Value>::new());
    assert_eq!(code, 1);
    for probe in report["probes"].as_array().unwrap() {
        let worked = probe["inside"] == "succeeded";
        assert_eq!(worked, probe["verdict"]["kind"] == "breached", "{probe:#}");
    }
    if rustix::process::geteuid().is_root() {
        assert!(with_verdict(&report, "breached").len() > 90, "{report:#}");
    }
}

#[test]
fn an_unknown_case_is_refused() {
    let world = World::new();
    let done = world.run(&["attack", "--case", "K99"]);
    assert_eq!((done.code, done.stdout.as_str()), (125, ""), "{done:?}");
}

#[test]
fn the_cases_that_are_not_run_have_a_reason() {
    let world = World::new();
    let done = world.run(&["attack", "--uncovered", "--json"]);
    let list: Vec<Value> = serde_json::from_str(&done.stdout).unwrap();
    assert!(
        !list.is_empty() && list.iter().all(|case| !case["why"].as_str().unwrap().is_empty()),
        "{done:?}"
    );
}

/// A descriptor that happens to be open in the caller neither reaches the job nor confuses the launcher, whatever its number.
#[test]
fn descriptors_of_the_caller_stay_outside() {
    let world = World::new();
    for number in 3..8 {
        let line =
            format!("exec timeout 60 \"$0\" run -q -- sh -c 'ls /proc/self/fd | wc -l' {number}</dev/null");
        let done = world.host_shell(&line);
        // The three streams, and the listing's own.
        assert_eq!(done, Done { code: 0, stdout: "4\n".to_owned(), stderr: String::new() }, "{number}");
    }
}

#[test]
fn the_doctor_finds_this_host_able_and_says_why_not_elsewhere() {
    let world = World::new();
    let done = world.run(&["doctor", "--json"]);
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&report["native"], done.code), (&true.into(), 0), "{report:#}");
    let missing = report["layers"].as_array().unwrap().iter().filter(|layer| layer["state"] == "missing");
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&Value>::new());
    // Nobody may hand the root directory to a job.
    let output = world.pond(&["doctor", "--json"]).current_dir("/").output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["native"], output.status.code()), (&false.into(), Some(1)), "{report:#}");
}

#[test]
fn a_command_that_is_not_inside_comes_with_a_remedy() {
    let world = World::new();
    let summary = world.summary(&[], &["no-such-command"]);
    let message = summary["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("home directory"), "{summary:#}");
}

/// As where a service manager starts pond in a pid namespace: its session and its group are somebody's it cannot see, and
/// the kernel calls both 0.
#[test]
fn it_holds_where_the_session_is_out_of_sight() {
    let line = "unshare --pid --fork --kill-child --mount-proc \"$0\" attack --json --case L05 L06 L08 E24";
    let done = World::new().host_shell(line);
    let report: Value =
        serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"));
    assert_eq!((with_verdict(&report, "held").len(), done.code), (4, 0), "{report:#}");
}
