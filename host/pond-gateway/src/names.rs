//! A bound on how many different names a job may make up under one wildcard rule: each is a query that tells the owner of
//! the domain something. Zone: host; the names come from the job.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use pond_policy::egress::{Basis, Denial, DenialCode, HostName, HostPattern, Permit};

/// More names than any tool needs below one domain. A name can hold some two hundred characters of the job's choosing, so a
/// wildcard still lets tens of KiB out to whoever serves the domain: exact rules are better.
pub(crate) const NAMES_PER_WILDCARD: usize = 256;

/// The same for each domain in the internet posture, where a domain is what its last two labels say; and for all of them,
/// which bounds this table as well.
pub(crate) const NAMES_PER_DOMAIN: usize = 1024;
const NAMES_IN_ALL: usize = 1 << 15;

/// The names each wildcard or domain has been used for.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    below: HashMap<String, HashSet<HostName>>,
    all: usize,
}

/// Whether a name was counted for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admitted {
    First,
    Again,
    /// Somebody chose the name who is not the job.
    Uncounted,
}

impl Names {
    /// Lets a permit pass, unless it rests on a wildcard or a domain that has named enough hosts already.
    pub(crate) fn admit(&self, permit: &Permit) -> Result<Admitted, Denial> {
        let (base, most) = match permit.basis() {
            Basis::Model => return Ok(Admitted::Uncounted),
            Basis::Internet => (domain(permit.host()), NAMES_PER_DOMAIN),
            Basis::Rule(rule) => match rule.pattern() {
                HostPattern::Exact(_) => return Ok(Admitted::Uncounted),
                HostPattern::Subdomains(base) => (base.as_str(), NAMES_PER_WILDCARD),
            },
        };
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = table.all;
        let names = table.below.entry(base.to_owned()).or_default();
        if names.contains(permit.host()) {
            return Ok(Admitted::Again);
        }
        if names.len() >= most || all >= NAMES_IN_ALL {
            let target = format!("{}:{}", permit.host(), permit.port());
            let hint = format!("--allow-host {}; {} hosts of {base} were named", permit.host(), names.len());
            return Err(Denial::at_door(DenialCode::TooManyNames, &target, hint));
        }
        names.insert(permit.host().clone());
        table.all += 1;
        Ok(Admitted::First)
    }
}

/// The last two labels. Who registered it nobody here knows; what matters is that one query cannot hide among others.
fn domain(name: &HostName) -> &str {
    let text = name.as_str();
    text.rmatch_indices('.').nth(1).map_or(text, |(dot, _)| text.get(dot + 1..).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    //! Only wildcards and domains are counted, each by itself.
    use super::*;
    use pond_policy::egress::{Allowlist, Destination, HostRule, decide, decide_internet};

    #[test]
    fn a_domain_of_the_internet_stops_naming_hosts_at_its_cap() {
        let (list, names) = (Allowlist::new([], []), Names::default());
        let ask = |name: &str| {
            let permit = decide_internet(&list, &Destination::parse(&format!("{name}:80")).unwrap()).unwrap();
            names.admit(&permit).map_err(|denial| denial.code())
        };
        for number in 0..NAMES_PER_DOMAIN {
            assert_eq!(ask(&format!("n{number}.x.evil.com")), Ok(Admitted::First));
        }
        assert_eq!(ask("n0.x.evil.com"), Ok(Admitted::Again));
        for made_up in ["one-more.x.evil.com", "y.evil.com", "evil.com"] {
            assert_eq!(ask(made_up), Err(DenialCode::TooManyNames), "{made_up}");
        }
        assert_eq!(ask("good.com"), Ok(Admitted::First));
    }

    #[test]
    fn all_domains_together_have_a_cap_too() {
        let (list, names) = (Allowlist::new([], []), Names::default());
        let ask = |name: &str| {
            let permit = decide_internet(&list, &Destination::parse(&format!("{name}:80")).unwrap()).unwrap();
            names.admit(&permit).map_err(|denial| denial.code())
        };
        for number in 0..NAMES_IN_ALL {
            let domain = number / NAMES_PER_DOMAIN;
            assert_eq!(ask(&format!("n{number}.d{domain}.com")), Ok(Admitted::First));
        }
        assert_eq!(ask("one.more.com"), Err(DenialCode::TooManyNames));
        assert_eq!(ask("n0.d0.com"), Ok(Admitted::Again));
    }

    #[test]
    fn c61_a_wildcard_stops_naming_hosts_at_its_cap() {
        let rule = |text| HostRule::parse_config(text).unwrap();
        let list = Allowlist::new([rule("*.d.com"), rule("*.e.com"), rule("x.d.com")], []);
        let names = Names::default();
        let ask = |name: &str| {
            let permit = decide(&list, &Destination::parse(&format!("{name}:443")).unwrap()).unwrap();
            names.admit(&permit).map(drop).map_err(|denial| denial.code())
        };
        for number in 0..NAMES_PER_WILDCARD {
            assert_eq!(ask(&format!("n{number}.d.com")), Ok(()));
        }
        assert_eq!(ask("one-more.d.com"), Err(DenialCode::TooManyNames));
        assert_eq!(ask("n0.d.com"), Ok(()));
        assert_eq!(ask("x.d.com"), Ok(()));
        assert_eq!(ask("a.e.com"), Ok(()));
    }
}
