//! What one run may reach, and what becomes of that when a person changes it while the job runs. Nothing here acts.
//!
//! Invariants: a rule exists only in the contract's spelling; a model's upstream is never on the list; what the operator's file
//! denies stays denied; a change with one fault changes nothing.

use pond_policy::egress::{HostFault, HostName, HostPattern, HostRule, lint};
use pond_policy::model::UpstreamHost;
use pond_policy::operator::Operator;
use pond_wire::change::Change;
use pond_wire::gateway::Reach;
use pond_wire::gateway::doors::{BROKER, DNS, PROXY};

#[derive(Debug, thiserror::Error)]
pub(super) enum RuleFault {
    #[error("{fault}{}", fault.suggestion().map(|text| format!("; write {text}")).unwrap_or_default())]
    Host { fault: HostFault },
    #[error("{rule} reaches the upstream of model {model}; the broker is its only door")]
    Upstream { rule: String, model: String },
    #[error("port {0} of a rule is the gateway's own inside the sandbox; no rule can name it")]
    OwnPort(u16),
    #[error("{rule} is denied by {deny} in pond.toml, and only that file can allow it")]
    OperatorDenies { rule: String, deny: String },
    #[error("{rule} is still denied by {deny}; allow that first, and it is denied no more")]
    StillDenied { rule: String, deny: String },
    #[error("no host was named")]
    Nothing,
    #[error("the rules of the run would be {0} bytes long; its gateway takes {MOST_BYTES} at once")]
    TooMany(usize),
}

impl RuleFault {
    /// Stable.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Host { fault } => fault.code().name(),
            Self::Upstream { .. } => "host_reserved",
            Self::OwnPort(_) => "port_reserved",
            Self::OperatorDenies { .. } => "denied_by_operator",
            Self::StillDenied { .. } => "still_denied",
            Self::Nothing => "no_host",
            Self::TooMany(_) => "too_many_rules",
        }
    }
}

/// All of them travel in one packet.
const MOST_BYTES: usize = 128 << 10;
const HTTPS: u16 = 443;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rules {
    allow: Vec<HostRule>,
    /// What the operator's file denies.
    fixed: Vec<HostRule>,
    /// What was denied while the job ran.
    deny: Vec<HostRule>,
    upstreams: Vec<(String, HostName)>,
    /// Ports with a door inside; they are made before the job begins.
    ports: Vec<u16>,
}

impl Rules {
    /// The operator's presets and rules, then what this run asks for, each once.
    pub(super) fn new(operator: &Operator, asked: &[String]) -> Result<Self, RuleFault> {
        let host = |fault| RuleFault::Host { fault };
        let upstream = |model: &pond_policy::operator::Model| match model.upstream.host() {
            UpstreamHost::Name(name) => Some((model.name.to_string(), name.clone())),
            UpstreamHost::Address(_) => None,
        };
        let upstreams = operator.models.iter().filter_map(upstream).collect();
        let fixed = operator.egress.deny.clone();
        let mut rules = Self { allow: Vec::new(), fixed, deny: Vec::new(), upstreams, ports: Vec::new() };
        for preset in &operator.egress.presets {
            preset.rules().map_err(host)?.into_iter().for_each(|rule| add(&mut rules.allow, rule));
        }
        operator.egress.allow.iter().cloned().for_each(|rule| add(&mut rules.allow, rule));
        for text in asked {
            add(&mut rules.allow, HostRule::parse_config(text).map_err(host)?);
        }
        rules.allow.iter().try_for_each(|rule| rules.has_a_door(rule))?;
        rules.ports = rules.allow.iter().filter_map(|rule| Some(rule.port()?.get())).chain([HTTPS]).collect();
        rules.ports.sort_unstable();
        rules.ports.dedup();
        Ok(rules)
    }

    pub(super) fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// The rules after a change, and what whoever asked for it should know.
    pub(super) fn change(&self, change: &Change) -> Result<(Self, Vec<String>), RuleFault> {
        let parse = |text: &String| HostRule::parse_config(text).map_err(|fault| RuleFault::Host { fault });
        let allow = change.allow.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        let deny = change.deny.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        if allow.is_empty() && deny.is_empty() {
            return Err(RuleFault::Nothing);
        }
        let mut next = self.clone();
        next.deny.retain(|rule| !allow.contains(rule));
        deny.into_iter().for_each(|rule| add(&mut next.deny, rule));
        let mut notes = Vec::new();
        for rule in allow {
            next.has_a_door(&rule)?;
            next.is_not_denied(&rule)?;
            notes.extend(lint(&rule).into_iter().map(|warning| warning.message));
            notes.extend(rule.port().filter(|port| !next.ports.contains(&port.get())).map(|port| {
                format!("{rule}: clients that ignore the proxy cannot use port {port}, whose door would have to be there from the start")
            }));
            add(&mut next.allow, rule);
        }
        let all = next.allow.iter().chain(&next.fixed).chain(&next.deny);
        match all.map(|rule| rule.to_string().len() + "\"\",".len()).sum() {
            bytes if bytes > MOST_BYTES => Err(RuleFault::TooMany(bytes)),
            _ => Ok((next, notes)),
        }
    }

    pub(super) fn reach(&self) -> Reach {
        let text = |rule: &HostRule| rule.to_string();
        let deny = self.fixed.iter().chain(&self.deny).map(text).collect();
        Reach::Allowlist { allow: self.allow.iter().map(text).collect(), deny }
    }

