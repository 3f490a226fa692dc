//! The signed statement about a run: everything in it is the word of pond's own processes and of the kernel.
//!
//! It is made once the job is dead and its result is stored, over the files as they lie in the run's directory. What cannot be
//! signed is said in the summary, with a code; the run stands, and is never taken for a signed one.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use jiff::Timestamp;
use pond_sandbox::native::cgroup::{Around, Mode};
use pond_sandbox::record::{Live, Made};
use pond_sandbox::state::StateDir;
use pond_seal::Digest;
use pond_seal::key::SigningKey;
use pond_seal::result as said;
use pond_seal::statement::Statement;
use pond_wire::contract;
use pond_wire::gateway::Reach;
use pond_wire::jail::Console;
use pond_worker::collect::{digest_before, empty_manifest};
use pond_worker::supervise::{Ended, Stream};
use serde::Serialize;

use super::Request;
use super::base::BaseSummary;
use super::gather::Gathered;
use super::summary::Allowed;
use super::traffic::NetworkSummary;
use super::verdict::{Limit, Verdict};
use crate::proof::{CHANGES, EGRESS, PATCH, POLICY, STATEMENT, command_digest, digest_of, store};
use crate::runs;

/// What became of the statement.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum StatementSummary {
    Signed { path: PathBuf, key_id: String, subject_sha256: String },
    Unsigned { code: Unsigned, reason: String },
}

/// The step that failed.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unsigned {
    /// There is no usable key.
    SigningKey,
    /// A file of the run could not be read or written.
    StatementFacts,
    StatementWrite,
}

impl Unsigned {
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::SigningKey => "signing_key",
            Self::StatementFacts => "statement_facts",
            Self::StatementWrite => "statement_write",
        }
    }
}

/// Everything that is known about a run when it is over.
pub(super) struct Facts<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) record: &'a Live,
    pub(super) started: Timestamp,
    pub(super) ended: &'a Ended,
    pub(super) verdict: &'a Verdict,
    pub(super) gathered: &'a Gathered,
    pub(super) base: &'a BaseSummary,
    pub(super) head: Option<String>,
    pub(super) network: &'a NetworkSummary,
    pub(super) around: Around,
    pub(super) groups: Option<Mode>,
    pub(super) disk_rate: said::DiskRate,
    pub(super) directory: &'a Path,
}

/// What a job is held to, whole: the sandbox, the hosts it may reach, and the models.
#[derive(Serialize)]
struct HeldTo<'a> {
    sandbox: contract::SandboxPolicy,
    /// As it stood when the job began.
    reach: Option<Reach>,
    models: Vec<&'a str>,
    ceiling_microcents: Option<u64>,
}

/// What can be made ready before the job ends, so that nobody waits for it afterwards.
pub(super) struct Prepared {
    key: SigningKey,
    policy: said::FileDigest,
}

/// A failed step, and why.
pub(super) type Failed = (Unsigned, anyhow::Error);

/// Writes `policy.json`, while the plan of the network is still there, and fetches the key.
pub(super) fn prepare(request: &Request<'_>, run: &Path, state: &StateDir) -> Result<Prepared, Failed> {
    let key = match request.commission() {
        None => store::signing_key(state),
        Some(commission) => store::worker_key(commission.key),
    };
    let key = key.map_err(|fault| (Unsigned::SigningKey, fault))?;
    let written = held_to(request).and_then(|text| {
        write(&run.join(POLICY), &text)?;
        Ok(said::FileDigest { sha256: Digest::of(&text), bytes: u64::try_from(text.len())? })
    });
    Ok(Prepared { key, policy: written.map_err(|fault| (Unsigned::StatementFacts, fault))? })
}

fn held_to(request: &Request<'_>) -> anyhow::Result<Vec<u8>> {
    let way_out = request.way_out.borrow();
    let broker = way_out.as_ref().and_then(|(_, model)| Some(&model.as_ref()?.order));
    let held = HeldTo {
        sandbox: request.policy.into(),
        reach: way_out.as_ref().and_then(|(plan, _)| plan.reach()),
        models: broker.iter().flat_map(|order| &order.models).map(|model| model.name.as_str()).collect(),
        ceiling_microcents: broker.map(|order| order.ceiling_microcents),
    };
    let mut text = serde_json::to_vec_pretty(&held)?;
    text.push(b'\n');
    Ok(text)
}

/// Writes and signs the statement; the summary says what came of it.
pub(super) fn state(facts: &Facts<'_>, prepared: Result<Prepared, Failed>) -> StatementSummary {
    match prepared.and_then(|prepared| sign(facts, &prepared)) {
        Ok(signed) => signed,
        Err((code, fault)) => StatementSummary::Unsigned { code, reason: format!("{fault:#}") },
    }
}

