//! The job's copy as a stream, in and out: the same result as bound, to the last byte, and the same quota.

use std::process::Stdio;

use serde_json::{Value, json};

use super::daemon::Daemon;
use crate::done::Done;
use crate::support::World;

/// Does to its checkout whatever a job can.
const JOB: &str = r#"
set -e
cat .git/config; stat -c '%n %a %Y %F' *; cat run/tool; readlink link
echo after > changed; chmod +x plain; chmod -x run/tool; rm gone; rm -r tree; mkdir gone; echo new > gone/inside
ln -sf /etc/shadow link; ln -s ../../.. escape; mkfifo pipe; mkdir -p a/b/c; printf 'x%.0s' 1 2 3 > a/b/c/f; : > a/empty
ln changed hard; mv moved elsewhere; ln -s plain moved; rm dir/leaf; rmdir dir; echo file > dir; head -c 200000 /dev/zero > zeros
printf '#!/bin/sh\n' > a/script; chmod 755 a/script; touch same; mkdir -p build; echo o > build/out.o; echo x >> .git/config
printf odd > "$(printf 'na\nme \377')"; truncate -s 2G sparse; mkdir shut; echo in > shut/in; chmod 000 shut changed
i=0; d=deep; while [ $i -lt 70 ]; do mkdir $d; d=$d/d; i=$((i+1)); done; echo bottom > "${d%/d}/f"
"#;

const SETUP: &str = r"
set -e
git init -q -b main . && git config user.email a@b.c && git config user.name n
git remote add origin https://user:secret@example.com/x.git
mkdir run tree tree/sub dir; echo before > changed; echo p > plain; printf '#!/bin/sh\necho hi\n' > run/tool; chmod 700 run/tool
echo g > gone; echo 1 > tree/1; echo 2 > tree/sub/2; ln -s changed link; echo m > moved; echo l > dir/leaf; echo s > same
echo '*.o' > .gitignore; chmod 600 same; touch -d '2001-02-03T04:05:06Z' plain run/tool
git add -A . && git commit -q -m base
";

