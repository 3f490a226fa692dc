//! What the host and a job's gateway say to each other once the order is given: the host one JSON object per packet, the
//! gateway one or more, each on a line of its own.
//!
//! Zone: between two of pond's own processes; the texts inside come from the job and arrive escaped. Invariant: an event
//! names a host, a port, an address, a verdict and amounts, and never a path, a header or a body.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Reach;

/// The second packet of the host: which door each descriptor beside it is, in the descriptors' order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Doors {
    pub doors: Vec<Door>,
}

/// One way into the gateway. `Tls` may be given several times, once per port; every other door once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Door {
    Proxy,
    DnsUdp,
    DnsTcp,
    Tls,
    /// Every port of every address that is not the job's own; the internet posture has it.
    Any,
    Broker,
    /// For git, with a credential that the job does not have.
    Git,
}

/// What the host may say after the doors are open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Command {
    /// New rules in place of all earlier ones; tunnels they do not cover are closed.
    Rules(Reach),
    /// What the job may spend in all from now on; never less than before.
    Ceiling { microcents: u64 },
    /// What all tunnels may move together from now on; never less than before. One that is no more than before says no.
    Bytes { total: u64 },
    /// Close the doors and say what happened: one `host` event per host, then `summary`, then the end of the process.
    Finish,
}

/// What the gateway says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Event {
    /// Every door is being served: the job may start.
    Serving,
    /// The gateway cannot serve; it ends after this.
    Failed {
        reason: String,
    },
    /// A request was refused.
    Refused(Refused),
    /// Refusals that were counted, not told one by one.
    Flood {
        refusals: u64,
    },
    /// A name of the job's choosing is about to leave as a query, for the first time.
    Looked(Lookup),
    /// A tunnel is about to carry its first byte.
    Opened(Approval),
    /// A tunnel ended.
    Closed(Tunnel),
    /// A request to a model ended.
    Model(ModelCall),
    /// A call waits for a higher ceiling: at least and at most this.
    Short {
        least_microcents: u64,
        most_microcents: u64,
    },
    /// Tunnels wait for more bytes than the job was lent; so many have been moved.
    ShortBytes {
        moved: u64,
    },
    /// New rules hold.
    RulesReplaced,
    /// New rules were refused; the earlier ones hold.
    RulesRefused {
        reason: String,
    },
    Host(HostTotals),
    ModelTotals(ModelTotals),
    Summary(Totals),
}

/// A refused request: what was asked for, at which door, and why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    pub job: String,
    pub door: Door,
    /// `host:port`, a host whose port is not known yet, or a quotation of something that is neither.
    pub target: String,
    /// The stable code of pond-policy's `DenialCode`.
    pub code: String,
    /// The rule that refused, or that had let the host through before something else about it was refused.
    pub rule: Option<String>,
    /// The address the host led to, where that is what was refused.
    pub address: Option<IpAddr>,
    pub hint: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lookup {
    pub job: String,
    pub host: String,
}

/// An allowed destination and what the permission rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    pub job: String,
    pub door: Door,
    /// Counts the job's tunnels, so that the end of one can be told from another's.
    pub tunnel: u64,
    pub host: String,
    pub port: u16,
    /// The rule that allowed it; none in the internet posture.
    pub rule: Option<String>,
    pub address: IpAddr,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tunnel {
    pub approval: Approval,
    pub bytes_up: u64,
    pub bytes_down: u64,
    pub duration_ms: u64,
    pub close: Close,
}

/// Why a tunnel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Close {
    /// Both sides said all they had to say.
    Finished,
    ClientReset,
    UpstreamReset,
    /// The client's first bytes were refused; a `refused` event says why.
    Refused,
    Idle,
    Lifetime,
    TunnelBytes,
    TotalBytes,
    RuleRemoved,
    JobEnded,
}

/// One request to a model: what was asked for by kind, how it ended and what it cost; never a path, a header or a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelCall {
    pub job: String,
    /// The operator's name of the model, where the request got that far.
    pub model: Option<String>,
    pub call: Option<String>,
    pub status: u16,
    pub outcome: ModelOutcome,
    /// Why it was refused, failed or was cut, in words of the broker's own.
    pub reason: Option<String>,
    pub input_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    pub cost_microcents: u64,
    /// The provider's counts were missing or odd, and the cost is the broker's bound.
    pub estimated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelOutcome {
    /// Refused by the broker, with this code; nothing was sent.
    Refused(String),
    Served,
    /// The upstream failed, with this code.
    Failed(String),
    /// Cut at the ceiling.
    Cut,
    ClientLeft,
}

impl ModelOutcome {
    /// Why it is not what was asked for.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(code) | Self::Failed(code) => Some(code),
            Self::Cut => Some("budget_cut"),
            Self::Served | Self::ClientLeft => None,
        }
    }
}

/// One host's part in the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostTotals {
    /// `host:port`, a host whose port was never known, or a quotation of something that is neither.
    pub target: String,
    pub allowed: u64,
    pub bytes_up: u64,
    pub bytes_down: u64,
    /// One entry per code and hint, as far as there is room; empty for a host that was never refused.
    pub refusals: Vec<Refusal>,
}

/// One model's part in the job, calls that were not told one by one included.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelTotals {
    /// The operator's name of the model; none for requests that did not get that far.
    pub model: Option<String>,
    pub calls: u64,
    pub input_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    pub cost_microcents: u64,
    /// What was refused, failed or was cut: one entry per code, with the newest reason.
    pub refusals: Vec<Refusal>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    pub code: String,
    pub count: u64,
    /// The rule it comes from, where that is one of the run's.
    pub rule: Option<String>,
    pub hint: String,
}

/// The whole job, hosts beyond the bound of the table included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    /// Names that left as a query because the job asked for them; only the internet posture has such.
    pub lookups: u64,
    pub allowed: u64,
    pub refused: u64,
    pub bytes_up: u64,
    pub bytes_down: u64,
    /// Verdicts about hosts that found no place in the table.
    pub untold: u64,
    pub model_calls: u64,
    pub model_refusals: u64,
    /// Calls that were sent and found no place to be told one by one; their cost is in the sum.
    pub model_untold: u64,
    /// What the models cost, in millionths of a cent.
    pub spent_microcents: u64,
}
