//! What a statement says about a run: version 1 of the predicate, and the JSON Schema that comes from the same types.
//!
//! Every field is the word of pond's own processes and of the kernel, never of the job. Digests are SHA-256 over whole files
//! as they are stored. Unknown and repeated fields are refused at every level; a change of meaning is a new version.

mod time;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use time::{NotATime, UtcTime};

use crate::Digest;
use crate::statement::PREDICATE_TYPE;

/// One finished run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RunResult {
    pub job: Job,
    /// The command's words, as a JSON list of strings without spaces between them.
    pub command_sha256: Digest,
    pub input: Input,
    pub output: Output,
    pub outcome: Outcome,
    /// What `pond run` exited with.
    pub exit_code: u8,
    pub logs: Vec<Log>,
    pub policy: Policy,
    pub backend: Backend,
    /// The image the job ran on; none when it ran on the host's own toolchain.
    pub image: Option<Digest>,
    pub limits: Limits,
    pub usage: Usage,
    pub egress: Egress,
    /// What models cost, in millionths of a cent.
    pub cost_microcents: u64,
    pub started_on: UtcTime,
    pub finished_on: UtcTime,
    pub residue: Residue,
    pub pond_version: String,
}

/// The manifest of an output that holds nothing: the subject of a run that has no output.
pub const EMPTY_MANIFEST: &[u8] = b"{\"format\":\"pond-manifest-1\",\"entries\":[\n]}\n";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Job {
    /// The name of the run.
    pub id: String,
    pub attempt: u32,
    /// Who was given the job, and for which time; none for a run that nobody gave out.
    pub lease: Option<Lease>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Lease {
    pub worker: String,
    pub epoch: u64,
}

/// What the job worked on. Only a tree that was fetched for the job is hashed as a whole: of a checkout that would cost as much
/// as the tree is large.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Input {
    pub kind: InputKind,
    /// Over the whole tree, as the offer of the job has it; none for a checkout.
    pub tree_sha256: Option<Digest>,
    /// The manifest of what stood at every changed path before; none when there is no result.
    pub changed_paths_sha256: Option<Digest>,
    /// The commit the checkout's HEAD named when the job was over. Files that differ from it are not told apart.
    pub head_commit: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// The live checkout, which was not seen to change meanwhile.
    Checkout,
    /// The live checkout, which changed while the job ran.
    CheckoutChangedMeanwhile,
    /// A copy made before the job began.
    Snapshot,
    /// A tree that came with the job, or the empty one.
    Bundle,
}

/// What became of the job's files. The subject is their manifest; of an output without one, the empty manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case", rename_all_fields = "camelCase", tag = "kind")]
pub enum Output {
    /// The job could write nothing.
    Nothing {},
    /// A result was there and could not be had: over a limit, or unreadable.
    NotCollected {},
    Collected {
        changed: u64,
        /// Entries that no result can hold: devices, sockets, unreadable files.
        rejected: u64,
        /// `changes.json`: every changed path, before and after.
        changes: FileDigest,
        /// `changes.patch`.
        patch: FileDigest,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct FileDigest {
    pub sha256: Digest,
    pub bytes: u64,
}

/// How the job ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case", rename_all_fields = "camelCase", tag = "kind")]
pub enum Outcome {
    Exited { code: u8 },
    Signaled { signal: u8 },
    TimedOut {},
    Killed { limit: Limit },
    Interrupted {},
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    Memory,
    Output,
}

/// One stream of the job's output, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Log {
    pub stream: Stream,
    pub sha256: Digest,
    pub bytes: u64,
    /// The job wrote more than was kept.
    pub truncated: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    Stdout,
    Stderr,
    Terminal,
    /// Not the job's words: the packed tree of what came of it.
    Result,
}

impl Stream {
    pub const ALL: [Self; 4] = [Self::Stdout, Self::Stderr, Self::Terminal, Self::Result];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Terminal => "terminal",
            Self::Result => "result",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stream| stream.name() == name)
    }

    /// The file a stream is stored in.
    #[must_use]
    pub const fn file(self) -> &'static str {
        match self {
            Self::Stdout => "stdout.log",
            Self::Stderr => "stderr.log",
            Self::Terminal => "terminal.log",
            Self::Result => "result.tree",
        }
    }
}

/// What the job was held to: `policy.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Policy {
    pub profile: String,
    pub sha256: Digest,
    pub bytes: u64,
    /// Over the sandbox alone, as the offer of the job has it; none for a run that nobody gave out.
    pub offered_sha256: Option<Digest>,
}

/// What held the job, and what is known of it on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Backend {
    pub name: String,
    pub evidence: Evidence,
    /// What a container's kernel showed before the job began; none when there was no container.
    pub runtime: Option<Runtime>,
}

/// Under which runtime a container ran, and what its first process saw of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Runtime {
    pub name: String,
    pub kernel_version: String,
    pub boot_id: String,
}

/// Facts of the launch. A layer that does not hold ends a launch, so that a job that ran was confirmed to be confined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Evidence {
    pub kernel_release: String,
    pub machine: String,
    pub identity: Identity,
    pub control_groups: ControlGroups,
    pub forbidden_acts: ForbiddenActs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// Started by root: the job had a range of user ids of its own.
    OwnRange,
    /// Started by an ordinary user: the job was that user, in a user namespace.
    SingleUser,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ControlGroups {
    V1,
    V2,
    Hybrid,
    /// A container engine made them.
    Engine,
}

/// What came of trying, just before the command, what no job may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForbiddenActs {
    AllRefused,
}

/// The limits that held, smaller than the policy's where a control group around pond allows less.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Limits {
    pub memory_bytes: u64,
    pub cpus: String,
    pub pids: u64,
    pub tmpfs_bytes: u64,
    pub disk_bytes: u64,
    pub disk_inodes: u64,
    pub timeout_seconds: u64,
    /// Absent in statements of a pond that did not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_rate: Option<DiskRate>,
}

/// How fast the job could write to and read from the disk its copy lay on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case", rename_all_fields = "camelCase", tag = "kind")]
pub enum DiskRate {
    /// Nobody asked for a limit.
    Unlimited {},
    Limited {
        bytes_per_second: u64,
    },
    /// The operator asked for one, and this host could not hold it.
    NotEnforceable {
        bytes_per_second: u64,
    },
}

/// What the job took. A figure this kernel does not keep is absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Usage {
    pub elapsed_ms: u64,
    pub memory_peak_bytes: Option<u64>,
    pub pids_peak: Option<u64>,
    pub cpu_usec: Option<u64>,
}

/// What went out of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case", rename_all_fields = "camelCase", tag = "kind")]
pub enum Egress {
    /// There was no way out.
    Closed {},
    Gateway {
        /// `egress.jsonl`: every verdict.
        record: FileDigest,
        /// Events that are not in the record.
        unwritten: u64,
        /// The gateway was gone before the job; from then on nothing got out.
        ended_early: bool,
        allowed: u64,
        refused: u64,
        bytes_up: u64,
        bytes_down: u64,
        model_calls: u64,
        model_refusals: u64,
    },
}

/// What was looked for on the host once the job was over, and what was still there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Residue {
    /// Control groups that were the job's; one that is gone held no process.
    pub control_groups_checked: u64,
    pub control_groups_left: u64,
}

/// The JSON Schema (2020-12) of the predicate.
#[must_use]
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(RunResult).to_value();
    if let Some(entries) = schema.as_object_mut() {
        entries.insert("$id".to_owned(), PREDICATE_TYPE.into());
    }
    schema
}

#[cfg(test)]
pub(crate) mod tests;
