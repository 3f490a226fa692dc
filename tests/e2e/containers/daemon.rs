//! A Docker engine with its own data, socket, groups and runtimes, in a directory that goes with it. No image is ever pulled.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

const DAEMON: &str = "/usr/sbin/dockerd";
const RUNC: &str = "/usr/sbin/runc";
/// Far longer than an engine takes to start or stop on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A runtime that is runc under another name.
pub(super) const LIAR: &str = "liar";

/// gVisor, after one thing was taken out of what the engine had asked for; and with somebody at a door before pond is.
pub(super) const FORGETFUL: [(&str, &str); 5] = [
    ("forgets-memory", "linux['resources'].pop('memory')"),
    ("forgets-cpu", "linux['resources'].pop('cpu')"),
    ("forgets-pids", "linux['resources'].pop('pids')"),
    (
        "shares-the-network",
        "linux['namespaces'] = [one for one in linux['namespaces'] if one['type'] != 'network']",
    ),
    ("takes-the-proxy", "port = 3128"),
];

/// Edits what it is asked to create, and then is gVisor.
const FORGET: &str = r#"#!/usr/bin/python3
import json, os, subprocess, sys
port, arguments = None, ["RUNSC", *sys.argv[1:]]
if "create" not in arguments:
    os.execv(arguments[0], arguments)
path = arguments[arguments.index("--bundle") + 1] + "/config.json"
config = json.load(open(path))
linux = config["linux"]
EDIT
json.dump(config, open(path, "w"))
code = subprocess.run(arguments).returncode
if port and not code:
    pid = open(arguments[arguments.index("--pid-file") + 1]).read()
    listen = f"""
import os, socket, time
listener = socket.create_server(("0.0.0.0", {port}))
os.write(1, b"x")
while os.path.exists("/proc/{pid}"): time.sleep(0.1)
"""
    holder = subprocess.Popen(["nsenter", "--net", "--target", pid, "python3", "-c", listen],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
    holder.stdout.read(1)
sys.exit(code)
"#;

pub(crate) struct Daemon {
    directory: TempDir,
    process: Child,
}

/// gVisor as `cargo xtask test` fetched it, else as this machine has it.
#[expect(clippy::disallowed_methods, reason = "the runner of the tests says where it put the runtime")]
pub(super) fn runsc() -> String {
    std::env::var("POND_TEST_RUNSC").unwrap_or_else(|_| "/usr/bin/runsc".to_owned())
}

#[expect(clippy::disallowed_methods, reason = "tests start what they test against")]
pub(super) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    command
}

impl Daemon {
    pub(crate) fn start() -> Self {
        Self::start_under::<&str>(&[])
    }

    /// In a mount namespace of its own, into which no mount of this one comes.
    pub(super) fn start_apart() -> Self {
        Self::start_under(&["unshare", "--mount", "--propagation", "private", "--"])
    }

    /// By way of other programs: each executes what follows it.
    pub(super) fn start_under<Word: AsRef<str>>(words: &[Word]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let usual = ["--network=host", "--platform=systrap"];
        let mut runtimes = json!({
            "runsc": { "path": runsc(), "runtimeArgs": usual },
            "runsc-own-network": { "path": runsc(), "runtimeArgs": ["--platform=systrap"] },
            LIAR: { "path": RUNC, "runtimeArgs": [] },
        });
        for (name, edit) in FORGETFUL {
            let path = forgetful(directory.path(), name, edit);
            runtimes[name] = json!({ "path": path, "runtimeArgs": usual });
        }
        let settings = json!({ "runtimes": runtimes }).to_string();
        std::fs::write(directory.path().join("daemon.json"), settings).unwrap();
        let process = spawn(directory.path(), words);
        let daemon = Self { directory, process };
        daemon.wait();
        daemon
    }

    /// Started again on the same data, after it was killed or stopped.
    pub(super) fn restart(&mut self) {
        self.process = spawn::<&str>(self.directory.path(), &[]);
        self.wait();
    }

    /// runc under one more name.
    pub(super) fn register(&mut self, name: &str) {
        let file = self.file("daemon.json");
        let mut settings: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        settings["runtimes"][name] = json!({ "path": RUNC, "runtimeArgs": [] });
        std::fs::write(file, settings.to_string()).unwrap();
        self.kill();
        self.restart();
    }

    /// As an init system stops it: asked to end, and given the time it takes.
    pub(super) fn stop(&mut self) {
        assert!(self.ends_when_asked(), "dockerd did not end when asked to");
    }

