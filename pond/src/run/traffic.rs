//! What a run's gateway said of its traffic, in the few words a summary has room for.

use std::collections::BTreeMap;

use pond_wire::change::Change;
use pond_wire::gateway::{self as wire, Event, HostTotals, ModelCall, Refusal, Totals};
use pond_worker::order::JobAnswer;
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
    /// What each model was asked and what it cost, by the operator's name for it.
    pub(super) models: BTreeMap<String, ModelTotals>,
    /// What people changed of the rules while the job ran.
    pub(super) changes: Vec<Change>,
    /// The gateway was gone before the job was: from then on nothing got out.
    pub(super) ended_early: bool,
    /// Events that found no room in the record.
    pub(super) unwritten: u64,
    /// What the models may cost in all.
    #[serde(skip)]
    pub(super) ceiling_microcents: u64,
}

/// Requests that did not get as far as a model.
const NO_MODEL: &str = "the broker";

#[derive(Debug, Default, Serialize)]
pub(crate) struct ModelTotals {
    calls: u64,
    input_tokens: u64,
    cached_tokens: u64,
    output_tokens: u64,
    cost_microcents: u64,
    /// How often each code refused or ended a request.
    refusals: BTreeMap<String, u64>,
    /// The newest reason of each, in the broker's words.
    #[serde(skip)]
    reasons: BTreeMap<String, String>,
}

impl ModelTotals {
    fn take(&mut self, call: ModelCall) {
        self.calls += 1;
        self.input_tokens = self.input_tokens.saturating_add(call.input_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(call.cached_tokens);
        self.output_tokens = self.output_tokens.saturating_add(call.output_tokens);
        self.cost_microcents = self.cost_microcents.saturating_add(call.cost_microcents);
        let Some(code) = call.outcome.code().map(str::to_owned) else { return };
        *self.refusals.entry(code.clone()).or_default() += 1;
        self.reasons.extend(call.reason.map(|reason| (code, reason)));
    }

    /// The gateway's own sums, which also hold what it did not tell one by one.
    fn of(sums: wire::ModelTotals) -> Self {
        let counts = sums.refusals.iter().map(|refusal| (refusal.code.clone(), refusal.count)).collect();
        let reasons = sums.refusals.into_iter().map(|refusal| (refusal.code, refusal.hint)).collect();
        Self {
            calls: sums.calls,
            input_tokens: sums.input_tokens,
            cached_tokens: sums.cached_tokens,
            output_tokens: sums.output_tokens,
            cost_microcents: sums.cost_microcents,
            refusals: counts,
            reasons,
        }
    }

    fn findings(&self, name: &str, traffic: &Traffic) -> Vec<Finding> {
        let found = |(code, count): (&String, &u64)| {
            let happened = if is_upstreams(code) { "failed a request" } else { "refused a request" };
            Finding {
                kind: Kind::Model,
                what: format!("{name} {happened}"),
                count: *count,
                rule: model_rule(code, self, traffic),
                advice: model_advice(code, traffic.ceiling_microcents),
                code: code.clone(),
            }
        };
        self.refusals.iter().map(found).collect()
    }

    fn line(&self, name: &str) -> String {
        let calls = counted(usize::try_from(self.calls).unwrap_or(usize::MAX), "request");
        let tokens = self.input_tokens.saturating_add(self.cached_tokens);
        let (output, cost) = (self.output_tokens, cents(self.cost_microcents));
        format!("model {name}: {calls}, {tokens} tokens in, {output} out, {cost}")
    }
}

const MICROCENTS: u64 = 1_000_000;

fn cents(microcents: u64) -> String {
    format!("{}.{:02} cents", microcents / MICROCENTS, microcents % MICROCENTS / 10_000)
}

impl Traffic {
    /// What the gateway counted without telling it one by one, which no other line has.
    fn totals_only(&self) -> Vec<String> {
        let Totals { untold, spent_microcents, .. } = self.totals;
        let hosts = (untold > 0).then(|| format!("{untold} verdicts about further hosts are only counted"));
        let models = (spent_microcents > self.in_lines()).then(|| {
            let all = cents(spent_microcents);
            format!("model requests that nobody ended are in no line above; with them all models cost {all}")
        });
        hosts.into_iter().chain(models).collect()
    }

    /// What the models cost, as far as each has a line.
    fn in_lines(&self) -> u64 {
        self.models.values().map(|model| model.cost_microcents).fold(0, u64::saturating_add)
    }