    /// The broker is the only door to a model, whoever asks for another; and no rule can take the gateway's own.
    fn has_a_door(&self, rule: &HostRule) -> Result<(), RuleFault> {
        if let Some((model, _)) = self.upstreams.iter().find(|(_, name)| rule.covers(name)) {
            return Err(RuleFault::Upstream { rule: rule.to_string(), model: model.clone() });
        }
        match rule.port().map(|port| port.get()) {
            Some(port) if [PROXY.port(), BROKER.port(), DNS.port()].contains(&port) => {
                Err(RuleFault::OwnPort(port))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A rule that could not take effect is no answer to whoever asks for it.
    fn is_not_denied(&self, rule: &HostRule) -> Result<(), RuleFault> {
        let covers = |deny: &&HostRule| {
            let port = rule.port().map_or(HTTPS, |port| port.get());
            let all_of_it = match (deny.pattern(), rule.pattern()) {
                (HostPattern::Exact(_), HostPattern::Subdomains(_)) => false,
                (_, HostPattern::Exact(name)) => deny.covers(name),
                (HostPattern::Subdomains(above), HostPattern::Subdomains(base)) => {
                    above == base || deny.covers(base)
                }
            };
            all_of_it && deny.port().is_none_or(|denied| denied.get() == port)
        };
        if let Some(deny) = self.fixed.iter().find(covers) {
            return Err(RuleFault::OperatorDenies { rule: rule.to_string(), deny: deny.to_string() });
        }
        match self.deny.iter().find(covers) {
            Some(deny) => Err(RuleFault::StillDenied { rule: rule.to_string(), deny: deny.to_string() }),
            None => Ok(()),
        }
    }
}

fn add(rules: &mut Vec<HostRule>, rule: HostRule) {
    if !rules.contains(&rule) {
        rules.push(rule);
    }
}

#[cfg(test)]
mod tests {
    //! Deny wins, the operator's word stands, and one fault changes nothing.
    use super::*;
    use pond_wire::decode::decode_toml;

    const FILE: &str = r#"
[egress]
presets = []
allow = ["git.acme.com"]
deny = ["gist.github.com"]

[model.own]
api = "openai-chat"
upstream = "https://llm.acme.com"
credential = "env:X"
models = ["m"]

[price.m]
input = 1.0
output = 1.0
max_input = 1000
max_output = 1000
"#;

    fn rules() -> Rules {
        let operator = Operator::read(&decode_toml(FILE.as_bytes()).unwrap()).unwrap();
        Rules::new(&operator, &["a.com:8443".to_owned()]).unwrap()
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn change(rules: &Rules, allow: &[&str], deny: &[&str]) -> Result<(Rules, Vec<String>), &'static str> {
        let change = Change { allow: texts(allow), deny: texts(deny) };
        rules.change(&change).map_err(|fault| fault.code())
    }

    #[test]
    fn what_is_denied_while_a_job_runs_can_be_allowed_again() {
        let (next, notes) = change(&rules(), &["b.com"], &["*.c.com", "git.acme.com"]).unwrap();
        assert_eq!(notes, Vec::<String>::new());
        let allow = texts(&["git.acme.com", "a.com:8443", "b.com"]);
        let deny = texts(&["gist.github.com", "*.c.com", "git.acme.com"]);
        assert_eq!(next.reach(), Reach::Allowlist { allow: allow.clone(), deny });
        for below in ["x.c.com", "*.x.c.com"] {
            assert_eq!(change(&next, &[below], &[]).map(drop), Err("still_denied"), "{below}");
        }
        assert_eq!(change(&next, &["c.com"], &[]).map(drop), Ok(()), "the name itself is not below it");
        let (next, _) = change(&next, &["git.acme.com"], &[]).unwrap();
        assert_eq!(next.reach(), Reach::Allowlist { allow, deny: texts(&["gist.github.com", "*.c.com"]) });
    }

    #[test]
    fn a_change_with_a_fault_is_refused_with_its_code() {
        for (allow, deny, code) in [
            (&["b.com", "*"][..], &[][..], "host_invalid"),
            (&["https://b.com"], &[], "host_invalid"),
            (&["api.openai.com"], &[], "host_reserved"),
            (&["llm.acme.com"], &[], "host_reserved"),
            (&["*.acme.com"], &[], "host_reserved"),
            (&["b.com:3128"], &[], "port_reserved"),
            (&["gist.github.com"], &[], "denied_by_operator"),
            (&["b.com"], &["b.com"], "still_denied"),
            (&[], &["127.0.0.1"], "host_invalid"),
            (&[], &[], "no_host"),
        ] {
            assert_eq!(change(&rules(), allow, deny).map(drop), Err(code), "{allow:?} {deny:?}");
        }
        let long = format!("{0}.{0}.{0}", "a".repeat(60));
        let many: Vec<String> = (0..MOST_BYTES / 180).map(|number| format!("h{number}.{long}.com")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(change(&rules(), &many, &[]).map(drop), Err("too_many_rules"));
    }

    #[test]
    fn what_a_person_should_know_of_a_rule_is_said() {
        let (_, notes) = change(&rules(), &["b.com:9000", "github.com", "a.com:8443"], &[]).unwrap();
        assert!(notes[0].contains("b.com:9000") && notes[0].contains("port 9000"), "{notes:?}");
        assert!(notes.len() == 2 && notes[1].contains("github.com"), "{notes:?}");
    }
}
