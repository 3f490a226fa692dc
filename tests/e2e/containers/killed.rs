//! SIGKILL of pond and of the engine in the middle of a run: the job ends, the next start finds nothing left to do or does it,
//! and what is not pond's is never touched.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::daemon::{Daemon, command};
use crate::support::{World, first_line, loops, names};

const PATIENCE: Duration = Duration::from_secs(60);

/// A job that runs on until it is ended.
pub(super) fn start(daemon: &Daemon, world: &World, backend: &str, way: &str) -> Child {
    let arguments =
        ["run", "--backend", backend, "--", "sh", "-c", "echo work > made; echo ready; sleep 1000"];
    let mut child = daemon
        .pond(world, &arguments)
        .env("POND_CONTAINER_TRANSFER", way)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(first_line(&mut child), "ready\n");
    child
}

pub(super) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {} s", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Somebody else's container under this name, which says of itself that it is a job's.
pub(super) fn bystander(daemon: &Daemon, name: &str) {
    let image = daemon.api("GET", "/images/json", None)[0]["Id"].clone();
    let labels = json!({ "io.pond.job": name.strip_prefix("pond-") });
    let body = json!({ "Image": image, "Cmd": ["/usr/bin/true"], "Labels": labels });
    let made = daemon.api("POST", &format!("/containers/create?name={name}"), Some(&body));
    assert!(made["Id"].is_string(), "{made}");
}

pub(super) fn swept(daemon: &Daemon, world: &World) {
    let done = daemon.run(world, &["gc"]);
    assert_eq!(done.code, 0, "{done:?}");
}

pub(super) fn nothing_of_ours_is_left(daemon: &Daemon, world: &World, bystanders: &[String]) {
    assert_eq!(daemon.containers(), bystanders);
    let volumes = daemon.api("GET", "/volumes", None)["Volumes"].as_array().map(Vec::len);
    assert_eq!(volumes, Some(1));
    assert_eq!(names(&world.state().join("live")).len(), 0);
    let marker = world.state().display().to_string();
    assert!(!std::fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&marker));
    eventually("the loop devices are free", || loops(&marker).is_empty());
    let scratch = names(&world.state().join("scratch"));
    assert!(scratch.iter().all(|name| name.ends_with(".image")), "{scratch:?}");
}

#[test]
fn whatever_is_killed_nothing_of_a_job_stays() {
    killed("bind");
}

#[test]
fn whatever_is_killed_nothing_of_a_streamed_job_stays() {
    killed("stream");
}

fn killed(way: &str) {
    let (mut daemon, world) = (Daemon::start(), World::new());
    // A first run brings the image.
    assert_eq!(daemon.run(&world, &["run", "-q", "--backend", "docker", "--", "true"]).code, 0);
    bystander(&daemon, "pond-20200101-000000-bystander");
    daemon.api("POST", "/volumes/create", Some(&json!({ "Name": "pond-bystander" })));
    let mut bystanders = daemon.containers();

    // pond: the stream of pid 1 ends, and with it the job, before any sweep.
    let mut pond = start(&daemon, &world, "docker", way);
    pond.kill().unwrap();
    pond.wait().unwrap();
    let running = |daemon: &Daemon| daemon.api("GET", "/containers/json", None) != Value::Array(Vec::new());
    eventually("the container ends with pond", || !running(&daemon));
    swept(&daemon, &world);
    nothing_of_ours_is_left(&daemon, &world, &bystanders);

    // The name of a container proves nothing: somebody else's in its place stays.
    let mut pond = start(&daemon, &world, "docker", way);
    pond.kill().unwrap();
    pond.wait().unwrap();
    eventually("the container ends with pond", || !running(&daemon));
    let left = daemon.containers().into_iter().find(|name| !bystanders.contains(name)).unwrap();
    let name = left.trim_start_matches('/');
    daemon.api("DELETE", &format!("/containers/{name}?force=true"), None);
    bystander(&daemon, name);
    bystanders = daemon.containers();
    swept(&daemon, &world);
    nothing_of_ours_is_left(&daemon, &world, &bystanders);

    // The engine: the job is killed without it, and removed when it is back.
    let pond = start(&daemon, &world, "docker", way);
    daemon.kill();
    let output = pond.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("[engine_gone]"), "{said}");
    assert!(said.matches("no container engine answers").count() <= 1, "{said}");
    match way {
        // What the job had made is on this host's disk, and is a result as any other's.
        "bind" => {
            assert_eq!(output.status.code(), Some(137), "{said}");
            let last = names(&world.state().join("runs")).into_iter().max().unwrap();
            let applied = world.run(&["apply", &last]);
            assert_eq!((applied.code, world.read("made")), (0, "work\n".to_owned()), "{applied:?}");
        }
        // What was in the container's memory went with it.
        _ => assert!(said.contains("result not collected"), "{said}"),
    }
    // Nobody else has to wait for that engine.
    assert_eq!(world.run(&["run", "-q", "--", "true"]).code, 0);
    daemon.restart();
    swept(&daemon, &world);
    nothing_of_ours_is_left(&daemon, &world, &bystanders);
}

/// A directory nobody can remove anything from, for as long as this is held.
struct Fixed(PathBuf);

impl Fixed {
    fn new(directory: PathBuf) -> Self {
        let done = command("chattr").arg("+i").arg(&directory).status().unwrap();
        assert!(done.success(), "{}", directory.display());
        Self(directory)
    }
}

impl Drop for Fixed {
    fn drop(&mut self) {
        drop(command("chattr").arg("-i").arg(&self.0).status());
    }
}

/// An engine that cannot remove a container keeps neither its job's result nor anybody's next job.
#[test]
fn a_job_is_worth_the_same_when_its_container_stays() {
    let (daemon, world) = (Daemon::start(), World::new());
    let arguments = ["run", "--backend", "docker", "--", "sh", "-c", "echo ready; echo work > made; read go"];
    let mut pond = daemon.pond(&world, &arguments);
    let pond = pond.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut pond = pond.spawn().unwrap();
    assert_eq!(first_line(&mut pond), "ready\n");
    let id = daemon.api("GET", "/containers/json", None)[0]["Id"].as_str().unwrap().to_owned();
    let fixed = Fixed::new(daemon.file("data/containers").join(id));
    pond.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let output = pond.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("its container is still there, which the next start removes"), "{said}");
    // Everybody else goes on, and is told.
    let done = world.run(&["run", "-q", "--", "true"]);
    assert!(done.code == 0 && done.stderr.contains("removing the container"), "{done:?}");
    drop(fixed);
    swept(&daemon, &world);
    assert_eq!(daemon.containers(), Vec::<String>::new());
    assert_eq!(names(&world.state().join("live")).len(), 0);
    let first = names(&world.state().join("runs")).into_iter().min().unwrap();
    let applied = world.run(&["apply", &first]);
    assert_eq!((applied.code, world.read("made")), (0, "work\n".to_owned()), "{applied:?}");
}