/// What a run left: its record, patch and manifest, and what the job said.
fn result(daemon: &Daemon, backend: &str, way: &str) -> Value {
    // gVisor keeps a fifo on a bound file system to itself.
    let job = if backend == "gvisor" { JOB.replace("mkfifo pipe", ":") } else { JOB.to_owned() };
    let world = World::new();
    let made = world.host_shell(SETUP);
    assert_eq!(made.code, 0, "{made:?}");
    let arguments = [
        "run",
        "--json",
        "--keep-ignored",
        "--artifact",
        "build",
        "--backend",
        backend,
        "--",
        "sh",
        "-c",
        &job,
    ];
    let mut pond = daemon.pond(&world, &arguments);
    pond.env("POND_CONTAINER_TRANSFER", way).env("TZ", "UTC");
    let done = Done::of(pond.output().unwrap());
    let summary: Value =
        serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"));
    let directory = std::path::Path::new(summary["directory"].as_str().unwrap());
    let text = |name: &str| {
        let bytes = std::fs::read(directory.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    assert_eq!(summary["exit_code"], 0, "{way}: {} {summary:#}", text("stderr.log"));
    assert_eq!(world.read("changed"), "before\n");
    let listed: Vec<String> = text("stdout.log").lines().map(steady).collect();
    json!({
        "record": serde_json::from_str::<Value>(&text("changes.json")).unwrap(),
        "patch": text("changes.patch"), "manifest": text("manifest.json"), "stdout": listed,
        "result": [&summary["result"]["changed"], &summary["result"]["rejected"],
                   &summary["result"]["git_metadata_changes"], &summary["result"]["output_sha256"]],
    })
}

/// Of the times of what was made just now, and of directories, only that they are there.
fn steady(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    match words.as_slice() {
        ["plain", ..] => line.to_owned(),
        [name, mode, _, kind @ ..] if mode.len() == 3 && mode.bytes().all(|b| b.is_ascii_digit()) => {
            format!("{name} {mode} {}", kind.join(" "))
        }
        _ => line.to_owned(),
    }
}

fn both_ways(backend: &str) {
    let daemon = Daemon::start();
    let (bound, streamed) = (result(&daemon, backend, "bind"), result(&daemon, backend, "stream"));
    assert_eq!(streamed, bound);
    let text = streamed.to_string();
    assert_eq!(text.contains("\"fifo\""), backend == "docker", "{streamed:#}");
    // The whole of it was there to compare.
    for part in ["too_deep", "file_too_large", "\"deleted\"", "type_changed", "escape", "zeros"] {
        assert!(text.contains(part), "{part}: {streamed:#}");
    }
    assert!(!text.contains("secret"), "{streamed:#}");
    assert_eq!(daemon.containers(), Vec::<String>::new());
}

#[test]
fn docker_gives_the_same_result_either_way() {
    both_ways("docker");
}

#[test]
fn gvisor_gives_the_same_result_either_way() {
    both_ways("gvisor");
}

fn streamed(daemon: &Daemon, world: &World, arguments: &[&str]) -> Done {
    let mut pond = daemon.pond(world, arguments);
    Done::of(pond.env("POND_CONTAINER_TRANSFER", "stream").output().unwrap())
}

fn summary(done: &Done) -> Value {
    serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"))
}

#[test]
fn a_streamed_copy_has_a_quota_and_a_stopped_job_keeps_its_files() {
    let (daemon, world) = (Daemon::start(), World::new());
    world.write("f", "before\n");
    let line = "head -c 300M /dev/zero > big; echo \"full: $?\"; ls -l big | wc -l; rm big; echo after > f";
    let flags = ["run", "--json", "--backend", "docker", "--memory", "256m", "--"];
    let done = streamed(&daemon, &world, &[&flags[..], &["sh", "-c", line]].concat());
    let told = summary(&done);
    let directory = std::path::Path::new(told["directory"].as_str().unwrap());
    assert_eq!(std::fs::read_to_string(directory.join("stdout.log")).unwrap(), "full: 1\n1\n", "{told:#}");
    assert_eq!((&told["result"]["changed"], &told["exit_code"]), (&json!(1), &json!(0)), "{told:#}");

    // Its time is up, and it had started others that want to go on.
    let line = "echo stopped > f; (trap '' TERM HUP; sleep 1000) & sleep 1000";
    let flags = ["run", "--json", "--backend", "docker", "--timeout", "2s", "--"];
    let told = summary(&streamed(&daemon, &world, &[&flags[..], &["sh", "-c", line]].concat()));
    assert_eq!(told["verdict"]["kind"], "timed_out", "{told:#}");
    assert_eq!(told["result"]["changed"], 1, "{told:#}");

    // The same with more input on its way than it ever reads.
    let mut child = daemon
        .pond(&world, &[&flags[..], &["sh", "-c", line]].concat())
        .env("POND_CONTAINER_TRANSFER", "stream")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It stays unread, and nobody is left to read it in the end.
    drop(std::io::Write::write_all(&mut child.stdin.take().unwrap(), &vec![b'x'; 4 << 20]));
    let told: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(
        (&told["verdict"]["kind"], &told["result"]["changed"]),
        (&json!("timed_out"), &json!(1)),
        "{told:#}"
    );

    // A checkout that does not fit is refused, and nothing is left.
    let room = std::fs::File::create(world.project().join("large")).unwrap();
    room.set_len(200 << 20).unwrap();
    let flags = ["run", "--backend", "docker", "--memory", "256m", "--", "true"];
    let done = streamed(&daemon, &world, &flags);
    assert!(done.code == 125 && done.stderr.contains("more than 128 MiB"), "{done:?}");
    assert_eq!(daemon.containers(), Vec::<String>::new());
    let mut pond = daemon.pond(&world, &["run", "--backend", "docker", "--", "true"]);
    let done = Done::of(pond.env("POND_CONTAINER_TRANSFER", "tar").output().unwrap());
    assert!(done.code == 125 && done.stderr.contains("POND_CONTAINER_TRANSFER is \"tar\""), "{done:?}");
}

/// What the job must not change belongs to somebody else, and the job can take nobody's place.
#[test]
fn a_streamed_checkout_that_is_read_only_cannot_be_changed() {
    let (daemon, world) = (Daemon::start(), World::new());
    world.write("f", "before\n");
    let line = "cat f; for c in 'chmod 777 .' 'rm f' 'touch g' 'mv f g' 'chmod 666 f' 'ln f g'; do $c && echo did; done; cat f";
    for backend in ["docker", "gvisor"] {
        let profile = ["--profile", "untrusted-code-read"];
        let done = streamed(
            &daemon,
            &world,
            &[&["run", "-q", "--backend", backend][..], &profile, &["--", "sh", "-c", line]].concat(),
        );
        assert_eq!((done.code, done.stdout.as_str()), (0, "before\nbefore\n"), "{backend}: {done:?}");
    }
}
