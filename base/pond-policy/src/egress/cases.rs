//! The catalogue of hostile inputs, case by case. Each test names its case number; this file holds what
//! the three groups share.

use super::{Allowlist, Basis, Denial, Destination, DestinationFault, HostRule, decide};

mod rules;
mod spelling;
mod verdict;

fn rule(text: &str) -> HostRule {
    HostRule::parse_config(text).expect(text)
}

fn list(allow: &[&str], deny: &[&str]) -> Allowlist {
    Allowlist::new(allow.iter().map(|text| rule(text)), deny.iter().map(|text| rule(text)))
}

fn to(text: &str) -> Destination {
    Destination::parse(text).expect(text)
}

/// The verdict in one word: the rule that allowed, or the code that refused.
fn verdict(list: &Allowlist, destination: &str) -> String {
    match decide(list, &to(destination)).map(|permit| permit.basis().clone()) {
        Ok(Basis::Rule(rule)) => rule.to_string(),
        Ok(Basis::Internet) => "internet".to_owned(),
        Ok(Basis::Model) => "model".to_owned(),
        Err(denial) => denial.code().name().to_owned(),
    }
}

fn check_faults(table: &[(&str, DestinationFault)]) {
    for (text, fault) in table {
        assert_eq!(Destination::parse(text), Err(*fault), "{text:?}");
        assert_eq!(Denial::malformed(text, *fault).code().status(), 400);
    }
}

fn check_config(table: &[(&str, &str, Option<&str>)]) {
    for (text, code, suggestion) in table {
        let fault = HostRule::parse_config(text).expect_err(text);
        assert_eq!((fault.code().name(), fault.suggestion()), (*code, *suggestion), "{text:?}: {fault}");
        assert!(!fault.to_string().contains(char::is_control), "{fault}");
    }
}
