//! A docker daemon of the bench's own: private data, private socket, no network set up, no image ever pulled.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::stand::Stand;
use crate::run::Invocation;

/// Debian's, whatever else the path offers.
pub(super) const CLIENT: &str = "/usr/bin/docker";
const DAEMON: &str = "/usr/sbin/dockerd";
const IMAGE: &str = "pond-bench";
/// What gVisor is registered as.
pub(super) const RUNSC: &str = "runsc";
pub(super) const GROUP: &str = "pond-bench-docker";
const PATIENCE: Duration = Duration::from_secs(60);

/// The settings of a daemon that has gVisor as pond needs it.
pub(super) fn with_runsc(runsc: &Path) -> String {
    let arguments = r#"["--platform=systrap", "--network=host"]"#;
    format!(
        r#"{{ "runtimes": {{ "{RUNSC}": {{ "path": "{}", "runtimeArgs": {arguments} }} }} }}"#,
        runsc.display()
    )
}

#[derive(Debug)]
pub(super) struct Daemon<'a> {
    stand: &'a Stand,
    process: Child,
    address: String,
}

impl<'a> Daemon<'a> {
    /// Starts a daemon with these settings and no image.
    pub(super) fn start(stand: &'a Stand, settings: &str) -> Result<Self> {
        let file = stand.path("daemon.json");
        std::fs::write(&file, settings).with_context(|| file.clone())?;
        let config = format!("--config-file={file}");
        let address = format!("unix://{}", stand.path("docker.sock"));
        let data = format!("--data-root={}", stand.path("docker"));
        let run = format!("--exec-root={}", stand.path("docker-run"));
        let pid = format!("--pidfile={}", stand.path("docker.pid"));
        let host = format!("--host={address}");
        let group = format!("--cgroup-parent=/{GROUP}");
        let own = [DAEMON, &config, &data, &run, &pid, &host, &group];
        let no_network = ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-masq=false"];
        let process = stand.command(&[&own[..], &no_network].concat()).start(&stand.log)?;
        let mut daemon = Self { stand, process, address };
        daemon.wait()?;
        Ok(daemon)
    }

    /// Gives it the bundle's root as an image.
    pub(super) fn import(&self, bundle: &str) -> Result<()> {
        let root = format!("{bundle}/rootfs");
        let archive = self.stand.path("image.tar");
        self.stand.step(&["tar", "--create", "--file", &archive, "--directory", &root, "."])?;
        self.client(&["import", &archive, IMAGE]).logged(&self.stand.log)
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The words of `docker run` without a network, and with its own defaults but for these.
    pub(super) fn plain(&self, rest: &[&str]) -> Vec<String> {
        let words = [CLIENT, "--host", &self.address, "run", "--rm", "--network=none"];
        words.into_iter().chain(rest.iter().copied()).map(str::to_owned).collect()
    }

    /// The words of `docker run` for this image, limits and hardening included.
    pub(super) fn run(&self, command: &str) -> Vec<String> {
        let words = [
            CLIENT,
            "--host",
            &self.address,
            "run",
            "--rm",
            "--network=none",
            "--read-only",
            "--cap-drop=ALL",
        ];
        let limits = [
            "--security-opt=no-new-privileges",
            "--memory=4g",
            "--cpus=2",
            "--pids-limit=512",
            IMAGE,
            command,
        ];
        words.into_iter().chain(limits).map(str::to_owned).collect()
    }

    pub(super) fn client(&self, words: &[&str]) -> Invocation {
        self.stand.command(&[&[CLIENT, "--host", &self.address], words].concat())
    }

    fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while let Err(fault) = self.client(&["version"]).capture() {
            if let Some(status) = self.process.try_wait()? {
                bail!("dockerd ended ({status}); its complaint is in {}", self.stand.log.display());
            }
            if Instant::now() > deadline {
                return Err(fault.context("dockerd does not answer"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Ends the daemon and takes away the groups it made.
    pub(super) fn stop(mut self) -> Result<()> {
        self.stand.step(&["kill", &self.process.id().to_string()])?;
        self.process.wait().context("waiting for dockerd")?;
        let find = ["find", "/sys/fs/cgroup", "-depth", "-type", "d", "-path", &format!("*/{GROUP}*")];
        self.stand.step(&[&find[..], &["-exec", "rmdir", "{}", ";"]].concat())
    }
}

impl Drop for Daemon<'_> {
    /// After `stop` there is nothing left to do; after an error the daemon must not stay.
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            let ended = self.stand.capture(&["kill", &self.process.id().to_string()]);
            if let Err(fault) = ended.and_then(|_| Ok(self.process.wait()?)) {
                eprintln!("dockerd is left running: {fault:#}");
            }
        }
    }
}
