//! The verdict: a destination against allow and deny rules. Deny always wins, an empty list denies
//! everything, and what no rule names is refused before any name is looked up.
//!
//! Cost: one hash lookup per label of the asked name, in each of two sets; a permit allocates nothing.

use std::collections::HashMap;
use std::sync::Arc;

use super::catalogue;
use super::denial::Denial;
use super::destination::{Destination, Host, Port};
use super::name::HostName;
use super::pattern::{HostPattern, HostRule};
use super::permit::{Basis, Permit};

/// Ports that stay closed in the internet posture: mail submission, which turns a sandbox into a
/// spam source, and name servers, because the gateway's responder is the only resolver.
const CLOSED_PORTS: [u16; 5] = [25, 53, 465, 587, 853];

/// Allow and deny rules, indexed by name.
#[derive(Debug, Clone, Default)]
pub struct Allowlist {
    allow: RuleSet,
    deny: RuleSet,
}

#[derive(Debug, Clone, Default)]
struct RuleSet {
    exact: HashMap<HostName, Vec<Arc<HostRule>>>,
    subdomains: HashMap<HostName, Vec<Arc<HostRule>>>,
}

impl Allowlist {
    pub fn new(allow: impl IntoIterator<Item = HostRule>, deny: impl IntoIterator<Item = HostRule>) -> Self {
        Self { allow: RuleSet::new(allow), deny: RuleSet::new(deny) }
    }
}

impl RuleSet {
    fn new(rules: impl IntoIterator<Item = HostRule>) -> Self {
        let mut set = Self::default();
        for rule in rules {
            let index = match rule.pattern() {
                HostPattern::Exact(_) => &mut set.exact,
                HostPattern::Subdomains(_) => &mut set.subdomains,
            };
            index.entry(rule.pattern().name().clone()).or_default().push(Arc::new(rule));
        }
        set
    }

    /// Every rule about `name`, the most specific first.
    fn about<'a>(&'a self, name: &'a HostName) -> impl Iterator<Item = &'a Arc<HostRule>> {
        let exact = self.exact.get(name.as_str());
        let above = name.parents().filter_map(|parent| self.subdomains.get(parent));
        exact.into_iter().chain(above).flatten()
    }
}

/// Judges a destination by a list.
pub fn decide(list: &Allowlist, destination: &Destination) -> Result<Permit, Denial> {
    let (name, port) = nameable(list, destination)?;
    let mut about = list.allow.about(name).peekable();
    let nearest = about.peek().copied();
    match (about.find(|rule| rule.allows_port(port)), nearest) {
        (Some(rule), _) => Ok(Permit::new(name.clone(), port, Basis::Rule(Arc::clone(rule)))),
        (None, Some(rule)) => Err(Denial::port_not_allowed(Some(rule), destination)),
        (None, None) => Err(Denial::host_not_allowed(destination)),
    }
}

/// Judges a destination in the internet posture: any public name on any port but the closed ones, and no model API, whose
/// only door is the broker. The allow rules of `list` play no part; its deny rules hold.
pub fn decide_internet(list: &Allowlist, destination: &Destination) -> Result<Permit, Denial> {
    let (name, port) = nameable(list, destination)?;
    if let Some(api) = catalogue::model_api(name) {
        return Err(Denial::model_api(api, destination));
    }
    if CLOSED_PORTS.contains(&port.get()) {
        return Err(Denial::port_not_allowed(None, destination));
    }
    Ok(Permit::new(name.clone(), port, Basis::Internet))
}

/// Judges a name before its port is known: it may be known when any port of it may be reached.
pub fn decide_name(list: &Allowlist, name: &HostName) -> Result<Permit, Denial> {
    let ports = list.allow.about(name).map(|rule| rule.port().unwrap_or(Port::HTTPS));
    at_any(ports, name, |destination| decide(list, destination))
}

/// The same in the internet posture.
pub fn decide_name_internet(list: &Allowlist, name: &HostName) -> Result<Permit, Denial> {
    // More ports than could be closed one by one: if any is open, one of these is.
    let enough = list.deny.about(name).count() + CLOSED_PORTS.len() + 1;
    let ports = (1..=u16::MAX).filter_map(Port::new).take(enough);
    at_any([Port::HTTPS].into_iter().chain(ports), name, |destination| decide_internet(list, destination))
}

fn at_any(
    mut ports: impl Iterator<Item = Port>,
    name: &HostName,
    judge: impl Fn(&Destination) -> Result<Permit, Denial>,
) -> Result<Permit, Denial> {
    let at = |port| judge(&Destination { host: Host::Name(name.clone()), port });
    match ports.find_map(|port| at(port).ok()) {
        Some(permit) => Ok(permit),
        None => at(Port::HTTPS).map_err(|denial| denial.of_name(name)),
    }
}

/// What both verdicts refuse: addresses, names that mean nothing in public, denied hosts.
fn nameable<'a>(list: &Allowlist, destination: &'a Destination) -> Result<(&'a HostName, Port), Denial> {
    let name = match &destination.host {
        Host::Name(name) => name,
        Host::Literal(_) => return Err(Denial::ip_literal(destination)),
    };
    if name.is_special_use() || name.is_single_label() {
        return Err(Denial::special_name(destination));
    }
    match list.deny.about(name).find(|rule| rule.denies_port(destination.port)) {
        Some(rule) => Err(Denial::denied_by(rule, destination)),
        None => Ok((name, destination.port)),
    }
}