fn sign(facts: &Facts<'_>, Prepared { key, policy }: &Prepared) -> Result<StatementSummary, Failed> {
    let statement = facts.statement(*policy).map_err(|fault| (Unsigned::StatementFacts, fault))?;
    let path = facts.directory.join(STATEMENT);
    let sealed = statement.sign(key).map_err(anyhow::Error::from);
    sealed.and_then(|bytes| write(&path, &bytes)).map_err(|fault| (Unsigned::StatementWrite, fault))?;
    let (key_id, subject_sha256) = (key.public().id().to_string(), statement.subject.to_string());
    Ok(StatementSummary::Signed { path, key_id, subject_sha256 })
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let made = File::options().write(true).create_new(true).mode(0o600).open(path);
    let written = made.and_then(|mut file| file.write_all(bytes));
    written.with_context(|| format!("writing {}", path.display()))
}

impl Facts<'_> {
    fn statement(&self, policy: said::FileDigest) -> anyhow::Result<Statement> {
        let Facts { request, ended, verdict, .. } = self;
        let said::FileDigest { sha256, bytes } = policy;
        let profile = request.policy.profile().name().to_owned();
        let usage = &ended.over.usage;
        let result = said::RunResult {
            job: self.job(),
            command_sha256: command_digest(request.argv)?,
            input: self.input()?,
            output: self.output()?,
            outcome: outcome(verdict)?,
            exit_code: verdict.code(),
            logs: self.logs()?,
            policy: said::Policy {
                profile,
                sha256,
                bytes,
                offered_sha256: request.commission().map(|commission| commission.policy),
            },
            backend: said::Backend {
                name: request.backend.name().to_owned(),
                evidence: self.evidence(),
                runtime: self.runtime(),
            },
            image: self.image()?,
            limits: self.limits()?,
            usage: said::Usage {
                elapsed_ms: u64::try_from(ended.elapsed.as_millis())?,
                memory_peak_bytes: usage.memory_peak_bytes,
                pids_peak: usage.pids_peak,
                cpu_usec: usage.cpu_usec,
            },
            egress: self.egress()?,
            cost_microcents: match self.network {
                NetworkSummary::Closed => 0,
                NetworkSummary::Gateway(traffic) => traffic.totals.spent_microcents,
            },
            started_on: time(self.started)?,
            finished_on: time(runs::now())?,
            residue: self.residue()?,
            pond_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        Ok(Statement { subject: self.subject()?, result })
    }

    fn job(&self) -> said::Job {
        match self.request.commission() {
            None => said::Job { id: self.record.job().as_str().to_owned(), attempt: 1, lease: None },
            Some(commission) => said::Job {
                id: commission.job.clone(),
                attempt: commission.attempt,
                lease: Some(commission.lease.clone()),
            },
        }
    }

    fn file(&self, name: &str) -> anyhow::Result<said::FileDigest> {
        digest_of(&self.directory.join(name)).with_context(|| format!("reading {name}"))
    }

    fn subject(&self) -> anyhow::Result<Digest> {
        match self.gathered.record() {
            Some(record) => Ok(record.manifest_sha256),
            None => Ok(empty_manifest()?),
        }
    }

    fn input(&self) -> anyhow::Result<said::Input> {
        let given = self.request.commission().map(|commission| commission.input);
        let kind = match (self.base, given) {
            (BaseSummary::Live { changed_meanwhile: false }, Some(_)) => said::InputKind::Bundle,
            (BaseSummary::Live { changed_meanwhile: false }, None) => said::InputKind::Checkout,
            (BaseSummary::Live { changed_meanwhile: true }, _) => said::InputKind::CheckoutChangedMeanwhile,
            (BaseSummary::Snapshot { .. }, _) => said::InputKind::Snapshot,
        };
        let tree_sha256 = match self.base {
            BaseSummary::Snapshot { tree_sha256, .. } => *tree_sha256,
            BaseSummary::Live { .. } => given,
        };
        let before = self.gathered.record().map(|record| digest_before(&record.changes)).transpose()?;
        Ok(said::Input { kind, tree_sha256, changed_paths_sha256: before, head_commit: self.head.clone() })
    }

    fn output(&self) -> anyhow::Result<said::Output> {
        Ok(match (self.gathered, self.gathered.record()) {
            (_, Some(record)) => said::Output::Collected {
                changed: u64::try_from(record.changes.len())?,
                rejected: u64::try_from(record.rejected.len())?,
                changes: self.file(CHANGES)?,
                patch: self.file(PATCH)?,
            },
            (Gathered::Nothing, None) => said::Output::Nothing {},
            (
                Gathered::Collected(_) | Gathered::Failed(..) | Gathered::Lost(_) | Gathered::Spoiled(..),
                None,
            ) => said::Output::NotCollected {},
        })
    }

    fn logs(&self) -> anyhow::Result<Vec<said::Log>> {
        let streams = match self.request.console {
            Console::Pipes => vec![Stream::Stdout, Stream::Stderr],
            Console::Terminal { .. } => vec![Stream::Terminal],
        };
        let log = |stream: Stream| {
            let name = match stream {
                Stream::Stdout => said::Stream::Stdout,
                Stream::Stderr => said::Stream::Stderr,
                Stream::Terminal => said::Stream::Terminal,
            };
            let said::FileDigest { sha256, bytes } = self.file(name.file())?;
            // A terminal's log is bounded where it is written, a pipe's where it is read.
            let truncated = match stream {
                Stream::Terminal => self.ended.output_bytes > bytes,
                Stream::Stdout | Stream::Stderr => self.ended.cut.contains(&stream),
            };
            Ok(said::Log { stream: name, sha256, bytes, truncated })
        };
        let result = self.request.commission().map(|_| {
            let said::FileDigest { sha256, bytes } = self.file(said::Stream::Result.file())?;
            Ok(said::Log { stream: said::Stream::Result, sha256, bytes, truncated: false })
        });
        streams.into_iter().map(log).chain(result).collect()
    }

    fn evidence(&self) -> said::Evidence {
        let host = rustix::system::uname();
        said::Evidence {
            kernel_release: host.release().to_string_lossy().into_owned(),
            machine: host.machine().to_string_lossy().into_owned(),
            identity: match rustix::process::geteuid().is_root() {
                true => said::Identity::OwnRange,
                false => said::Identity::SingleUser,
            },
            control_groups: match self.groups {
                Some(Mode::V1) => said::ControlGroups::V1,
                Some(Mode::V2) => said::ControlGroups::V2,
                Some(Mode::Hybrid) => said::ControlGroups::Hybrid,
                None => said::ControlGroups::Engine,
            },
            // A job for which one of them worked would not have begun.
            forbidden_acts: said::ForbiddenActs::AllRefused,
        }
    }

    fn runtime(&self) -> Option<said::Runtime> {
        let seen = self.ended.over.isolation.as_ref()?;
        Some(said::Runtime {
            name: seen.runtime.clone(),
            kernel_version: seen.inside.version.clone(),
            boot_id: seen.inside.boot_id.clone(),
        })
    }

    fn image(&self) -> anyhow::Result<Option<Digest>> {
        let Some(seen) = &self.ended.over.isolation else { return Ok(None) };
        let hex = seen.image.strip_prefix("sha256:").context("the image's id is no digest")?;
        Ok(Some(Digest::try_from(hex.to_owned()).map_err(anyhow::Error::msg)?))
    }

    fn limits(&self) -> anyhow::Result<said::Limits> {
        let limits = self.request.policy.limits().context("the policy has no limits")?;
        let (memory, pids) = (limits.memory.bytes(), limits.pids.get());
        Ok(said::Limits {
            memory_bytes: Allowed::new(memory, self.around.memory_bytes).effective,
            cpus: limits.cpus.to_string(),
            pids: Allowed::new(pids, self.around.pids).effective,
            tmpfs_bytes: limits.tmpfs.bytes(),
            disk_bytes: limits.disk.bytes,
            disk_inodes: limits.disk.inodes,
            timeout_seconds: self.request.policy.timeout().duration().as_secs(),
            disk_rate: Some(self.disk_rate),
        })
    }

    fn egress(&self) -> anyhow::Result<said::Egress> {
        let NetworkSummary::Gateway(traffic) = self.network else { return Ok(said::Egress::Closed {}) };
        let totals = &traffic.totals;
        Ok(said::Egress::Gateway {
            record: self.file(EGRESS)?,
            unwritten: traffic.unwritten,
            ended_early: traffic.ended_early,
            allowed: totals.allowed,
            refused: totals.refused,
            bytes_up: totals.bytes_up,
            bytes_down: totals.bytes_down,
            model_calls: totals.model_calls,
            model_refusals: totals.model_refusals,
        })
    }

    fn residue(&self) -> anyhow::Result<said::Residue> {
        // What an engine made is the engine's to remove, and gone before the record is.
        let cgroups = match self.record.made() {
            Made::Native { cgroups } => cgroups.as_slice(),
            Made::Container { .. } | Made::Remainder { .. } => &[],
        };
        let left = cgroups.iter().filter(|group| group.exists()).count();
        Ok(said::Residue {
            control_groups_checked: u64::try_from(cgroups.len())?,
            control_groups_left: u64::try_from(left)?,
        })
    }
}

fn outcome(verdict: &Verdict) -> anyhow::Result<said::Outcome> {
    Ok(match verdict {
        Verdict::Exited { code } => said::Outcome::Exited { code: *code },
        Verdict::Signaled { signal } => said::Outcome::Signaled { signal: *signal },
        Verdict::TimedOut => said::Outcome::TimedOut {},
        Verdict::Killed { limit: Limit::Memory } => said::Outcome::Killed { limit: said::Limit::Memory },
        Verdict::Killed { limit: Limit::Output } => said::Outcome::Killed { limit: said::Limit::Output },
        Verdict::Interrupted | Verdict::Unread => said::Outcome::Interrupted {},
        Verdict::NotLaunched { .. } => bail!("the job did not run"),
    })
}

fn time(moment: Timestamp) -> anyhow::Result<said::UtcTime> {
    Ok(said::UtcTime::try_from(moment.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())?)
}
