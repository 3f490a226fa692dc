//! What the engine already has under a name that pond is about to take, and an engine that is too old: a refusal in words, before
//! anything of the job runs, and nobody else's container or image is touched.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use super::daemon::{Daemon, command};
use crate::done::Done;
use crate::support::{World, first_line, names};

/// Stands between pond and the engine. What it is asked to create, somebody else has made a moment before, with these labels; and it
/// tells the engine's version as it is told to.
const BETWEEN: &str = r#"
import json, os, re, socket, sys, threading
engine, place, image, labels, version = sys.argv[1:]
def ask(method, path, body=b""):
    with socket.socket(socket.AF_UNIX) as to:
        to.connect(engine)
        head = f"{method} {path} HTTP/1.0\r\nHost: engine\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        to.sendall(head.encode() + body)
        while to.recv(65536): pass
def pass_on(source, target):
    try:
        while piece := source.recv(65536): target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError: pass
def serve(ours):
    head = b""
    while b"\r\n\r\n" not in head:
        piece = ours.recv(65536)
        if not piece: return
        head += piece
    line = head.split(b"\r\n")[0].decode()
    if version and re.match(r"GET /version ", line):
        body = json.dumps({"Version": "19.03.1", "ApiVersion": version, "MinAPIVersion": "1.12", "Os": "linux"}).encode()
        ours.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        return ours.close()
    made = re.match(r"POST (?:/v[0-9.]+)?/containers/create\?name=([^ ]+) ", line)
    if made and image:
        job = made[1].removeprefix("pond-")
        own = {name: value.replace("JOB", job) for name, value in json.loads(labels).items()}
        body = json.dumps({"Image": image, "Cmd": ["/usr/bin/true"], "Labels": own}).encode()
        ask("POST", f"/containers/create?name={made[1]}", body)
    theirs = socket.socket(socket.AF_UNIX)
    theirs.connect(engine)
    theirs.sendall(head)
    threading.Thread(target=pass_on, args=(theirs, ours), daemon=True).start()
    pass_on(ours, theirs)
listener = socket.socket(socket.AF_UNIX)
listener.bind(place)
listener.listen()
print("ready", flush=True)
while True: threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

struct Between {
    process: Child,
    place: PathBuf,
}

impl Between {
    fn start(daemon: &Daemon, image: &str, labels: &Value, version: &str) -> Self {
        let place = daemon.file("between.sock");
        if place.exists() {
            std::fs::remove_file(&place).unwrap();
        }
        let engine = daemon.file("sock");
        let mut process = command("python3")
            .args(["-c", BETWEEN])
            .args([&engine, &place])
            .args([image, &labels.to_string(), version])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        assert_eq!(first_line(&mut process), "ready\n");
        Self { process, place }
    }

    fn run(&self, world: &World, backend: &str) -> Done {
        let arguments = ["run", "--backend", backend, "--", "sh", "-c", "echo ran"];
        let mut pond = world.pond(&arguments);
        Done::of(pond.env("DOCKER_HOST", format!("unix://{}", self.place.display())).output().unwrap())
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn refused(done: &Done, why: &str) {
    assert!(done.code == 125 && done.stdout.is_empty() && done.stderr.contains(why), "{why:?}: {done:?}");
}

fn nothing_is_left(world: &World) {
    for directory in ["live", "runs"] {
        assert_eq!(names(&world.state().join(directory)).len(), 0, "{directory}");
    }
}

/// Somebody else has a container of that very name, with labels or without: it stays, and the run is refused.
#[test]
fn a_container_that_has_the_name_already_stays_and_the_run_is_refused() {
    let (daemon, world) = (Daemon::start(), World::new());
    daemon.import("tools", &["/bin/sh"], &[]);
    let labels = [
        json!({}),
        json!({ "io.pond.job": "JOB" }),
        json!({ "io.pond.job": "JOB", "io.pond.state": "other" }),
        json!({ "io.pond.job": "another", "io.pond.state": "other" }),
    ];
    for (labels, count) in labels.iter().zip(1..) {
        let between = Between::start(&daemon, "tools", labels, "");
        let done = between.run(&world, "docker");
        refused(&done, "creating the container: the container engine says 409");
        assert!(done.stderr.contains("is already in use by container"), "{done:?}");
        nothing_is_left(&world);
        assert_eq!(daemon.containers().len(), count, "{labels}");
        // A sweep is no danger to it either.
        assert_eq!(daemon.run(&world, &["gc"]).code, 0);
        assert_eq!(daemon.containers().len(), count, "{labels}");
    }
    // The control: the same way to the engine without anybody in it.
    let between = Between::start(&daemon, "", &json!({}), "");
    let done = between.run(&world, "docker");
    assert_eq!((done.code, done.stdout.as_str()), (0, "ran\n"), "{done:?}");
    assert_eq!(daemon.containers().len(), labels.len());
}

/// An image of somebody's under the name of pond's own is not used, and not replaced.
#[test]
fn an_image_that_has_ponds_name_is_not_used() {
    let (daemon, world) = (Daemon::start(), World::new());
    let run = || daemon.run(&world, &["run", "-q", "--backend", "docker", "--", "echo", "ran"]);
    assert_eq!(run().stdout, "ran\n");
    let listed = daemon.api("GET", "/images/json", None);
    let own = listed[0]["RepoTags"][0].as_str().unwrap().to_owned();
    assert!(own.starts_with("pond-root:"), "{listed}");
    daemon.api("DELETE", &format!("/images/{own}"), None);
    let other = daemon.import("other", &["/bin/sh"], &[]);
    let (name, tag) = own.split_once(':').unwrap();
    daemon.api("POST", &format!("/images/other/tag?repo={name}&tag={tag}"), None);
    let done = run();
    refused(&done, &format!("the image {own} is not the one pond made under that name"));
    assert_eq!(daemon.api("GET", &format!("/images/{own}/json"), None)["Id"], other.as_str());
    assert_eq!(daemon.containers(), Vec::<String>::new());
    assert_eq!(names(&world.state().join("live")).len(), 0);
}

#[test]
fn an_engine_that_is_too_old_is_refused_with_what_is_needed() {
    let (daemon, world) = (Daemon::start(), World::new());
    let between = Between::start(&daemon, "", &json!({}), "1.40");
    for backend in ["docker", "gvisor", "firecracker"] {
        refused(
            &between.run(&world, backend),
            "19.03.1 speaks API 1.40; pond needs 1.41 (Docker 20.10) or newer",
        );
    }
    nothing_is_left(&world);
    // The control: one that says it is new enough is used.
    let between = Between::start(&daemon, "", &json!({}), "1.41");
    assert_eq!(between.run(&world, "docker").stdout, "ran\n");
}
