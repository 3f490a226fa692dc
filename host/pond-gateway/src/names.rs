//! A bound on how many different names a job may make up under one wildcard rule: each is a query that tells the owner of
//! the domain something. Zone: host; the names come from the job.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use pond_policy::egress::{Basis, Denial, DenialCode, HostName, HostPattern, Permit};

/// More names than any tool needs below one domain. A name can hold some two hundred characters of the job's choosing, so a
/// wildcard still lets tens of KiB out to whoever serves the domain: exact rules are better.
pub(crate) const NAMES_PER_WILDCARD: usize = 256;

/// The names each wildcard has been used for.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<HashMap<HostName, HashSet<HostName>>>);

impl Names {
    /// Lets a permit pass, unless it rests on a wildcard that has named enough hosts already.
    pub(crate) fn admit(&self, permit: &Permit) -> Result<(), Denial> {
        let base = match permit.basis() {
            Basis::Internet | Basis::Model => return Ok(()),
            Basis::Rule(rule) => match rule.pattern() {
                HostPattern::Exact(_) => return Ok(()),
                HostPattern::Subdomains(base) => base,
            },
        };
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let names = seen.entry(base.clone()).or_default();
        if names.contains(permit.host()) {
            return Ok(());
        }
        if names.len() >= NAMES_PER_WILDCARD {
            let target = format!("{}:{}", permit.host(), permit.port());
            let hint =
                format!("--allow-host {}; *.{base} has named {NAMES_PER_WILDCARD} hosts", permit.host());
            return Err(Denial::at_door(DenialCode::TooManyNames, &target, hint));
        }
        names.insert(permit.host().clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! Only wildcards are counted, each by itself.
    use super::*;
    use pond_policy::egress::{Allowlist, Destination, HostRule, decide};

    #[test]
    fn c61_a_wildcard_stops_naming_hosts_at_its_cap() {
        let rule = |text| HostRule::parse_config(text).unwrap();
        let list = Allowlist::new([rule("*.d.com"), rule("*.e.com"), rule("x.d.com")], []);
        let names = Names::default();
        let ask = |name: &str| {
            let permit = decide(&list, &Destination::parse(&format!("{name}:443")).unwrap()).unwrap();
            names.admit(&permit).map_err(|denial| denial.code())
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
