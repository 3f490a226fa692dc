//! A Docker engine with its own data, socket, groups and runtimes, in a directory that goes with it. No image is ever pulled.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::done::Done;
use crate::support::World;

const DAEMON: &str = "/usr/sbin/dockerd";
const RUNC: &str = "/usr/sbin/runc";
/// Far longer than an engine takes to start or stop on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runtimes that are runc under the names of others.
pub(super) const LIAR: &str = "liar";

pub(super) struct Daemon {
    directory: TempDir,
    process: Child,
}

/// gVisor as `cargo xtask test` fetched it, else as this machine has it.
#[expect(clippy::disallowed_methods, reason = "the runner of the tests says where it put the runtime")]
pub(super) fn runsc() -> String {
    std::env::var("POND_TEST_RUNSC").unwrap_or_else(|_| "/usr/bin/runsc".to_owned())
}

#[expect(clippy::disallowed_methods, reason = "tests start what they test against")]
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    command
}

impl Daemon {
    pub(super) fn start() -> Self {
        Self::start_under(&[])
    }

    /// In a mount namespace of its own, into which no mount of this one comes.
    pub(super) fn start_apart() -> Self {
        Self::start_under(&["unshare", "--mount", "--propagation", "private", "--"])
    }

    fn start_under(words: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let runtimes = json!({ "runtimes": {
            "runsc": { "path": runsc(), "runtimeArgs": ["--network=host", "--platform=systrap"] },
            "runsc-own-network": { "path": runsc(), "runtimeArgs": ["--platform=systrap"] },
            LIAR: { "path": RUNC, "runtimeArgs": [] },
        }});
        std::fs::write(directory.path().join("daemon.json"), runtimes.to_string()).unwrap();
        let process = spawn(directory.path(), words);
        let daemon = Self { directory, process };
        daemon.wait();
        daemon
    }

    /// As after a crash of the engine: killed, and started again on the same data.
    pub(super) fn restart(&mut self) {
        self.process = spawn(self.directory.path(), &[]);
        self.wait();
    }

    pub(super) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        // Its containerd dies with it; a number that nobody has reaped yet would pass for a living one.
        for file in ["pid", "run/containerd/containerd.pid"] {
            std::fs::remove_file(self.directory.path().join(file)).unwrap();
        }
    }

    fn socket(&self) -> PathBuf {
        self.file("sock")
    }

    /// A file of the engine's own, by its name: `daemon.json`, `pid`, …
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn address(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    fn wait(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.ask("GET", "/_ping", None).is_none_or(|answer| answer != "OK") {
            let log = || std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "dockerd does not answer: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn ask(&self, method: &str, path: &str, body: Option<&str>) -> Option<String> {
        let mut curl = command("curl");
        curl.args(["--silent", "--request", method, "--unix-socket"]).arg(self.socket());
        if let Some(body) = body {
            curl.args(["--header", "Content-Type: application/json", "--data", body]);
        }
        let output = curl.arg(format!("http://engine{path}")).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    pub(super) fn api(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let body = body.map(Value::to_string);
        let answer = self.ask(method, path, body.as_deref()).unwrap();
        serde_json::from_str(&answer).unwrap_or(Value::Null)
    }

    /// The names of all containers, running or not.
    pub(super) fn containers(&self) -> Vec<String> {
        let listed = self.api("GET", "/containers/json?all=1", None);
        let name = |container: &Value| container["Names"][0].as_str().unwrap().to_owned();
        listed.as_array().unwrap().iter().map(name).collect()
    }

    /// `pond run` with these flags and command, on this engine.
    pub(super) fn pond(&self, world: &World, arguments: &[&str]) -> Command {
        let mut pond = world.pond(arguments);
        pond.env("DOCKER_HOST", self.address());
        pond
    }

    pub(super) fn run(&self, world: &World, arguments: &[&str]) -> Done {
        Done::of(self.pond(world, arguments).output().unwrap())
    }
}

/// `words` become the engine: they execute what follows them.
fn spawn(directory: &Path, words: &[&str]) -> Child {
    let place = |option: &str, name: &str| format!("--{option}={}", directory.join(name).display());
    let log = std::fs::File::create(directory.join("log")).unwrap();
    let name = directory.file_name().unwrap().to_string_lossy().replace('.', "");
    let mut words = words.iter().copied().chain([DAEMON]);
    let mut engine = command(words.next().unwrap_or_default());
    engine
        .args(words)
        .args([place("config-file", "daemon.json"), place("data-root", "data"), place("exec-root", "run")])
        .args([place("pidfile", "pid"), format!("--host=unix://{}", directory.join("sock").display())])
        .args([format!("--cgroup-parent=/pond-test-{name}"), format!("--containerd-namespace={name}")])
        .args(["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-masq=false"])
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let asked = command("kill").arg(self.process.id().to_string()).status();
        let deadline = Instant::now() + PATIENCE;
        while asked.is_ok() && Instant::now() < deadline && matches!(self.process.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        if let Ok(None) = self.process.try_wait() {
            eprintln!("dockerd did not end when asked to: {:?}", self.process.kill());
        }
        let name = self.directory.path().file_name().unwrap().to_string_lossy().replace('.', "");
        let groups =
            format!("find /sys/fs/cgroup -depth -type d -path '*/pond-test-{name}*' -exec rmdir {{}} ';'");
        drop(command("sh").args(["-c", &groups]).output());
    }
}
