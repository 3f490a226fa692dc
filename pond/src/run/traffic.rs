//! What a run's gateway said of its traffic, in the few words a summary has room for.

use pond_wire::gateway::{Event, HostTotals, Totals};
use serde::Serialize;

use super::finding::{Finding, Kind};
use super::summary::{counted, size};

/// So many hosts are named in a line; the record has them all.
const NAMED: usize = 8;

/// The network of a run.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum NetworkSummary {
    /// There was no way out.
    Closed,
    Gateway(Traffic),
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Traffic {
    pub(super) hosts: Vec<HostTotals>,
    pub(super) totals: Totals,
    /// The gateway was gone before the job was: from then on nothing got out.
    pub(super) ended_early: bool,
    /// Events that found no room in the record.
    pub(super) unwritten: u64,
}

impl Traffic {
    pub(super) fn take(&mut self, event: Event) {
        match event {
            Event::Host(host) => self.hosts.push(host),
            Event::Summary(totals) => self.totals = totals,
            Event::Serving
            | Event::Failed { .. }
            | Event::Refused(_)
            | Event::Flood { .. }
            | Event::Opened(_)
            | Event::Closed(_)
            | Event::Model(_)
            | Event::RulesReplaced { .. }
            | Event::RulesRefused { .. } => {}
        }
    }
}

impl NetworkSummary {
    /// For the first line.
    pub(super) fn phrase(&self) -> String {
        match self {
            Self::Closed => "network closed".to_owned(),
            Self::Gateway(traffic) if traffic.totals == Totals::default() => "network unused".to_owned(),
            Self::Gateway(traffic) => {
                let Totals { allowed, refused, bytes_up, bytes_down, .. } = traffic.totals;
                let bytes = size(bytes_up.saturating_add(bytes_down));
                format!("network {allowed} allowed, {refused} refused, {bytes}")
            }
        }
    }

    /// Hosts that were reached, and what else there is to say of the gateway. Refusals are findings.
    pub(super) fn lines(&self) -> Vec<String> {
        let Self::Gateway(traffic) = self else { return Vec::new() };
        let reached: Vec<String> =
            traffic.hosts.iter().filter(|host| host.allowed > 0).map(reached).take(NAMED).collect();
        let reached = (!reached.is_empty()).then(|| format!("reached {}", reached.join(", ")));
        let gone = traffic
            .ended_early
            .then(|| "the gateway ended before the job; nothing got out after that".to_owned());
        reached.into_iter().chain(gone).collect()
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let Self::Gateway(traffic) = self else { return Vec::new() };
        let of_host = |host: &HostTotals| {
            let name = host.target.clone();
            host.refusals.clone().into_iter().map(move |refusal| Finding {
                kind: Kind::Network,
                code: refusal.code,
                what: format!("refused {name}"),
                count: refusal.count,
                rule: "egress rules: what no rule names is refused".to_owned(),
                advice: advice(refusal.hint),
            })
        };
        traffic.hosts.iter().flat_map(of_host).collect()
    }
}

/// A hint is a flag where one would help, and otherwise a reason.
fn advice(hint: String) -> String {
    if hint.starts_with('-') { format!("allow it with {hint}") } else { hint }
}

fn reached(host: &HostTotals) -> String {
    let connections = counted(usize::try_from(host.allowed).unwrap_or(usize::MAX), "connection");
    format!("{} ({connections}, {})", host.target, size(host.bytes_up.saturating_add(host.bytes_down)))
}
