//! A backend that is not really there is refused, and nothing of the job has run.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};

use super::daemon::{Daemon, FORGETFUL, LIAR, command};
use super::killed::eventually;
use crate::done::Done;
use crate::support::{World, first_line, names};

/// The job would say so if it ran.
const JOB: [&str; 4] = ["--", "sh", "-c", "echo ran; echo ran > f"];

fn refused(done: &Done, why: &str) {
    assert!(done.code == 125 && done.stdout.is_empty() && done.stderr.contains(why), "{why:?}: {done:?}");
}

fn nothing_is_left(world: &World) {
    assert_eq!(names(&world.state().join("live")).len(), 0, "records");
    assert_eq!(names(&world.state().join("runs")).len(), 0);
    let scratch = names(&world.state().join("scratch"));
    assert!(scratch.iter().all(|name| name.ends_with(".image")), "{scratch:?}");
}

#[test]
fn a_runtime_that_is_not_what_it_claims_is_refused() {
    let (daemon, world) = (Daemon::start(), World::new());
    let run = |flags: &[&str], runtime: &str| {
        let arguments = [&["run"], flags, &JOB].concat();
        let mut pond = daemon.pond(&world, &arguments);
        Done::of(pond.env("SWARM_GVISOR_RUNTIME", runtime).output().unwrap())
    };
    let sealed = ["--backend", "gvisor", "--profile", "untrusted-code-read"];
    let lied = run(&sealed, LIAR);
    refused(&lied, "isolation_mismatch: the runtime that should be gVisor");
    assert!(!lied.stderr.contains("had begun"), "{lied:?}");
    refused(&run(&sealed, "nosuch"), "no runtime \"nosuch\" is registered");
    refused(&run(&["--backend", "gvisor"], "runsc-own-network"), "a network stack of its own");
    assert_eq!(daemon.containers(), Vec::<String>::new());
    nothing_is_left(&world);
    // The control: the same job where the name is true.
    let done = run(&sealed, "runsc");
    assert!(done.stdout == "ran\n", "{done:?}");
}

/// runc is registered as `kata-fc`, the first name that is looked for.
#[test]
fn a_machine_that_is_none_is_refused() {
    let (mut daemon, world) = (Daemon::start(), World::new());
    daemon.register("kata-fc");
    daemon.import("tools", &["/bin/sh"], &[]);
    let run = |flags: &[&str], runtime: &str| {
        let arguments = [&["run", "--backend", "firecracker"], flags, &JOB].concat();
        let mut pond = daemon.pond(&world, &arguments);
        Done::of(pond.env("SWARM_KATA_RUNTIME", runtime).output().unwrap())
    };
    let sealed = ["--profile", "untrusted-code-read", "--image", "tools"];
    for runtime in ["", "kata-fc", LIAR, "runc"] {
        refused(
            &run(&sealed, runtime),
            "isolation_mismatch: the runtime that should be a virtual machine runs",
        );
    }
    // gVisor is no machine either, whatever it is called.
    refused(&run(&sealed, "runsc"), "isolation_mismatch: the runtime that should be a virtual machine says");
    refused(&run(&sealed, "nosuch"), "no runtime \"nosuch\" is registered");
    refused(&run(&["--image", "tools"], ""), "a network of its own");
    refused(&run(&["--profile", "untrusted-code-read"], ""), "name an image of the engine's with --image");
    let mut pond = daemon.pond(&world, &[&["run", "--backend", "firecracker"], &sealed[..], &JOB].concat());
    let bound = Done::of(pond.env("POND_CONTAINER_TRANSFER", "bind").output().unwrap());
    refused(&bound, "shares no directory with this host");
    assert_eq!(daemon.containers(), Vec::<String>::new());
    nothing_is_left(&world);
}

/// The engine passed every limit on and has no warning; what the kernel holds is something else.
#[test]
fn what_was_lost_between_the_engine_and_the_kernel_is_noticed() {
    let (daemon, world) = (Daemon::start(), World::new());
    let run = |runtime: &str, profile: &str| {
        let arguments = [&["run", "--backend", "gvisor", "--profile", profile], &JOB[..]].concat();
        Done::of(daemon.pond(&world, &arguments).env("SWARM_GVISOR_RUNTIME", runtime).output().unwrap())
    };
    let reasons = [
        "memory.limit_in_bytes",
        "cpu.cfs_quota_us",
        "pids.max",
        "isolation_mismatch: the runtime gave the container a network that leads somewhere",
        "could not open the gateway's doors: Address already in use",
    ];
    for ((runtime, _), reason) in FORGETFUL.into_iter().zip(reasons) {
        refused(&run(runtime, "untrusted-code-write"), reason);
    }
    // Without a network posture there is no door either; the limits hold all the same.
    refused(&run("forgets-memory", "untrusted-code-read"), "memory.limit_in_bytes");
    refused(&run("shares-the-network", "untrusted-code-read"), "isolation_mismatch");
    assert_eq!(daemon.containers(), Vec::<String>::new());
    nothing_is_left(&world);
    let done = run("runsc", "untrusted-code-write");
    assert!(done.stdout == "ran\n", "{done:?}");
}