    /// What it has cost until now.
    pub(super) fn spent(&self) -> JobAnswer {
        JobAnswer::Spent {
            cost_microcents: self.in_lines(),
            egress_bytes: self.totals.bytes_up.saturating_add(self.totals.bytes_down),
        }
    }

    pub(super) fn take(&mut self, event: Event) {
        match event {
            Event::Host(host) => self.hosts.push(host),
            Event::Summary(totals) => self.totals = totals,
            Event::Model(call) => {
                let name = call.model.clone().unwrap_or_else(|| NO_MODEL.to_owned());
                self.models.entry(name).or_default().take(call);
            }
            Event::ModelTotals(mut sums) => {
                let name = sums.model.take().unwrap_or_else(|| NO_MODEL.to_owned());
                self.models.insert(name, ModelTotals::of(sums));
            }
            // Sums of our own, until the gateway's: it may not live to send them.
            Event::Looked(_) => self.totals.lookups += 1,
            Event::Opened(_) => self.totals.allowed += 1,
            Event::Refused(_) => self.totals.refused += 1,
            Event::Flood { refusals } => self.totals.refused = self.totals.refused.saturating_add(refusals),
            Event::Closed(tunnel) => {
                self.totals.bytes_up = self.totals.bytes_up.saturating_add(tunnel.bytes_up);
                self.totals.bytes_down = self.totals.bytes_down.saturating_add(tunnel.bytes_down);
            }
            Event::Serving
            | Event::Failed { .. }
            | Event::Short { .. }
            | Event::ShortBytes { .. }
            | Event::RulesReplaced
            | Event::RulesRefused { .. } => {}
        }
    }
}

impl NetworkSummary {
    /// For the first line.
    pub(super) fn phrase(&self) -> String {
        match self {
            Self::Closed => "network closed".to_owned(),
            Self::Gateway(Traffic {
                totals: Totals { lookups: 0, allowed: 0, refused: 0, .. },
                models,
                ..
            }) => if models.is_empty() { "network unused" } else { "network for the model only" }.to_owned(),
            Self::Gateway(traffic) => {
                let Totals { lookups, allowed, refused, bytes_up, bytes_down, .. } = traffic.totals;
                let bytes = size(bytes_up.saturating_add(bytes_down));
                let names = if lookups > 0 { format!(", {lookups} names looked up") } else { String::new() };
                format!("network {allowed} allowed, {refused} refused, {bytes}{names}")
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
        let models = traffic.models.iter().filter(|(name, _)| name.as_str() != NO_MODEL);
        let models = models.map(|(name, totals)| totals.line(name));
        let unwritten = (traffic.unwritten > 0)
            .then(|| format!("{} events of the gateway are not in egress.jsonl", traffic.unwritten));
        let only_sums = traffic.totals_only();
        let changes = traffic.changes.iter().map(changed);
        reached
            .into_iter()
            .chain(changes)
            .chain(models)
            .chain(only_sums)
            .chain(gone)
            .chain(unwritten)
            .collect()
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let Self::Gateway(traffic) = self else { return Vec::new() };
        let of_host = |host: &HostTotals| {
            let name = host.target.clone();
            host.refusals.clone().into_iter().map(move |refusal| Finding {
                kind: Kind::Network,
                rule: network_rule(&refusal),
                what: what(&refusal.code, &name),
                code: refusal.code,
                count: refusal.count,
                advice: advice(refusal.hint),
            })
        };
        let hosts = traffic.hosts.iter().flat_map(of_host);
        let models = traffic.models.iter();
        hosts.chain(models.flat_map(|(name, totals)| totals.findings(name, traffic))).collect()
    }
}

const NO_RULE: &str = "none: it was let through, and failed beyond pond";

/// Which rule a refusal of the gateway's comes from.
fn network_rule(refusal: &Refusal) -> String {
    let kind = rule_kind(&refusal.code);
    match (refusal.code.as_str(), &refusal.rule) {
        ("port_not_allowed", Some(rule)) => format!("egress rules: {rule} names the host, and not this port"),
        ("port_not_allowed", None) => "ports of mail and name servers are closed to every job".to_owned(),
        (_, Some(rule)) => format!("{kind} ({rule})"),
        (_, None) => kind.to_owned(),
    }
}

fn rule_kind(code: &str) -> &'static str {
    match code {
        "private_address" | "self_address" | "mixed_addresses" | "too_many_addresses" => {
            "addresses: whichever rule names a host, all that it leads to must be public and not this machine"
        }
        "dns_failed" | "dial_failed" | "dial_timeout" | "client_left" => NO_RULE,
        "denied_by_rule" => "egress rules: one denies it, and wins over all that allow",
        "too_many_tunnels" | "too_many_names" | "bytes_spent" | "tunnel_bytes" | "tunnel_lifetime" => {
            "caps of a job's connections"
        }
        "special_name" | "host_not_allowed" | "ip_literal" => "egress rules: what no rule names is refused",
        _ => "the gateway carries TLS to a named host, well-formed",
    }
}

/// What went wrong at the model's server, or on the way there.
fn is_upstreams(code: &str) -> bool {
    code.starts_with("upstream_")
}

fn is_budget(code: &str) -> bool {
    matches!(code, "budget_cut" | "budget_exceeded")
}

/// The broker's own words about it, and about money the figures of the whole run.
fn model_rule(code: &str, totals: &ModelTotals, traffic: &Traffic) -> String {
    let reason = totals.reasons.get(code).map(String::as_str).filter(|reason| !reason.is_empty());
    match reason {
        _ if is_budget(code) => {
            let spent = traffic.totals.spent_microcents.max(traffic.in_lines());
            format!("ceiling: {}, of which {} are spent", cents(traffic.ceiling_microcents), cents(spent))
        }
        Some(reason) if is_upstreams(code) => format!("{NO_RULE}: {reason}"),
        None if is_upstreams(code) => NO_RULE.to_owned(),
        Some(reason) => format!("the broker: {reason}"),
        None => "the broker's rules".to_owned(),
    }
}

fn model_advice(code: &str, ceiling_microcents: u64) -> String {
    let text = match code {
        _ if is_upstreams(code) => "try again; if it stays so, look at the model's upstream in pond.toml",
        _ if is_budget(code) => {
            let more = (ceiling_microcents / MICROCENTS).saturating_mul(2).max(1);
            return format!("allow it to cost more with --max-cost-cents {more}");
        }
        "provider_egress" => "set provider_tools = true for the model in pond.toml",
        "provider_storage" => {
            "send what is meant in the request itself; nothing the provider keeps is reached"
        }
        "unpriced_option" => "leave the option out: it costs what no price table of pond's says",
        "model_not_allowed" | "model_unknown" => "list the id, with its price, in pond.toml",
        "unknown_key" => "use the key and the address in the job's environment",
        "path_not_allowed" | "query_not_allowed" | "target_form" | "alt_missing" => {
            "ask for one of the calls that docs/broker.md lists under What passes"
        }
        "upgrade_refused" => "switch WebSockets off in the client; the broker streams over HTTP/1.1",
        "body_too_large" => "send less at once",
        "too_many_connections" | "too_many_free_calls" => "ask less often; it frees itself",
        _ => "let the client write its request as docs/broker.md says under What passes",
    };
    text.to_owned()
}

/// What became of a destination.
fn what(code: &str, name: &str) -> String {
    match code {
        "dns_failed" | "dial_failed" | "dial_timeout" => format!("did not reach {name}"),
        "client_left" => format!("a client left before {name} was reached"),
        "tunnel_bytes" | "tunnel_lifetime" => format!("cut a connection to {name}"),
        _ => format!("refused {name}"),
    }
}

/// A hint is a flag where one would help, and otherwise a reason.
fn advice(hint: String) -> String {
    if hint.starts_with('-') { format!("allow it with {hint}") } else { hint }
}

fn changed(change: &Change) -> String {
    let part = |verb: &str, rules: &[String]| {
        (!rules.is_empty()).then(|| format!("{verb} while it ran: {}", rules.join(", ")))
    };
    let parts = [part("allowed", &change.allow), part("denied", &change.deny)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn reached(host: &HostTotals) -> String {
    let connections = counted(usize::try_from(host.allowed).unwrap_or(usize::MAX), "connection");
    format!("{} ({connections}, {})", host.target, size(host.bytes_up.saturating_add(host.bytes_down)))
}

#[cfg(test)]
mod tests {
    //! What is only counted is still said.
    use super::*;

    #[test]
    fn a_finding_names_the_rule_it_comes_from_or_none() {
        use pond_policy::egress::DenialCode;
        let refusal = |code: DenialCode, rule: Option<&str>| Refusal {
            code: code.name().to_owned(),
            count: 1,
            rule: rule.map(str::to_owned),
            hint: String::new(),
        };
        let rule = |code: DenialCode| network_rule(&refusal(code, None));
        let port = network_rule(&refusal(DenialCode::PortNotAllowed, Some("a.com")));
        assert_eq!(port, "egress rules: a.com names the host, and not this port");
        assert!(!rule(DenialCode::PortNotAllowed).contains("no rule names"));
        let private = network_rule(&refusal(DenialCode::PrivateAddress, Some("*.a.com")));
        assert!(private.ends_with(" (*.a.com)"), "{private}");
        assert_eq!(what("client_left", "a.com:443"), "a client left before a.com:443 was reached");
        assert!(rule(DenialCode::PrivateAddress).starts_with("addresses: "));
        assert!(rule(DenialCode::HostNotAllowed).ends_with("what no rule names is refused"));
        assert!(rule(DenialCode::DeniedByRule).contains("denies it"));
        assert_eq!([rule(DenialCode::DnsFailed), rule(DenialCode::DialTimeout)], [NO_RULE; 2]);
        let mut traffic = Traffic::default();
        let mut totals = ModelTotals::default();
        totals.refusals.insert("upstream_broken".to_owned(), 1);
        traffic.models.insert("main".to_owned(), totals);
        let found = NetworkSummary::Gateway(traffic).findings().remove(0);
        assert_eq!((found.what.as_str(), found.rule.as_str()), ("main failed a request", NO_RULE));
    }

    fn call(outcome: wire::ModelOutcome, reason: Option<&str>) -> Event {
        Event::Model(ModelCall {
            job: "j".to_owned(),
            model: Some("main".to_owned()),
            call: None,
            status: 403,
            outcome,
            reason: reason.map(str::to_owned),
            input_tokens: 1,
            cached_tokens: 0,
            output_tokens: 1,
            cost_microcents: 10_000,
            estimated: false,
        })
    }

    #[test]
    fn the_gateway_s_sums_of_a_model_replace_what_was_told_one_by_one() {
        let mut traffic = Traffic { ceiling_microcents: 3 * MICROCENTS, ..Traffic::default() };
        traffic.take(call(wire::ModelOutcome::Served, None));
        traffic.take(call(wire::ModelOutcome::Refused("budget_exceeded".to_owned()), Some("no")));
        assert_eq!(traffic.models["main"].refusals["budget_exceeded"], 1);
        let refusal = |code: &str, count, hint: &str| Refusal {
            code: code.to_owned(),
            count,
            rule: None,
            hint: hint.to_owned(),
        };
        traffic.take(Event::ModelTotals(wire::ModelTotals {
            model: Some("main".to_owned()),
            calls: 400,
            input_tokens: 400,
            cached_tokens: 0,
            output_tokens: 400,
            cost_microcents: 2_900_000,
            refusals: vec![
                refusal("budget_exceeded", 398, "no"),
                refusal("provider_storage", 1, "`store` is kept by the provider"),
            ],
        }));
        let spent = Totals { spent_microcents: 2_900_000, ..Totals::default() };
        traffic.take(Event::Summary(spent));
        let network = NetworkSummary::Gateway(traffic);
        assert_eq!(network.lines(), ["model main: 400 requests, 400 tokens in, 400 out, 2.90 cents"]);
        let found = network.findings();
        let told: Vec<(u64, &str, &str)> =
            found.iter().map(|found| (found.count, found.rule.as_str(), found.advice.as_str())).collect();
        assert_eq!(
            told,
            [
                (
                    398,
                    "ceiling: 3.00 cents, of which 2.90 cents are spent",
                    "allow it to cost more with --max-cost-cents 6"
                ),
                (
                    1,
                    "the broker: `store` is kept by the provider",
                    "send what is meant in the request itself; nothing the provider keeps is reached"
                ),
            ]
        );
    }

    #[test]
    fn requests_and_hosts_without_a_line_of_their_own_are_in_the_summary() {
        let mut traffic = Traffic::default();
        let totals = Totals { untold: 3, model_untold: 2, spent_microcents: 1_250_000, ..Totals::default() };
        traffic.take(Event::Summary(totals));
        assert_eq!(
            NetworkSummary::Gateway(traffic).lines(),
            [
                "3 verdicts about further hosts are only counted",
                "model requests that nobody ended are in no line above; with them all models cost 1.25 cents",
            ]
        );
    }
}
