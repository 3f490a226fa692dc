//! What a run wanted and did not get: which rule said no, and the smallest change that would say yes. Made once, when the
//! run ends, from the words of pond's own processes and the kernel's counters; the summary and `pond explain` print it.

use pond_policy::limits::Limits;
use pond_policy::sandbox::SandboxPolicy;
use pond_sandbox::native::Room;
use pond_worker::supervise::Ended;
use serde::{Deserialize, Serialize};

use super::summary::size;
use super::traffic::NetworkSummary;
use super::verdict::{Limit, Verdict};

const SIGSYS: u8 = 31;
const SIGXFSZ: u8 = 25;
/// A disk with less room than this has refused somebody: nothing of use fits.
const FULL_BYTES: u64 = 4 << 20;
/// A `/tmp` may be small: in this much of it the last piece of nothing fits.
const FULL_TMP_BYTES: u64 = 16 << 10;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Finding {
    pub(crate) kind: Kind,
    /// Stable; the documents list it.
    pub(crate) code: String,
    pub(crate) what: String,
    pub(crate) count: u64,
    pub(crate) rule: String,
    /// The smallest change that would help, or why none would.
    pub(crate) advice: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Network,
    Model,
    Command,
    Disk,
    Filter,
    Memory,
    Processes,
    Time,
    Output,
    Engine,
}

impl Finding {
    /// One line: what, how often, and what would help.
    pub(crate) fn line(&self) -> String {
        let times = if self.count == 1 { String::new() } else { format!(" ({} times)", self.count) };
        format!("{}{times} [{}]: {}", self.what, self.code, self.advice)
    }
}

/// Of the job's disk at its end, before anything else touches it. Nothing for a job that had no disk, or whose disk does not say.
pub(super) fn disk_room(ended: &Ended) -> Option<Room> {
    Room::of(ended.over.upper.as_ref()?)
}

pub(super) fn findings(
    policy: &SandboxPolicy,
    ended: &Ended,
    verdict: &Verdict,
    room: Option<Room>,
    network: &NetworkSummary,
) -> Vec<Finding> {
    let mut found: Vec<Finding> = network.findings();
    if let Some(limits) = policy.limits() {
        found.extend(memory(limits, ended, verdict));
        found.extend(processes(limits, ended));
        found.extend(room.and_then(|room| disk(limits, room)));
        found.extend(ended.over.tmp.and_then(|room| tmp(limits, room)));
    }
    found.extend(ending(policy, verdict));
    found.extend(ended.over.is_cut_off.then(engine_gone));
    found
}

/// The job did nothing to deserve it.
fn engine_gone() -> Finding {
    Finding {
        kind: Kind::Engine,
        code: "engine_gone".to_owned(),
        what: "the container engine ended while the job ran, and the job with it".to_owned(),
        count: 1,
        rule: "the container engine".to_owned(),
        advice: "start the engine and run the job again".to_owned(),
    }
}

fn memory(limits: Limits, ended: &Ended, verdict: &Verdict) -> Option<Finding> {
    let count = ended.over.usage.oom_kills.filter(|kills| *kills > 0)?;
    let limit = limits.memory.bytes();
    let what = match verdict {
        Verdict::Killed { limit: Limit::Memory } => "the job was killed for memory",
        Verdict::Exited { .. }
        | Verdict::Signaled { .. }
        | Verdict::TimedOut
        | Verdict::Killed { limit: Limit::Output }
        | Verdict::Interrupted
        | Verdict::Unread
        | Verdict::NotLaunched { .. } => "a process of the job was killed for memory",
    };
    Some(Finding {
        kind: Kind::Memory,
        code: "memory_limit".to_owned(),
        what: what.to_owned(),
        count,
        rule: format!("memory: {}", size(limit)),
        advice: format!("allow it more with --memory {}m", (limit >> 20).saturating_mul(2)),
    })
}

fn processes(limits: Limits, ended: &Ended) -> Option<Finding> {
    let count = ended.over.usage.pids_denied.filter(|refused| *refused > 0)?;
    let limit = limits.pids.get();
    Some(Finding {
        kind: Kind::Processes,
        code: "pids_limit".to_owned(),
        what: "a new process or thread was refused".to_owned(),
        count,
        rule: format!("pids_limit: {limit}"),
        advice: format!("allow it more with --pids {}", limit.saturating_mul(2)),
    })
}

fn disk(limits: Limits, room: Room) -> Option<Finding> {
    let (code, what, rule) = if room.bytes < FULL_BYTES {
        ("disk_full", "the job's disk was full", format!("disk: {}", size(limits.disk.bytes)))
    } else if room.inodes == 0 {
        (
            "disk_files",
            "the job's disk had no room for another file",
            format!("files: {}", limits.disk.inodes),
        )
    } else {
        return None;
    };
    Some(Finding {
        kind: Kind::Disk,
        code: code.to_owned(),
        what: what.to_owned(),
        count: 1,
        rule,
        advice: "keep less there: the quota is the profile's; --tmp makes /tmp larger".to_owned(),
    })
}

fn tmp(limits: Limits, room: Room) -> Option<Finding> {
    let limit = limits.tmpfs.bytes();
    let (code, what, advice) = if room.bytes < FULL_TMP_BYTES {
        let more = (limit >> 20).saturating_mul(2);
        ("tmp_full", "the job's /tmp was full", format!("allow it more with --tmp {more}m"))
    } else if room.inodes == 0 {
        let fewer = "keep fewer files there: how many it takes is fixed".to_owned();
        ("tmp_files", "the job's /tmp had no room for another file", fewer)
    } else {
        return None;
    };
    Some(Finding {
        kind: Kind::Disk,
        code: code.to_owned(),
        what: what.to_owned(),
        count: 1,
        rule: format!("tmpfs_size: {}", size(limit)),
        advice,
    })
}

fn ending(policy: &SandboxPolicy, verdict: &Verdict) -> Option<Finding> {
    let one = |kind, code: &str, what: &str, rule: String, advice: &str| {
        let (code, what, advice) = (code.to_owned(), what.to_owned(), advice.to_owned());
        Some(Finding { kind, code, what, count: 1, rule, advice })
    };
    match verdict {
        Verdict::TimedOut => {
            let limit = policy.timeout().duration().as_secs();
            let longer = format!(
                "allow it more with --timeout {}s, where the profile lets it",
                limit.saturating_mul(2)
            );
            one(Kind::Time, "time_limit", "the job ran out of time", format!("timeout: {limit}s"), &longer)
        }
        Verdict::Killed { limit: Limit::Output } => one(
            Kind::Output,
            "output_limit",
            "the job printed more than a run may",
            "output".to_owned(),
            "let it print to a file and name that with --artifact",
        ),
        Verdict::Signaled { signal: SIGSYS } => one(
            Kind::Filter,
            "system_call",
            "the job made a system call of another architecture or one that no sandbox has",
            "the system call filter".to_owned(),
            "nothing would allow it: run the job in a virtual machine",
        ),
        Verdict::Signaled { signal: SIGXFSZ } => one(
            Kind::Disk,
            "file_size",
            "the job made a file larger than its disk",
            "disk: the quota of the profile".to_owned(),
            "write smaller files: one can be as large as that and no larger",
        ),
        Verdict::Exited { .. }
        | Verdict::Signaled { .. }
        | Verdict::Killed { limit: Limit::Memory }
        | Verdict::Interrupted
        | Verdict::Unread
        | Verdict::NotLaunched { .. } => None,
    }
}
