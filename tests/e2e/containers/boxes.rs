//! `pond sandbox` on the container backends, as a person uses it: made from a document with a database beside it, entered, stopped,
//! resumed with what was written, removed without a trace; and what a killed keeper leaves.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::daemon::Daemon;
use super::kept::PATIENCE;
use super::killed::eventually;
use crate::done::Done;
use crate::support::{World, names};

fn sandbox(daemon: &Daemon, world: &World, arguments: &[&str]) -> Done {
    daemon.run(world, &[&["sandbox"], arguments].concat())
}

fn succeeds(daemon: &Daemon, world: &World, arguments: &[&str]) -> String {
    let done = sandbox(daemon, world, arguments);
    assert_eq!(done.code, 0, "{arguments:?}: {done:?}");
    done.stdout
}

fn events(daemon: &Daemon, world: &World) -> Vec<Value> {
    let text = succeeds(daemon, world, &["events", "box", "--json"]);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits until an event is there, and says which number it has.
fn until(daemon: &Daemon, world: &World, is_it: impl Fn(&Value) -> bool) -> u64 {
    let deadline = Instant::now() + PATIENCE * 2;
    loop {
        let told = events(daemon, world);
        if let Some(found) = told.iter().find(|event| is_it(event)) {
            return found["sequence"].as_u64().unwrap();
        }
        assert!(Instant::now() < deadline, "{told:#?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn cache_is(code: &str) -> impl Fn(&Value) -> bool {
    move |event| event["companion"] == "cache" && event["code"] == code
}

/// Speaks to the cache by its name.
fn ask(words: &str) -> String {
    format!(
        "python3 -c \"import socket; s = socket.create_connection(('cache', 6379)); s.sendall(b'{words}\\r\\n'); print(s.recv(100))\""
    )
}

/// A sandbox with a cache beside it, as a document.
fn document(backend: &str) -> String {
    let check = json!({ "test": ["redis-cli", "ping"], "interval": "1s", "start_period": "60s", "start_interval": "1s" });
    // It saves when it is told to and at no other time: two at once are refused.
    let serve = "ln -sf /usr/bin/redis-check-rdb /run/redis-server; exec /run/redis-server --bind 127.0.0.1 --dir /data --save ''";
    let document = json!({
        "id": "box",
        "sandbox": { "profile": "untrusted-code-internet", "backend": backend },
        "companions": { "cache": {
            "image": "redis", "command": ["sh", "-c", serve], "healthcheck": check, "limits": { "memory": "128m" },
            "post_start_on_primary": [["sh", "-c", "echo cache > started"]],
        } },
    });
    document.to_string()
}

fn a_life(backend: &str) {
    let (daemon, world) = (Daemon::start(), World::new());
    super::companions::images(&daemon);
    world.write("box.json", &document(backend));
    world.write("one.txt", "shown\n");
    let mount = format!("{}:/data/one.txt", world.project().join("one.txt").display());
    succeeds(&daemon, &world, &["create", "-f", "box.json", "--mount", &mount]);
    let begun = until(&daemon, &world, |event| event["event"] == "started");
    let in_it = |line: &str| succeeds(&daemon, &world, &["exec", "box", "--", "sh", "-c", line]);
    assert_eq!(in_it("echo kept > file; id -un; pwd; cat /data/one.txt"), "pond\n/workspace\nshown\n");
    world.write("in.txt", "in\n");
    succeeds(&daemon, &world, &["cp", "in.txt", "box:deep/in.txt"]);
    assert_eq!(in_it("cat deep/in.txt; stat -c %U deep/in.txt"), "in\npond\n");
    succeeds(&daemon, &world, &["cp", "box:file", "out.txt"]);
    assert_eq!(world.read("out.txt"), "kept\n");
    let healthy = until(&daemon, &world, cache_is("healthy"));
    assert!(healthy > begun, "nobody waited for it");
    until(&daemon, &world, cache_is("post_start"));
    assert_eq!(in_it("cat started"), "cache\n");
    assert_eq!(in_it(&ask("SET k v")), "b'+OK\\r\\n'\n");
    assert_eq!(in_it(&ask("SAVE")), "b'+OK\\r\\n'\n");
    let failed = sandbox(&daemon, &world, &["exec", "box", "--", "sh", "-c", "exit 7"]);
    assert_eq!(failed.code, 7, "{failed:?}");
    // Stopped, nothing of it runs; resumed, what it and its companion had written is there.
    succeeds(&daemon, &world, &["stop", "box"]);
    until(&daemon, &world, |event| event["event"] == "stopped");
    assert_eq!((daemon.containers(), daemon.processes()), (Vec::new(), Vec::new()));
    let before = events(&daemon, &world).len() as u64;
    succeeds(&daemon, &world, &["resume", "box"]);
    assert_eq!(in_it("cat file"), "kept\n");
    until(&daemon, &world, |event| cache_is("healthy")(event) && event["sequence"].as_u64() > Some(before));
    assert_eq!(in_it(&ask("GET k")), "b'$1\\r\\nv\\r\\n'\n");
    succeeds(&daemon, &world, &["rm", "box"]);
    until(&daemon, &world, |event| event["event"] == "deleted");
    let numbers: Vec<u64> =
        events(&daemon, &world).iter().map(|event| event["sequence"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "without a gap");
    nothing_is_left(&daemon, &world);
}

fn nothing_is_left(daemon: &Daemon, world: &World) {
    assert_eq!((daemon.containers(), daemon.processes()), (Vec::new(), Vec::new()));
    assert_eq!(names(&world.state().join("live")).len(), 0);
    let marker = world.state().display().to_string();
    assert!(!std::fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&marker));
}

#[test]
fn a_sandbox_with_a_cache_lasts_on_docker() {
    a_life("docker");
}

#[test]
fn a_sandbox_with_a_cache_lasts_on_gvisor() {
    a_life("gvisor");
}

/// Its containers go, companions first or last, and its disk stays; nobody else's container is touched.
#[test]
fn a_killed_keeper_leaves_a_stopped_sandbox_on_docker() {
    let (daemon, world) = (Daemon::start(), World::new());
    super::companions::images(&daemon);
    world.write("box.json", &document("docker"));
    succeeds(&daemon, &world, &["create", "-f", "box.json"]);
    until(&daemon, &world, cache_is("healthy"));
    let in_it = |line: &str| succeeds(&daemon, &world, &["exec", "box", "--", "sh", "-c", line]);
    in_it("echo kept > file; sync");
    assert_eq!(daemon.containers().len(), 2);
    let keeper = keeper_of(&world);
    rustix::process::kill_process(keeper, rustix::process::Signal::KILL).unwrap();
    let bystander =
        json!({ "Image": "redis", "Cmd": ["/usr/bin/sh"], "Labels": { "io.pond.job": "box-box" } });
    daemon.api("POST", "/containers/create?name=pond-bystander", Some(&bystander));
    // Whoever looks next clears up.
    until(&daemon, &world, |event| event["event"] == "stopped" && event["code"] == "keeper_lost");
    let swept = daemon.run(&world, &["gc"]);
    assert_eq!(swept.code, 0, "{swept:?}");
    // The one that waits for stopped sandboxes looked as well, and has in hand what it began with.
    eventually("only the bystander is left", || daemon.containers() == ["/pond-bystander"]);
    eventually("no record is left", || names(&world.state().join("live")).is_empty());
    assert_eq!((daemon.processes(), names(&world.state().join("live")).len()), (Vec::new(), 0));
    succeeds(&daemon, &world, &["resume", "box"]);
    assert_eq!(in_it("cat file"), "kept\n");
    succeeds(&daemon, &world, &["rm", "box"]);
    until(&daemon, &world, |event| event["event"] == "deleted");
    assert_eq!(daemon.containers(), ["/pond-bystander"]);
}

/// The process that keeps the sandbox of this state directory.
fn keeper_of(world: &World) -> rustix::process::Pid {
    let environment = format!("POND_STATE_DIR={}\0", world.state().display());
    let is_it = |pid: &i32| {
        let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let environ = String::from_utf8_lossy(&read("environ")).into_owned();
        read("cmdline") == b"pond\0keeper\0" && environ.contains(&environment)
    };
    let found = names(std::path::Path::new("/proc")).iter().filter_map(|name| name.parse().ok()).find(is_it);
    rustix::process::Pid::from_raw(found.unwrap()).unwrap()
}
