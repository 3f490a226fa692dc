//! Runs probes: confined through the real backend, and unconfined as their control.
//!
//! Zone: host. What a probe prints is only believed as far as it goes: a breach is believed, a refusal is compared with the
//! control, and everything else comes from the backend's own reports and counters.

use std::io::{BufRead, BufReader, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;
use pond_policy::backend::Backend;
use pond_policy::node::Node;
use pond_policy::sandbox::SandboxPolicy;
use pond_policy::settings::Settings;
use pond_sandbox::checkout::Checkout;
use pond_sandbox::native::{Exhibit, Job, Remains, Upper, abandon};
use pond_sandbox::provider::Provider;
use pond_sandbox::record::JobName;
use pond_wire::jail::{Console, Duty};
use pond_worker::collect::{Caps, Collected, Ignored, OverlayXattrs, PATIENT, Sources, Wanted, collect};
use pond_worker::supervise::{Bounds, Ended, Stream, Wiring, supervise};

use rustix::fs::MemfdFlags;

use super::canary::{self, Disk};
use super::case::{Evidence, Stage};
use super::probe::{Line, NAME};
use super::props::{PROBE, Props, random_word};

/// A backend, set up to be attacked from inside.
pub(crate) struct Range<'a> {
    pub(crate) backend: Backend,
    pub(crate) provider: &'a Provider,
    pub(crate) props: &'a Props,
    pub(crate) executable: &'a Path,
    pub(crate) profile: &'a str,
    pub(crate) settings: &'a Settings,
}

/// What one confined run showed.
pub(crate) struct Seen {
    pub(crate) lines: Vec<Line>,
    /// Standard output, whole.
    pub(crate) output: Vec<u8>,
    pub(crate) ended: Ended,
    pub(crate) collected: Option<Collected>,
    pub(crate) memory_limit: u64,
    pub(crate) residue: Vec<String>,
}

impl Range<'_> {
    /// The probes of one sandbox.
    pub(crate) fn confined(&self, stage: &Stage, selectors: &[String]) -> anyhow::Result<Seen> {
        let policy = policy(stage.profile.unwrap_or(self.profile), stage.limits, self.settings)?;
        let checkout = Checkout::open(&self.props.checkout())?;
        let name = JobName::try_from(format!("attack-{}", random_word()?)).map_err(anyhow::Error::msg)?;
        let argv = self.argv(stage, selectors)?;
        let source = self.executable.to_str().context("pond's own path is not UTF-8")?.to_owned();
        let exhibits = [Exhibit { source, path: PROBE.to_owned() }];
        // As every `pond run` does, or what is attacked here would not be what a job gets.
        self.provider.stand_by(&policy, &checkout)?;
        let record = self.provider.reserve(name.clone())?;
        let job = Job {
            record: &record,
            policy: &policy,
            checkout: &checkout,
            argv: &argv,
            env: &[],
            exhibits: &exhibits,
            tools: self.props.tools(),
            console: Console::Pipes,
            doors: &[],
            home: &[],
            mounts: &[],
            filesystem: None,
            duty: Duty::Once,
        };
        let running = match self.provider.launch(None, &job) {
            Ok(running) => running,
            Err(fault) => {
                abandon(self.provider.state(), record)?;
                return Err(fault.into());
            }
        };
        let mut output = Vec::new();
        let bounds = Bounds { wall: stage.wall, output_bytes: stage.output_bytes };
        let input = waiting_input(stage.input_bytes)?;
        let wiring =
            Wiring { input: input.as_ref().map(AsFd::as_fd), interrupt: None, terminal: None, rooms: &[] };
        let mut ended = supervise(running, wiring, bounds, |stream, bytes| {
            if stream == Stream::Stdout {
                output.extend_from_slice(bytes);
            }
            Ok(String::new())
        })?;
        ended.over.remains.take().map(Remains::remove).transpose()?;
        let upper = ended.over.upper.take();
        let disk = upper.as_ref().and_then(Disk::of);
        let collected = match (stage.evidence, &upper) {
            (Evidence::Result(_), Some(upper)) => Some(self.collect(upper, &checkout, name.as_str())?),
            _ => None,
        };
        drop(upper);
        record.close()?;
        Ok(Seen {
            lines: lines(&output),
            output,
            collected,
            memory_limit: policy.limits().map_or(u64::MAX, |limits| limits.memory.bytes()),
            residue: self.residue(&name, &ended, disk.as_ref())?,
            ended,
        })
    }

    /// What is left of a job that is over, by whatever name its control groups had.
    fn residue(&self, job: &JobName, ended: &Ended, disk: Option<&Disk>) -> anyhow::Result<Vec<String>> {
        let container = ended.over.isolation.as_ref().map(|isolation| isolation.container.as_str());
        let mut left = canary::residue(container.unwrap_or(job.as_str()), disk);
        left.extend(self.provider.contained(job)?.map(|left| format!("container {} is left", left.id)));
        Ok(left)
    }

    fn argv(&self, stage: &Stage, selectors: &[String]) -> anyhow::Result<Vec<String>> {
        if !stage.command.is_empty() {
            return Ok(stage.command.iter().map(|word| (*word).to_owned()).collect());
        }
        let scene = serde_json::to_string(&self.props.inside())?;
        Ok([PROBE.to_owned(), scene].into_iter().chain(selectors.iter().cloned()).collect())
    }

    fn collect(&self, upper: &Upper, checkout: &Checkout, name: &str) -> anyhow::Result<Collected> {
        let upper = upper.as_fd().try_clone_to_owned()?;
        let run = std::fs::File::open(self.props.result(name)?)?;
        let lower = checkout.as_fd().try_clone_to_owned()?;
        let xattrs = OverlayXattrs::of_own_jobs();
        let wanted = Wanted { ignored: Ignored::Keep, artifacts: &[] };
        let sources = Sources { upper, lower, xattrs, above: None, start: None };
        Ok(collect(&sources, &wanted, &Caps::default(), run.as_fd(), PATIENT)?)
    }
}

