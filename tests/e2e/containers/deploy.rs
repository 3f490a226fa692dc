//! The scripts that make a worker: what they say, what they change, and that a refusal changes nothing.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use super::daemon::{Daemon, runsc};
use crate::done::Done;
use crate::support::World;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");
/// Where a platform is not what is tested: to find out that KVM is there and does nothing takes its time.
const QUICK: [&str; 2] = ["--platform", "systrap"];

/// A script with these flags, about this engine and this pond.
fn script(daemon: &Daemon, world: &World, name: &str, flags: &[&str]) -> Done {
    let mut bash = world.command("bash");
    bash.arg(format!("{SCRIPTS}/{name}"))
        .args([Path::new("--daemon-json"), &daemon.file("daemon.json")])
        .args([Path::new("--pidfile"), &daemon.file("pid")])
        .args(["--pond", env!("CARGO_BIN_EXE_pond")])
        .args(flags)
        .env("DOCKER_HOST", daemon.address());
    Done::of(bash.output().unwrap())
}

fn gvisor(daemon: &Daemon, world: &World, flags: &[&str]) -> Done {
    script(daemon, world, "gvisor-worker.sh", flags)
}

/// The engine's configuration and whatever lies beside it under a name that begins so, with content and mode.
fn configuration(daemon: &Daemon) -> BTreeMap<String, (String, u32)> {
    let directory = daemon.file("");
    let entries = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    let ours = entries.filter(|path| path.to_string_lossy().contains("daemon.json"));
    let look = |path: &Path| {
        let mode = std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        (std::fs::read_to_string(path).unwrap(), mode)
    };
    ours.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), look(&path))).collect()
}

fn registered(daemon: &Daemon) -> Value {
    daemon.api("GET", "/info", None)["Runtimes"].clone()
}

fn is_row(done: &Done, name: &str, state: &str) -> bool {
    let mut words = done.stdout.lines().map(|line| line.split_ascii_whitespace());
    words.any(|mut words| words.next() == Some(name) && words.next() == Some(state))
}

#[test]
fn a_gvisor_worker_is_made_once_and_proven_each_time() {
    let (daemon, world) = (Daemon::start(), World::new());
    let flags = ["--runsc", &runsc(), "--name", "pond-runsc"];
    let (before, known) = (configuration(&daemon), registered(&daemon));

    let done = gvisor(&daemon, &world, &[&flags[..], &["--check"]].concat());
    assert!(done.code == 0 && done.stdout.contains("this host can be a gvisor worker"), "{done:?}");
    assert_eq!((configuration(&daemon), registered(&daemon)), (before.clone(), known.clone()));

    let done = gvisor(&daemon, &world, &flags);
    assert!(done.code == 0 && done.stdout.contains("this host is a gvisor worker"), "{done:?}");
    for profile in ["untrusted-code-read", "untrusted-code-write"] {
        assert!(is_row(&done, profile, "ok"), "{done:?}");
    }
    let after = configuration(&daemon);
    let (old, new) = (&before["daemon.json"], &after["daemon.json"]);
    let entry = registered(&daemon)["pond-runsc"].clone();
    assert!(entry["path"] == json!(runsc()) && entry["runtimeArgs"][1] == "--network=host", "{entry}");
    let mut expected: Value = serde_json::from_str(&old.0).unwrap();
    expected["runtimes"]["pond-runsc"] = entry;
    assert_eq!((serde_json::from_str::<Value>(&new.0).unwrap(), new.1), (expected, old.1));
    let backups: Vec<_> = after.iter().filter(|(name, _)| *name != "daemon.json").collect();
    assert!(backups.len() == 1 && backups[0].1 == old, "{backups:?}");
    assert_eq!(daemon.containers(), Vec::<String>::new());

    let done = gvisor(&daemon, &world, &flags);
    assert!(done.code == 0 && done.stdout.contains("nothing was changed"), "{done:?}");
    assert_eq!(configuration(&daemon), after);
    let done = gvisor(&daemon, &world, &[&flags[..], &["--check"]].concat());
    assert!(done.code == 0 && done.stdout.contains("this host is set up as a gvisor worker"), "{done:?}");
}

