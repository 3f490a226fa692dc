//! Holding a job: every call names the lease it speaks under, and a lease that is over answers nothing else.

use serde::{Deserialize, Serialize};

use super::value::{Code, Id, Version};

/// Which job, and which time it was given out. A higher epoch ends every lower one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    pub job: Id,
    pub epoch: u64,
}

/// The worker begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acknowledge {
    pub version: Version,
    pub lease: Lease,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcknowledgeReply {
    pub version: Version,
    pub lease_seconds: u32,
}

/// The worker is alive, and this is what the job has cost until now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    pub version: Version,
    pub lease: Lease,
    pub cost_microcents: u64,
    pub egress_bytes: u64,
    pub output_bytes: u64,
    /// The model's door needs more money than the job was lent.
    #[serde(deserialize_with = "Option::deserialize")]
    pub wanted: Option<Wanted>,
    /// Connections wait: the job would have to be lent this many bytes in all, at least.
    #[serde(deserialize_with = "Option::deserialize")]
    pub wanted_egress_bytes: Option<u64>,
}

/// What the job would have to be lent in all: for less than `least` the call that waits is not sent, more than `most` is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    pub least_microcents: u64,
    pub most_microcents: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatReply {
    pub version: Version,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "kind")]
pub enum Verdict {
    /// The lease holds for this long from now, and the job may have cost and carried this much in all.
    Continue { lease_seconds: u32, lent_microcents: u64, lent_egress_bytes: u64 },
    /// Kill the job; its result so far is wanted.
    Cancel { reason: Code },
    /// The job is somebody else's. Kill it; nothing of it is wanted.
    Lost {},
}

/// The worker has the job no longer, and there is no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decline {
    pub version: Version,
    pub lease: Lease,
    pub declined: Declined,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "kind")]
pub enum Declined {
    /// The worker ends; somebody else may have the job.
    GivenBack {},
    /// Whoever worked on it was killed. It counts as if the lease had lapsed, at once.
    Lost {},
    /// Nothing of the job ran, and it will not.
    Refused { reason: Code },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclineReply {
    pub version: Version,
}