/// A file with this many bytes to read.
fn waiting_input(bytes: usize) -> anyhow::Result<Option<std::fs::File>> {
    if bytes == 0 {
        return Ok(None);
    }
    let mut file = std::fs::File::from(rustix::fs::memfd_create("input", MemfdFlags::CLOEXEC)?);
    file.write_all(&vec![b'.'; bytes])?;
    file.rewind()?;
    Ok(Some(file))
}

/// The same probes without a sandbox.
#[expect(clippy::disallowed_methods, reason = "a control is a process without a sandbox")]
pub(crate) fn unconfined(
    executable: &Path,
    props: &Props,
    selectors: &[String],
) -> anyhow::Result<Vec<Line>> {
    let scene = serde_json::to_string(&props.outside()?)?;
    let mut child = Command::new(executable)
        .arg0(NAME)
        .arg(scene)
        .args(selectors)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting the unconfined probe")?;
    let stdout = child.stdout.take().context("the unconfined probe has no output")?;
    let mut found = Vec::new();
    for line in BufReader::new(stdout).split(b'\n') {
        found.extend(lines(&line?));
    }
    child.wait()?;
    Ok(found)
}

/// The lines of an output that are a probe's; a probe also prints to fill a limit.
fn lines(output: &[u8]) -> Vec<Line> {
    output.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// The policy a stage would get for the same profile and overrides: attacks go through the one parser too.
pub(crate) fn policy(
    profile: &str,
    limits: &[(&str, &str)],
    settings: &Settings,
) -> anyhow::Result<SandboxPolicy> {
    let overrides: Vec<(String, Node)> =
        limits.iter().map(|(name, value)| ((*name).to_owned(), Node::text(*value))).collect();
    let mut fields = vec![("profile".to_owned(), Node::text(profile))];
    if !overrides.is_empty() {
        fields.push(("overrides".to_owned(), Node::Map(overrides)));
    }
    let resolved = pond_policy::sandbox::resolve(Some(&Node::Map(fields)), settings);
    resolved.map_err(|refusals| {
        let messages: Vec<String> = refusals.into_list().into_iter().map(|refusal| refusal.message).collect();
        anyhow::anyhow!("{}", messages.join("; "))
    })
}