/// gVisor's own network stack cannot be had on every kernel, and there it fails when its processes are there already.
#[test]
fn a_runtime_that_fails_half_way_leaves_no_process() {
    let (daemon, world) = (Daemon::start(), World::new());
    let arguments = [&["run", "--backend", "gvisor", "--profile", "untrusted-code-read"], &JOB[..]].concat();
    let mut pond = daemon.pond(&world, &arguments);
    let done = Done::of(pond.env("SWARM_GVISOR_RUNTIME", "runsc-own-network").output().unwrap());
    assert!(done.stdout == "ran\n" || done.stderr.contains("starting the container"), "{done:?}");
    eventually("nothing of the container runs", || daemon.processes().is_empty());
    assert_eq!(daemon.containers(), Vec::<String>::new());
}

#[test]
fn an_engine_that_does_not_see_the_jobs_disk_shows_the_job_nothing() {
    let (daemon, world) = (Daemon::start_apart(), World::new());
    // Of a copy that travels it sees as little: there is not even a pid 1.
    for way in ["bind", "stream"] {
        let mut pond = daemon.pond(&world, &[&["run", "--backend", "docker"][..], &JOB].concat());
        let done = Done::of(pond.env("POND_CONTAINER_TRANSFER", way).output().unwrap());
        refused(&done, "exec: \"/.pond/init\": permission denied");
    }
    assert_eq!(daemon.containers(), Vec::<String>::new());
    nothing_is_left(&world);
}

#[test]
fn without_an_engine_there_is_no_backend() {
    let world = World::new();
    let run = |address: &str, flags: &[&str]| {
        let mut pond = world.pond(&[&["run", "--backend", "docker"], flags, &JOB].concat());
        Done::of(pond.env("DOCKER_HOST", address).output().unwrap())
    };
    refused(
        &run("unix:///nonexistent/docker.sock", &[]),
        "no container engine answers at /nonexistent/docker.sock",
    );
    refused(&run("tcp://127.0.0.1:2375", &[]), "DOCKER_HOST is \"tcp://127.0.0.1:2375\"");
    nothing_is_left(&world);
}

/// Whoever listens at the engine's socket would be told everything about a job, and could say anything of it.
#[test]
fn an_engine_of_somebody_else_is_refused() {
    let world = World::new();
    let directory = tempfile::tempdir().unwrap();
    // Everybody may make a socket there, as in /tmp.
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let told = |uid: u32| {
        let socket = directory.path().join(uid.to_string());
        let mut listener = Listener::start(&socket, uid);
        let mut pond = world.pond(&[&["run", "--backend", "docker"], &JOB[..]].concat());
        let done =
            Done::of(pond.env("DOCKER_HOST", format!("unix://{}", socket.display())).output().unwrap());
        listener.end();
        done
    };
    refused(&told(65534), "belongs to a process of user 65534");
    // The control: root's listener is heard, and what it says is no engine's answer.
    refused(&told(0), "an answer of the container engine cannot be read");
    nothing_is_left(&world);
}

/// Answers every request with the same few words.
struct Listener(Child);

impl Listener {
    fn start(socket: &Path, uid: u32) -> Self {
        let script = "import os, socket, sys\nlistener = socket.socket(socket.AF_UNIX)\nlistener.bind(sys.argv[1])\n\
                      listener.listen()\nos.chmod(sys.argv[1], 0o777)\nprint('ready', flush=True)\n\
                      while True:\n    peer = listener.accept()[0]\n    peer.recv(4096)\n    \
                      peer.send(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{}')\n    peer.close()\n";
        let mut python = command("python3");
        let python = python.args(["-c", script]).arg(socket).uid(uid).stdout(Stdio::piped());
        let mut child = python.spawn().unwrap();
        assert_eq!(first_line(&mut child), "ready\n");
        Self(child)
    }

    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}
