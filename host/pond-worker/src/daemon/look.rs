//! What this host can enforce at this moment, as a process of its own finds out: probes start sandboxes and wait for whatever
//! child there is, which a daemon with jobs must not do. The same process first sweeps what killed jobs left.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use pond_policy::capability::Capability;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;

use super::Daemon;
use super::process::Process;

/// A host changes rarely, and a probe costs a sandbox per backend.
const EVERY: Duration = Duration::from_secs(300);
/// As long as the slowest engine takes to say no.
const PATIENCE: Duration = Duration::from_secs(300);
const MOST_BYTES: u64 = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum LookFault {
    #[error("starting the probe")]
    Start(#[source] io::Error),
    #[error("the probe took longer than {} s", PATIENCE.as_secs())]
    Late,
    #[error("the probe failed")]
    Failed,
    #[error("the probe's answer is none")]
    Answer,
}

/// Looks once.
#[expect(clippy::disallowed_methods, reason = "the probe is pond itself, in a process of its own")]
pub async fn look(executable: &Path) -> Result<Vec<String>, LookFault> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| LookFault::Start(errno.into()))?;
    let mut command = Command::new(executable);
    command.args(["worker", "probe"]).stdin(Stdio::null()).stdout(writer);
    let mut process = Process::start(&mut command).map_err(LookFault::Start)?;
    // The end that the command still holds would keep the reader waiting.
    drop(command);
    let mut stdout = Vec::new();
    let mut said = Receiver::from_owned_fd(reader).map_err(LookFault::Start)?.take(MOST_BYTES);
    let ended = async {
        said.read_to_end(&mut stdout).await?;
        process.wait().await
    };
    let ended = tokio::time::timeout(PATIENCE, ended).await.map_err(|_| LookFault::Late)?;
    if !ended.map_err(LookFault::Start)?.success() {
        return Err(LookFault::Failed);
    }
    let names: Vec<String> = serde_json::from_slice(&stdout).map_err(|_| LookFault::Answer)?;
    match names.iter().all(|name| Capability::parse(name).is_some()) {
        true => Ok(names),
        false => Err(LookFault::Answer),
    }
}

/// Looks again now and then, and whenever a job could not be run. What could not be looked at is not there.
pub(super) async fn keep_looking(daemon: &Daemon, known: &watch::Sender<Vec<String>>) {
    loop {
        let waited = tokio::time::timeout(EVERY, daemon.changed.notified()).await;
        let found = look(&daemon.executable).await.unwrap_or_else(|fault| {
            (daemon.log)("probe_failed", &[("error", &fault)]);
            Vec::new()
        });
        known.send_if_modified(|known| {
            let is_other = *known != found;
            *known = found;
            is_other
        });
        if waited.is_ok() {
            // A host that fails every job is not also probed all the time.
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    }
}
