//! What the job may reach right now, and the verdict on one destination. Zone: host; the rules come from the host, the
//! destinations from the job. Invariant: the only way from a destination to a permit leads through here.

use pond_policy::egress::{
    Allowlist, Denial, DenialCode, Destination, Host, HostFault, HostName, HostRule, Permit, decide,
    decide_internet, decide_name, decide_name_internet,
};
use pond_wire::gateway::Reach;

/// No flag helps where there is no list.
const NO_LIST: &str = "the profile reaches the model and no other host; untrusted-code-write reaches a list";

/// The rules of one moment.
#[derive(Debug)]
pub(crate) enum Stance {
    /// No host but the model's, which is the broker's to reach.
    BrokerOnly,
    Listed(Allowlist),
    Internet(Allowlist),
    /// The job is over; nothing is reached any more.
    Ended,
}

impl Stance {
    /// Reads rules in the contract's spelling; one bad rule refuses them all.
    pub(crate) fn new(reach: &Reach) -> Result<Self, HostFault> {
        Ok(match reach {
            Reach::BrokerOnly => Self::BrokerOnly,
            Reach::Allowlist { allow, deny } => Self::Listed(Allowlist::new(rules(allow)?, rules(deny)?)),
            Reach::Internet { deny } => Self::Internet(Allowlist::new([], rules(deny)?)),
        })
    }

    pub(crate) fn judge(&self, destination: &Destination) -> Result<Permit, Denial> {
        if is_loopback(&destination.host) {
            return Err(Denial::own_door(&destination.to_string()));
        }
        match self {
            Self::BrokerOnly => decide(&Allowlist::default(), destination)
                .map_err(|denial| without_list(denial, &destination.to_string())),
            Self::Listed(list) => decide(list, destination),
            Self::Internet(list) => decide_internet(list, destination),
            Self::Ended => decide(&Allowlist::default(), destination),
        }
    }

    /// Whether the job may know this name at all: a port of it that may be reached.
    pub(crate) fn knows(&self, name: &HostName) -> Result<Permit, Denial> {
        if is_loopback(&Host::Name(name.clone())) {
            return Err(Denial::own_door(name.as_str()));
        }
        match self {
            Self::BrokerOnly => {
                decide_name(&Allowlist::default(), name).map_err(|denial| without_list(denial, name.as_str()))
            }
            Self::Listed(list) => decide_name(list, name),
            Self::Internet(list) => decide_name_internet(list, name),
            Self::Ended => decide_name(&Allowlist::default(), name),
        }
    }
}

fn without_list(denial: Denial, target: &str) -> Denial {
    match denial.code() == DenialCode::HostNotAllowed {
        true => Denial::at_door(DenialCode::HostNotAllowed, target, NO_LIST),
        false => denial,
    }
}

fn rules(texts: &[String]) -> Result<Vec<HostRule>, HostFault> {
    texts.iter().map(|text| HostRule::parse_config(text)).collect()
}

/// Clients that ignore NO_PROXY ask the proxy for the broker; they deserve a better answer than "no addresses".
fn is_loopback(host: &Host) -> bool {
    match host {
        Host::Name(name) => name.as_str() == "localhost",
        Host::Literal(text) => text.starts_with("127.") || text == "[::1]",
    }
}

#[cfg(test)]
mod tests {
    //! Verdicts that only the doors ask for; the rest is tested in pond-policy.
    use super::*;

    fn stance(allow: &[&str]) -> Stance {
        let allow = allow.iter().map(|rule| (*rule).to_owned()).collect();
        Stance::new(&Reach::Allowlist { allow, deny: vec![] }).unwrap()
    }

    fn code(stance: &Stance, target: &str) -> Result<(), DenialCode> {
        stance.judge(&Destination::parse(target).unwrap()).map(|_| ()).map_err(|denial| denial.code())
    }

    #[test]
    fn c26_the_jobs_own_loopback_is_self_whatever_the_posture() {
        for stance in [stance(&["pypi.org"]), Stance::new(&Reach::Internet { deny: vec![] }).unwrap()] {
            for target in ["127.0.0.1:8377", "localhost:3128", "[::1]:443", "127.1:443"] {
                assert_eq!(code(&stance, target), Err(DenialCode::SelfAddress), "{target}");
            }
        }
    }

    #[test]
    fn c42_no_rules_reach_nothing() {
        for reach in [Reach::BrokerOnly, Reach::Allowlist { allow: vec![], deny: vec![] }] {
            let stance = Stance::new(&reach).unwrap();
            assert_eq!(code(&stance, "pypi.org:443"), Err(DenialCode::HostNotAllowed), "{reach:?}");
        }
        assert_eq!(code(&Stance::Ended, "pypi.org:443"), Err(DenialCode::HostNotAllowed));
    }

    #[test]
    fn where_there_is_no_list_no_flag_is_recommended() {
        let stance = Stance::new(&Reach::BrokerOnly).unwrap();
        let name = HostName::parse("pypi.org").unwrap();
        let denials = [
            stance.judge(&Destination::parse("pypi.org:443").unwrap()).unwrap_err(),
            stance.knows(&name).unwrap_err(),
        ];
        assert_eq!(denials.each_ref().map(Denial::host), ["pypi.org:443", "pypi.org"]);
        assert_eq!(denials.each_ref().map(Denial::hint), [NO_LIST; 2]);
    }

    #[test]
    fn c43_one_bad_rule_refuses_them_all() {
        let reach = Reach::Allowlist { allow: vec!["pypi.org".into(), "*".into()], deny: vec![] };
        let fault = Stance::new(&reach).map(|_| ()).map_err(|fault| fault.to_string());
        assert_eq!(fault, Err("\"*\" would allow every host".to_owned()));
    }

    #[test]
    fn a_name_is_known_when_any_rule_names_it() {
        let stance = stance(&["h.com:8443", "*.d.com"]);
        let known = |name: &str| {
            let known = stance.knows(&HostName::parse(name).unwrap());
            known.map(|permit| permit.port().get()).map_err(|denial| denial.code())
        };
        assert_eq!(known("h.com"), Ok(8443));
        assert_eq!(known("a.d.com"), Ok(443));
        assert_eq!(known("localhost"), Err(DenialCode::SelfAddress));
        assert_eq!(known("d.com"), Err(DenialCode::HostNotAllowed));
        assert_eq!(known("metadata.internal"), Err(DenialCode::SpecialName));
    }
}