    fn ends_when_asked(&mut self) -> bool {
        let asked = command("kill").arg(self.process.id().to_string()).status();
        let deadline = Instant::now() + PATIENCE;
        while asked.is_ok() && Instant::now() < deadline && matches!(self.process.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        matches!(self.process.try_wait(), Ok(Some(_)))
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

    pub(crate) fn address(&self) -> String {
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

    /// Processes in the groups of containers.
    pub(super) fn processes(&self) -> Vec<String> {
        processes_with("cgroup", &format!("/pond-test-{}/", self.name()))
    }

    fn name(&self) -> String {
        self.directory.path().file_name().unwrap().to_string_lossy().replace('.', "")
    }

    /// The names of all containers, running or not.
    pub(super) fn containers(&self) -> Vec<String> {
        let listed = self.api("GET", "/containers/json?all=1", None);
        let name = |container: &Value| container["Names"][0].as_str().unwrap().to_owned();
        listed.as_array().unwrap().iter().map(name).collect()
    }

    /// Gives the engine an image of these programs of the host and what they link, with these instructions of a Dockerfile.
    pub(super) fn import(&self, name: &str, programs: &[&str], changes: &[&str]) -> String {
        self.import_with(name, programs, &[], changes)
    }

    /// The same, with these directories of the host besides.
    pub(super) fn import_with(
        &self,
        name: &str,
        programs: &[&str],
        trees: &[&str],
        changes: &[&str],
    ) -> String {
        let escaped = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let changes: String = changes.iter().map(|change| format!("&changes={}", escaped(change))).collect();
        self.give(
            &format!("/images/create?fromSrc=-&repo={name}&tag=latest{changes}"),
            &root_of(programs, trees),
            name,
        )
    }

    /// Has the engine build an image from this Dockerfile and a `root.tar` of these programs.
    pub(super) fn build(&self, name: &str, programs: &[&str], dockerfile: &str) -> String {
        let context = tempfile::tempdir().unwrap();
        std::fs::write(context.path().join("root.tar"), root_of(programs, &[])).unwrap();
        std::fs::write(context.path().join("Dockerfile"), dockerfile).unwrap();
        let mut tar = command("tar");
        let tar = tar.arg("--directory").arg(context.path()).args(["--create", "."]).output().unwrap();
        assert!(tar.status.success(), "{tar:?}");
        self.give(&format!("/build?t={name}"), &tar.stdout, name)
    }

    /// Sends an archive, and says which image has the name then.
    fn give(&self, path: &str, archive: &[u8], name: &str) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), archive).unwrap();
        let mut curl = command("curl");
        curl.args(["--silent", "--request", "POST", "--header", "Content-Type: application/x-tar"])
            .arg("--data-binary")
            .arg(format!("@{}", file.path().display()))
            .arg("--unix-socket")
            .arg(self.socket())
            .arg(format!("http://engine{path}"));
        let output = curl.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let found = self.api("GET", &format!("/images/{name}/json"), None);
        found["Id"].as_str().unwrap_or_else(|| panic!("{said}")).to_owned()
    }
}

/// An archive of these programs of the host and what they link, and of these directories.
fn root_of(programs: &[&str], trees: &[&str]) -> Vec<u8> {
    let root = tempfile::tempdir().unwrap();
    if !trees.is_empty() {
        let mut copy = command("cp");
        let copied =
            copy.args(["-rL", "--parents", "--target-directory"]).arg(root.path()).args(trees).output();
        assert!(copied.as_ref().unwrap().status.success(), "{copied:?}");
    }
    let line = r#"mkdir -p "$0/etc" && for p in "$@"; do
        for f in "$p" $(ldd "$p" | grep -o '/[^ ]*'); do mkdir -p "$0$(dirname "$f")" && cp -L "$f" "$0$f"; done; done
        tar --directory "$0" --create ."#;
    let tar = command("sh").args(["-c", line]).arg(root.path()).args(programs).output().unwrap();
    assert!(tar.status.success(), "{tar:?}");
    tar.stdout
}

/// The numbers of processes with this text in a file of theirs.
fn processes_with(file: &str, text: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let has = |pid: &String| {
        std::fs::read(format!("/proc/{pid}/{file}"))
            .is_ok_and(|content| String::from_utf8_lossy(&content).contains(text))
    };
    pids.filter(has).collect()
}

fn forgetful(directory: &Path, name: &str, edit: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, FORGET.replace("RUNSC", &runsc()).replace("EDIT", edit)).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

fn spawn<Word: AsRef<str>>(directory: &Path, words: &[Word]) -> Child {
    let place = |option: &str, name: &str| format!("--{option}={}", directory.join(name).display());
    let log = std::fs::File::create(directory.join("log")).unwrap();
    let name = directory.file_name().unwrap().to_string_lossy().replace('.', "");
    let mut words = words.iter().map(AsRef::as_ref).chain([DAEMON]);
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
        if !self.ends_when_asked() {
            eprintln!("dockerd did not end when asked to: {:?}", self.process.kill());
        }
        let name = self.name();
        // An engine that could not start a container may forget the process that stands beside it.
        for forgotten in processes_with("cmdline", &format!("-namespace\0{name}\0")) {
            drop(command("kill").args(["-9", &forgotten]).output());
        }
        let groups =
            format!("find /sys/fs/cgroup -depth -type d -path '*/pond-test-{name}*' -exec rmdir {{}} ';'");
        drop(command("sh").args(["-c", &groups]).output());
        // One that was killed has mounted its data over itself, and the directory could not go.
        let place = self.directory.path().display();
        let mounts = format!(
            "awk -v at={place}/ 'index($2, at) == 1 {{ print $2 }}' /proc/mounts | sort -r | xargs -r -n 1 umount -l"
        );
        drop(command("sh").args(["-c", &mounts]).output());
    }
}
