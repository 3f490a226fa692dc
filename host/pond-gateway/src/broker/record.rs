//! What the broker tells about each request: verdict, tokens and money; never a path, a header, a body or a key.

use std::sync::Arc;

use pond_policy::model::{Microcents, Usage};

use super::route::Call;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Refused by the broker; nothing was sent upstream.
    Refused(&'static str),
    /// Answered by the upstream, whatever its status.
    Served,
    /// The upstream failed.
    Failed(&'static str),
    /// Cut by the broker at the ceiling.
    Cut,
    /// The client left before the end.
    ClientLeft,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The operator's name of the model, where the request got that far.
    pub model: Option<String>,
    pub call: Option<Call>,
    pub status: u16,
    pub outcome: Outcome,
    /// Why it is not what was asked for; words of the broker's own, nothing of the request.
    pub reason: Option<String>,
    pub usage: Usage,
    pub cost: Microcents,
    /// The provider's counts were missing or odd, and the cost is the broker's bound.
    pub estimated: bool,
}

/// Called once for each request, a client's or the broker's own, in order of their ends.
pub type Report = Arc<dyn Fn(&Record) + Send + Sync>;

impl Record {
    pub(super) fn refused(
        model: Option<String>,
        call: Option<Call>,
        status: u16,
        (code, reason): (&'static str, &str),
    ) -> Self {
        let (outcome, reason) = (Outcome::Refused(code), Some(reason.to_owned()));
        let (usage, cost) = (Usage::default(), Microcents(0));
        Self { model, call, status, outcome, reason, usage, cost, estimated: false }
    }
}