#[test]
fn a_refusal_names_the_remedy_and_changes_nothing() {
    let (daemon, world) = (Daemon::start(), World::new());
    let own = runsc();
    let usual = [&["--runsc", own.as_str()], &QUICK[..]].concat();
    let cases: [(&[&str], &str, &str); 4] = [
        (&["--pond", "/nonexistent/pond"], "pond", "cargo install --path pond"),
        (&["--runsc", "/usr/sbin/runc"], "platform", "a newer runsc"),
        (&["--platform", "nosuch"], "platform", "a newer runsc"),
        // The engine of the tests has one with other arguments.
        (&[], "daemon.json", "--replace, or another name"),
    ];
    let before = (configuration(&daemon), registered(&daemon));
    for (flags, row, remedy) in cases {
        let done = gvisor(&daemon, &world, &[&usual, flags].concat());
        let said = is_row(&done, row, "MISSING") && done.stdout.contains(remedy);
        assert!(done.code == 1 && said && done.stdout.contains("nothing was changed"), "{done:?}");
    }
    for flags in [&["--nosuch"][..], &["--runsc"], &["--name", "A B"], &["--runsc", "runsc"]] {
        let done = gvisor(&daemon, &world, flags);
        assert!(done.code == 2 && done.stdout.is_empty(), "{done:?}");
    }
    assert_eq!((configuration(&daemon), registered(&daemon)), before);
}

#[test]
fn a_daemon_json_that_is_not_understood_whole_is_left_alone() {
    let (daemon, world) = (Daemon::start(), World::new());
    let own = runsc();
    let flags = [&["--runsc", own.as_str(), "--name", "pond-runsc"], &QUICK[..]].concat();
    let known = registered(&daemon);
    let broken =
        ["", "{", "[]", "{\"runtimes\": 3}", "{\"debug\": true, \"debug\": false}", "{\"n\": 1e999}"];
    for text in broken {
        std::fs::write(daemon.file("daemon.json"), text).unwrap();
        let before = configuration(&daemon);
        let done = gvisor(&daemon, &world, &flags);
        assert!(done.code == 1, "{text:?}: {done:?}");
        assert_eq!((configuration(&daemon), registered(&daemon)), (before, known.clone()), "{text:?}");
    }
}

