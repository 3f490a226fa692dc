//! A host rule from configuration: any text ends in a rule that prints as it was written, or in a
//! fault on one line whose advice would be accepted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pond_policy::egress::{HostRule, lint};

fuzz_target!(|text: &str| {
    match HostRule::parse_config(text) {
        Ok(rule) => {
            assert_eq!(rule.to_string(), text);
            assert!(lint(&rule).iter().all(|warning| !warning.message.contains(char::is_control)));
        }
        Err(fault) => {
            assert!(!fault.to_string().contains(char::is_control));
            if let Some(better) = fault.suggestion() {
                assert_eq!(
                    HostRule::parse_config(better).map(|rule| rule.to_string()).as_deref(),
                    Ok(better)
                );
            }
        }
    }
});
