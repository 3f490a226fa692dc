//! A machine that is a worker: a state directory of its own, and `pond worker run` on it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pond_seal::key::SigningKey;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::control::{Control, PATIENCE};

pub(crate) struct Host {
    directory: TempDir,
    daemon: Option<Child>,
    has_own_disk: bool,
}

#[expect(clippy::disallowed_methods, reason = "tests start the program they test")]
fn command(program: &str) -> Command {
    Command::new(program)
}

impl Host {
    /// A machine that has joined, with no daemon yet.
    pub(crate) fn joined(control: &Control) -> Self {
        let host = Self { directory: tempfile::tempdir().unwrap(), daemon: None, has_own_disk: false };
        host.join(control);
        host
    }

    /// One at work whose state lies on a disk of its own, of 300 MiB.
    pub(crate) fn with_own_disk(control: &Control) -> Self {
        let mut host = Self { directory: tempfile::tempdir().unwrap(), daemon: None, has_own_disk: true };
        let (image, place) = (host.directory.path().join("image"), host.state());
        std::fs::create_dir(&place).unwrap();
        File::create(&image).unwrap().set_len(300 << 20).unwrap();
        assert!(command("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image).status().unwrap().success());
        assert!(command("mount").args(["-o", "loop"]).args([&image, &place]).status().unwrap().success());
        host.join(control);
        host.start();
        host
    }

    fn join(&self, control: &Control) {
        let mut join = self.pond(&["worker", "join", "--control", &format!("http://{}", control.address)]);
        let mut join = join.stdin(Stdio::piped()).spawn().unwrap();
        join.stdin.take().unwrap().write_all(control.token().as_bytes()).unwrap();
        assert!(join.wait().unwrap().success(), "{}", self.log());
    }

    pub(crate) fn working(control: &Control) -> Self {
        let mut host = Self::joined(control);
        host.start();
        host
    }

    pub(crate) fn start(&mut self) {
        let daemon = self.pond(&["worker", "run", "--jobs", "2"]).spawn().unwrap();
        self.daemon = Some(daemon);
    }

    /// pond on this machine; what it says goes to the log.
    pub(crate) fn pond(&self, arguments: &[&str]) -> Command {
        let log = File::options().create(true).append(true).open(self.directory.path().join("log")).unwrap();
        let mut pond = command(env!("CARGO_BIN_EXE_pond"));
        pond.args(arguments)
            .current_dir(self.directory.path())
            .env("POND_STATE_DIR", self.state())
            .env("POND_CONFIG", self.operator_file())
            .env_remove("POND_REQUIRE_SANDBOX")
            .env_remove("POND_MIN_BACKEND")
            // Engines would only be asked what they have.
            .env("DOCKER_HOST", "unix:///nowhere/docker.sock")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        pond
    }

    /// What this machine knows of models; empty unless a test writes it.
    pub(crate) fn operator_file(&self) -> PathBuf {
        let path = self.directory.path().join("pond.toml");
        if !path.exists() {
            std::fs::write(&path, "").unwrap();
        }
        path
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn key(&self) -> SigningKey {
        let pem = std::fs::read_to_string(self.state().join("worker/signing-key.pem")).unwrap();
        SigningKey::from_pem(&pem).unwrap()
    }

    pub(crate) fn daemon(&self) -> Pid {
        Pid::from_child(self.daemon.as_ref().unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.daemon(), signal).unwrap();
    }

    /// Waits for the daemon's end.
    pub(crate) fn wait_for_end(&mut self) -> std::process::ExitStatus {
        let since = Instant::now();
        loop {
            if let Some(status) = self.daemon.as_mut().unwrap().try_wait().unwrap() {
                self.daemon = None;
                return status;
            }
            assert!(since.elapsed() < PATIENCE, "waiting for the daemon's end\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn wait_for_line(&self, text: &str) {
        self.wait(&format!("{text:?} in the log"), || self.log().contains(text));
    }

    pub(crate) fn wait(&self, what: &str, is_so: impl Fn() -> bool) {
        let since = Instant::now();
        while !is_so() {
            assert!(since.elapsed() < PATIENCE, "waiting for {what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What lies in the directories of jobs, runs and records, but for the one record of the process that waits for the next job.
    pub(crate) fn residue(&self) -> Vec<PathBuf> {
        let rooms = ["jobs", "state/live", "state/runs"].map(|room| self.state().join("worker").join(room));
        let mut left: Vec<PathBuf> = rooms.iter().flat_map(|room| entries(room)).collect();
        let ready = left.iter().position(|path| is_spare(path));
        if let Some(at) = ready.filter(|_| self.daemon.is_some()) {
            left.remove(at);
        }
        left
    }

    /// The record of what is ready for the next job, and its control groups.
    pub(crate) fn spare(&self) -> Option<(PathBuf, Vec<PathBuf>)> {
        let record =
            entries(&self.state().join("worker/state/live")).into_iter().find(|path| is_spare(path))?;
        let said: serde_json::Value = serde_json::from_slice(&std::fs::read(&record).ok()?).ok()?;
        let groups = said["made"]["native"]["cgroups"].as_array()?;
        Some((record, groups.iter().map(|group| group.as_str().unwrap().into()).collect()))
    }

    /// Commands that were written down as asked for.
    pub(crate) fn commands(&self) -> usize {
        let audit = std::fs::read_to_string(self.state().join("worker/state/audit.jsonl"));
        audit.unwrap_or_default().lines().count()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take()
            && daemon.try_wait().unwrap().is_none()
        {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
        }
        // Its jobs notice; what they leave goes with the next look.
        let swept = self.pond(&["worker", "probe"]).status().unwrap();
        assert!(swept.success() || std::thread::panicking(), "{}", self.log());
        if self.has_own_disk {
            let gone = command("umount").arg(self.state()).status().unwrap();
            assert!(gone.success() || std::thread::panicking(), "unmounting the state");
        }
    }
}

fn is_spare(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"spare."))
}

fn entries(room: &Path) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(room).into_iter().flatten();
    listed.map(|entry| entry.unwrap().path()).collect()
}

/// Processes whose command line has this word.
pub(crate) fn processes(word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        if line.split(|byte| *byte == 0).any(|part| part == word.as_bytes()) {
            found.push(name);
        }
    }
    found
}