/// What nobody but the engine understands stays as it was, to the last digit; so do a link, the owner and the mode.
#[test]
fn a_merge_loses_nothing() {
    let world = World::new();
    let (file, link) = (world.project().join("real.json"), world.project().join("daemon.json"));
    let text = r#"{"dns": ["10.0.0.1"], "x": {"n": 123456789012345678901234567890, "t": "ü\u0000"}, "runtimes": {"a": {"path": "b"}}}"#;
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("real.json", &link).unwrap();
    let mut put = world.command("python3");
    put.arg(format!("{SCRIPTS}/daemon_json.py")).arg("put").arg(&link).args(["c", r#"{"path": "d"}"#]);
    let done = Done::of(put.output().unwrap());
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(std::fs::read_to_string(done.stdout.trim()).unwrap(), text);
    let merged = world.read("real.json");
    let squeezed: String = merged.split_ascii_whitespace().collect();
    let expected = r#"{"dns":["10.0.0.1"],"x":{"n":123456789012345678901234567890,"t":"ü\u0000"},"runtimes":{"a":{"path":"b"},"c":{"path":"d"}}}"#;
    assert_eq!(squeezed, expected);
    assert!(link.is_symlink());
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o640);
}

/// It says all a script can ask a runtime, and is runc. Pond looks at the kernel, and what was registered goes.
#[test]
fn a_runtime_that_pond_does_not_accept_does_not_stay_registered() {
    let (daemon, world) = (Daemon::start(), World::new());
    let liar = world.project().join("liar");
    let text = "#!/bin/sh\ncase \"$*\" in *' do '*) echo 00000000-0000-4000-8000-000000000000; exit ;; esac\n\
                while :; do case $1 in --platform=*|--network=*) shift ;; *) break ;; esac; done\nexec /usr/sbin/runc \"$@\"\n";
    std::fs::write(&liar, text).unwrap();
    std::fs::set_permissions(&liar, PermissionsExt::from_mode(0o755)).unwrap();
    let before = configuration(&daemon);
    let liar = liar.display().to_string();
    let done = gvisor(&daemon, &world, &[&["--runsc", &liar, "--name", "liar2"], &QUICK[..]].concat());
    assert!(done.code == 1 && done.stdout.contains("isolation_mismatch"), "{done:?}");
    assert_eq!(configuration(&daemon), before);
    let gone = || registered(&daemon)["liar2"].is_null();
    super::killed::eventually("the engine reads its configuration again", gone);
    assert_eq!(daemon.containers(), Vec::<String>::new());
}

/// The distribution's own package, unpacked elsewhere: it is registered if it does here what pond needs, and else is not.
#[test]
fn a_package_goes_where_it_is_told_to() {
    let (daemon, world) = (Daemon::start(), World::new());
    let root = world.project().display().to_string();
    let before = configuration(&daemon);
    let done = gvisor(&daemon, &world, &["--root", &root, "--name", "packaged"]);
    assert!(done.stdout.contains(&format!("installed: {root}/usr/bin/runsc")), "{done:?}");
    if done.code != 0 {
        assert!(done.code == 1 && done.stderr.contains("nothing was registered"), "{done:?}");
        assert_eq!(configuration(&daemon), before);
    } else {
        let entry = &registered(&daemon)["packaged"];
        assert_eq!(entry["path"], format!("{root}/usr/bin/runsc"));
    }
}

#[test]
fn a_host_without_kata_is_told_what_it_lacks() {
    let (daemon, world) = (Daemon::start(), World::new());
    let before = (configuration(&daemon), registered(&daemon));
    for check in [&[][..], &["--check"]] {
        let kata = ["--kata", "/nonexistent", "--root", &world.project().display().to_string()];
        let done = script(&daemon, &world, "kata-worker.sh", &[&kata[..], check].concat());
        assert!(is_row(&done, "kata", "MISSING") && done.stdout.contains("--kata DIR"), "{done:?}");
        assert!(done.code == 1 && done.stdout.contains("nothing was changed"), "{done:?}");
    }
    assert_eq!((configuration(&daemon), registered(&daemon)), before);
    assert_eq!(crate::support::names(&world.project()).len(), 0);
}

/// The job that has the last word on a host with Kata: without a toolchain and without a gateway, on an image that does not stay. Here runc
/// runs it, under its own name and under one that is not its own.
#[test]
fn the_job_on_a_machine_needs_nothing_but_pond() {
    let (daemon, world) = (Daemon::start(), World::new());
    let images = || daemon.api("GET", "/images/json?all=1", None).as_array().map_or(0, Vec::len);
    let verify = |words: &str| {
        let line = format!(
            "set -euo pipefail; . {SCRIPTS}/worker.bash; pond={} socket={}; verify_with_image {words}",
            env!("CARGO_BIN_EXE_pond"),
            daemon.file("sock").display()
        );
        Done::of(world.command("bash").args(["-c", &line]).output().unwrap())
    };
    let done = verify("docker UNUSED runc");
    assert!(done.code == 0 && is_row(&done, "untrusted-code-read", "ok"), "{done:?}");
    let done = verify("firecracker SWARM_KATA_RUNTIME liar");
    assert!(done.code == 1 && done.stdout.contains("isolation_mismatch"), "{done:?}");
    assert_eq!((images(), daemon.containers()), (0, Vec::new()));
}
