//! A CONNECT target from a hostile client: one canonical spelling or a typed fault, a verdict that
//! never permits an address, and a refusal that stays on one printable line.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pond_policy::egress::{
    Allowlist, Denial, Destination, Host, HostName, HostRule, decide, decide_internet,
};

static LIST: LazyLock<Allowlist> = LazyLock::new(|| {
    let rule = |text| HostRule::parse_config(text).expect("a fixed rule");
    Allowlist::new([rule("pypi.org"), rule("*.acme.com"), rule("h.com:8443")], [rule("bad.acme.com")])
});

fuzz_target!(|text: &str| {
    let destination = match Destination::parse(text) {
        Ok(destination) => destination,
        Err(fault) => return printable(&Denial::malformed(text, fault)),
    };
    assert_eq!(Destination::parse(&destination.to_string()).as_ref(), Ok(&destination));
    for verdict in [decide(&LIST, &destination), decide_internet(&LIST, &destination)] {
        match (verdict, &destination.host) {
            (Ok(permit), Host::Name(name)) => assert_eq!(permit.host(), name),
            (Ok(permit), Host::Literal(text)) => panic!("{text} was permitted as {permit:?}"),
            (Err(denial), _) => printable(&denial),
        }
    }
    if let Host::Name(name) = &destination.host {
        assert_eq!(HostName::parse(name.as_str()).as_ref(), Ok(name));
    }
});

fn printable(denial: &Denial) {
    let phrase = denial.reason_phrase();
    assert!(
        phrase.starts_with("pond: ") && phrase.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
        "{phrase:?}"
    );
}
