//! What must hold for any rules and any destination: fewer permissions never allow more, one
//! spelling survives printing, and no text from outside is shown raw.

use proptest::prelude::*;

use super::{Allowlist, Basis, Destination, HostName, HostPattern, HostRule, decide, decide_internet};

/// A small world of names, so that rules and destinations meet often.
fn name() -> impl Strategy<Value = String> {
    let label = prop::sample::select(vec!["a", "b"]);
    let base = prop::sample::select(vec!["acme.com", "acme.co.uk"]);
    (prop::collection::vec(label, 0..3), base).prop_map(|(mut labels, base)| {
        labels.push(base);
        labels.join(".")
    })
}

fn port() -> impl Strategy<Value = Option<u16>> {
    prop::option::of(prop::sample::select(vec![443_u16, 8443]))
}

fn rule() -> impl Strategy<Value = HostRule> {
    (name(), any::<bool>(), port()).prop_map(|(name, wildcard, port)| {
        let star = if wildcard { "*." } else { "" };
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        HostRule::parse_config(&format!("{star}{name}{port}")).unwrap()
    })
}

fn rules() -> impl Strategy<Value = Vec<HostRule>> {
    prop::collection::vec(rule(), 0..6)
}

fn destination() -> impl Strategy<Value = Destination> {
    (name(), port())
        .prop_map(|(name, port)| Destination::parse(&format!("{name}:{}", port.unwrap_or(443))).unwrap())
}

/// The verdict by definition, without any index.
fn naive_allows(allow: &[HostRule], deny: &[HostRule], destination: &Destination) -> bool {
    let super::Host::Name(name) = &destination.host else {
        return false;
    };
    let is_about = |rule: &HostRule| match rule.pattern() {
        HostPattern::Exact(exact) => exact == name,
        HostPattern::Subdomains(base) => name.as_str().ends_with(&format!(".{base}")),
    };
    let port = destination.port.get();
    let allowed = |rule: &HostRule| is_about(rule) && rule.port().map_or(443, super::Port::get) == port;
    let denied = |rule: &HostRule| is_about(rule) && rule.port().is_none_or(|named| named.get() == port);
    allow.iter().any(allowed) && !deny.iter().any(denied)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn the_verdict_is_the_naive_one(allow in rules(), deny in rules(), to in destination()) {
        let list = Allowlist::new(allow.clone(), deny.clone());
        let verdict = decide(&list, &to);
        prop_assert_eq!(verdict.is_ok(), naive_allows(&allow, &deny, &to));
        if let Ok(permit) = verdict {
            let Basis::Rule(rule) = permit.basis() else { panic!("an allowlist permits by rule") };
            prop_assert!(rule.covers(permit.host()));
        }
    }

    #[test]
    fn narrowing_never_permits_more(
        allow in rules(), deny in rules(), extra in rule(), drop_at in any::<prop::sample::Index>(), to in destination(),
    ) {
        let before = decide(&Allowlist::new(allow.clone(), deny.clone()), &to).is_ok();
        let internet_before = decide_internet(&Allowlist::new([], deny.clone()), &to).is_ok();
        let mut fewer = allow.clone();
        if !fewer.is_empty() {
            fewer.remove(drop_at.index(allow.len()));
        }
        let mut more = deny.clone();
        more.push(extra);
        prop_assert!(before || decide(&Allowlist::new(fewer, deny), &to).is_err());
        prop_assert!(before || decide(&Allowlist::new(allow, more.clone()), &to).is_err());
        prop_assert!(internet_before || decide_internet(&Allowlist::new([], more), &to).is_err());
    }

    #[test]
    fn rules_print_as_they_parse(rule in rule()) {
        prop_assert_eq!(HostRule::parse_config(&rule.to_string()), Ok(rule));
    }

    #[test]
    fn any_accepted_rule_is_already_canonical(text in "\\PC{0,40}|[*a-z0-9.:/-]{0,40}") {
        match HostRule::parse_config(&text) {
            Ok(rule) => prop_assert_eq!(rule.to_string(), text),
            Err(fault) => {
                prop_assert!(!fault.to_string().contains(char::is_control));
                if let Some(better) = fault.suggestion() {
                    let rule = HostRule::parse_config(better).map(|rule| rule.to_string());
                    prop_assert_eq!(rule.as_deref(), Ok(better));
                }
            }
        }
    }

    #[test]
    fn destinations_print_as_they_parse(text in "\\PC{0,40}|[a-zA-Z0-9.:%@\\[\\]-]{0,40}|[a-z]{1,5}\\.[a-z]{2,3}\\.?:[0-9]{1,6}") {
        if let Ok(destination) = Destination::parse(&text) {
            prop_assert_eq!(Destination::parse(&destination.to_string()), Ok(destination));
        }
    }

    #[test]
    fn names_are_lower_case_ldh(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(name) = HostName::parse(&bytes) {
            let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
            prop_assert!(name.as_str().bytes().all(plain));
            prop_assert_eq!(HostName::parse(name.as_str()), Ok(name));
        }
    }
}
