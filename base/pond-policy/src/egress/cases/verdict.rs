//! Which destinations rules reach, and which addresses a permit reaches.

use core::net::IpAddr;

use super::{check_config, check_faults, list, rule, to, verdict};
use crate::egress::{
    Allowlist, Basis, Denial, DenialCode, Destination, DestinationFault, HostFaultCode, HostName, HostRule,
    NameFault, Nat64Prefix, Permit, Preset, decide, decide_internet, decide_name, decide_name_internet,
};

type Addresses<'a> = &'a [&'a str];

#[test]
fn case_8_a_rule_without_a_port_means_443() {
    let list = list(&["h.com"], &[]);
    for port in [22, 25, 80, 8443] {
        assert_eq!(verdict(&list, &format!("h.com:{port}")), "port_not_allowed");
    }
    assert_eq!(verdict(&list, "h.com:443"), "h.com");
}

#[test]
fn case_37_a_wildcard_is_every_name_below_and_nothing_else() {
    let list = list(&["*.acme.com"], &[]);
    let table = [
        ("a.acme.com:443", "*.acme.com"),
        ("a.b.acme.com:443", "*.acme.com"),
        ("acme.com:443", "host_not_allowed"),
        ("evilacme.com:443", "host_not_allowed"),
        ("acme.com.evil.com:443", "host_not_allowed"),
        ("a.acme.com.evil.com:443", "host_not_allowed"),
        ("a.acme.com:8443", "port_not_allowed"),
    ];
    for (destination, expected) in table {
        assert_eq!(verdict(&list, destination), expected, "{destination}");
    }
    let covers = |name: &str| rule("*.acme.com").covers(&HostName::parse(name).unwrap());
    assert_eq!(["a.acme.com", "acme.com", "evilacme.com"].map(covers), [true, false, false]);
}

#[test]
fn case_38_a_wildcard_never_meets_an_address() {
    let list = list(&["*.acme.com"], &[]);
    assert_eq!(verdict(&list, "1.2.3.4:443"), "ip_literal");
    check_faults(&[
        ("::ffff:1.2.3.4%x.acme.com:443", DestinationFault::Name(NameFault::Colon)),
        ("[::ffff:1.2.3.4%x.acme.com]:443", DestinationFault::Name(NameFault::Percent)),
        ("[::1].acme.com:443", DestinationFault::Name(NameFault::Bracket)),
    ]);
}

#[test]
fn case_42_an_empty_list_denies_all() {
    let verdicts = [
        verdict(&Allowlist::default(), "pypi.org:443"),
        verdict(&list(&[], &[]), "pypi.org:443"),
        verdict(&list(&[], &["x.com"]), "pypi.org:443"),
    ];
    assert_eq!(verdicts, ["host_not_allowed"; 3]);
}

#[test]
fn case_44_deny_beats_allow_in_every_shape() {
    let table: [(&[&str], &[&str], &str); 5] = [
        (&["a.acme.com"], &["a.acme.com"], "denied_by_rule"),
        (&["a.acme.com"], &["*.acme.com"], "denied_by_rule"),
        (&["*.acme.com"], &["a.acme.com"], "denied_by_rule"),
        (&["a.acme.com:443"], &["*.acme.com"], "denied_by_rule"),
        (&["a.acme.com"], &["b.acme.com"], "a.acme.com"),
    ];
    for (allow, deny, expected) in table {
        assert_eq!(verdict(&list(allow, deny), "a.acme.com:443"), expected, "{allow:?} {deny:?}");
    }
}

#[test]
fn case_46_ports_of_one_host_add_up_and_a_port_deny_wins() {
    let both = list(&["h.com", "h.com:8443"], &[]);
    assert_eq!(verdict(&both, "h.com:443"), "h.com");
    assert_eq!(verdict(&both, "h.com:8443"), "h.com:8443");
    assert_eq!(verdict(&both, "h.com:22"), "port_not_allowed");
    let mixed = list(&["*.h.com:8443", "a.h.com"], &[]);
    assert_eq!(verdict(&mixed, "a.h.com:8443"), "*.h.com:8443");
    let denied = list(&["h.com", "h.com:8443"], &["h.com:8443"]);
    assert_eq!(verdict(&denied, "h.com:443"), "h.com");
    assert_eq!(verdict(&denied, "h.com:8443"), "denied_by_rule");
    let every_port = list(&["h.com:8443"], &["h.com"]);
    assert_eq!(verdict(&every_port, "h.com:8443"), "denied_by_rule");
}

#[test]
fn case_47_special_use_names_are_refused_without_a_lookup() {
    let list = list(&["acme.com"], &[]);
    let names = [
        "printer.local",
        "x.localhost",
        "localhost",
        "metadata.google.internal",
        "x.onion",
        "x.test",
        "x.invalid",
        "router.home.arpa",
        "home.arpa",
        "metadata",
        "x.alt",
        "x.example",
        "1.0.0.127.in-addr.arpa",
    ];
    for name in names {
        let destination = to(&format!("{name}:443"));
        let codes = [decide(&list, &destination), decide_internet(&list, &destination)]
            .map(|verdict| verdict.expect_err(name).code());
        assert_eq!(codes, [DenialCode::SpecialName; 2], "{name}");
        let fault = HostRule::parse_config(name).expect_err(name);
        assert_eq!(fault.code(), HostFaultCode::HostInvalid, "{name}");
    }
    check_config(&[("*.internal", "host_invalid", None), ("*.home.arpa", "host_invalid", None)]);
}

#[test]
fn cases_48_to_50_address_literals_are_refused() {
    let list = list(&["acme.com"], &[]);
    let literals = [
        "1.1.1.1",
        "2852039166",
        "0xA9FEA9FE",
        "0251.0376.0251.0376",
        "127.1",
        "0x7f.1",
        "127.0.0.1.",
        "1.2.3",
        "a.b.1",
        "acme.com.0x",
        "[::1]",
        "[::]",
        "0.0.0.0",
        "[::ffff:127.0.0.1]",
        "[::ffff:a9fe:a9fe]",
        "[::127.0.0.1]",
        "[2606:4700::1111]",
    ];
    for literal in literals {
        let destination = to(&format!("{literal}:443"));
        let codes = [decide(&list, &destination), decide_internet(&list, &destination)]
            .map(|verdict| verdict.expect_err(literal).code());
        assert_eq!(codes, [DenialCode::IpLiteral; 2], "{literal}");
    }
    assert_eq!(HostName::parse("127.1"), Err(NameFault::IpLike));
}

fn permit() -> Permit {
    decide(&list(&["h.com"], &[]), &to("h.com:443")).unwrap()
}

fn pinned(resolved: &[&str], own: &[&str]) -> Result<Vec<String>, DenialCode> {
    let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
    match permit().pin(&parse(resolved), &parse(own)) {
        Ok(pinned) => Ok(pinned.addresses().iter().map(ToString::to_string).collect()),
        Err(denial) => Err(denial.code()),
    }
}

#[test]
fn cases_52_and_58_and_62_and_66_every_resolved_address_is_judged() {
    let table: [(Addresses<'_>, Addresses<'_>, Result<Vec<String>, DenialCode>); 10] = [
        (&["8.8.8.8", "2600::1"], &[], Ok(vec!["8.8.8.8:443".into(), "[2600::1]:443".into()])),
        (&["10.0.0.1"], &[], Err(DenialCode::PrivateAddress)),
        (&["::ffff:8.8.8.8"], &[], Err(DenialCode::PrivateAddress)),
        (&["10.0.0.1", "fd00::1"], &[], Err(DenialCode::PrivateAddress)),
        (&["8.8.8.8", "10.0.0.1"], &[], Err(DenialCode::MixedAddresses)),
        (&["8.8.8.8", "fd00::1"], &[], Err(DenialCode::MixedAddresses)),
        (&["8.8.8.8", "9.9.9.9"], &["9.9.9.9"], Err(DenialCode::SelfAddress)),
        (&["9.9.9.9"], &["::ffff:9.9.9.9"], Err(DenialCode::SelfAddress)),
        (&["127.0.0.1"], &["127.0.0.1"], Err(DenialCode::SelfAddress)),
        (&[], &[], Err(DenialCode::DnsFailed)),
    ];
    for (resolved, own, expected) in table {
        assert_eq!(pinned(resolved, own), expected, "{resolved:?} own {own:?}");
    }
    assert_eq!(pinned(&["8.8.8.8"; 64], &[]).map(|found| found.len()), Ok(64));
    assert_eq!(pinned(&["8.8.8.8"; 65], &[]), Err(DenialCode::TooManyAddresses));
}

#[test]
fn case_58_an_own_address_behind_nat64_is_still_own() {
    let prefix = Nat64Prefix::parse("64:ff9b::/96").unwrap();
    let resolved = ["64:ff9b::9.9.9.9".parse().unwrap()];
    let mine = permit().pin_behind_nat64(&resolved, &["9.9.9.9".parse().unwrap()], &[prefix]);
    assert_eq!(mine.map_err(|denial| denial.code()), Err(DenialCode::SelfAddress));
    let other = permit().pin_behind_nat64(&resolved, &[], &[prefix]).unwrap();
    assert_eq!(other.addresses(), ["[64:ff9b::909:909]:443".parse().unwrap()]);
}

#[test]
fn the_internet_posture_takes_public_names_on_open_ports() {
    let list = list(&[], &["evil.com"]);
    let judge = |text: &str| decide_internet(&list, &to(text)).map_err(|denial| denial.code().name());
    assert_eq!(judge("anything.org:8080").map(|permit| permit.basis().clone()), Ok(Basis::Internet));
    for (destination, code) in [
        ("evil.com:443", "denied_by_rule"),
        ("mail.org:25", "port_not_allowed"),
        ("dns.org:53", "port_not_allowed"),
        ("dns.org:853", "port_not_allowed"),
        ("1.1.1.1:443", "ip_literal"),
        ("api.anthropic.com:443", "host_not_allowed"),
        ("api.openai.com:8443", "host_not_allowed"),
        ("eu.api.openai.com:443", "host_not_allowed"),
        ("us-east5-aiplatform.googleapis.com:443", "host_not_allowed"),
        ("bedrock-runtime.us-east-1.amazonaws.com:443", "host_not_allowed"),
    ] {
        assert_eq!(judge(destination).expect_err(destination), code, "{destination}");
    }
}

#[test]
fn case_142_redirect_targets_are_in_the_presets() {
    let list = Allowlist::new(Preset::Github.rules().unwrap(), []);
    for host in ["github.com", "codeload.github.com", "release-assets.githubusercontent.com"] {
        assert_eq!(verdict(&list, &format!("{host}:443")), host);
    }
    assert_eq!(verdict(&list, "gist.github.com:443"), "host_not_allowed");
}

#[test]
fn case_88_a_denial_is_one_printable_line_with_the_smallest_change() {
    let phrase = |list: &Allowlist, text: &str| decide(list, &to(text)).expect_err(text).reason_phrase();
    let empty = Allowlist::default();
    let table = [
        ("git.acme.com:443", "pond: host not allowed: git.acme.com:443 (--allow-host git.acme.com)"),
        ("git.acme.com:8443", "pond: host not allowed: git.acme.com:8443 (--allow-host git.acme.com:8443)"),
        (
            "api.openai.com:443",
            "pond: host not allowed: api.openai.com:443 (\"api.openai.com\" reaches the model API api.openai.com; \
             the broker is its only door)",
        ),
    ];
    for (destination, expected) in table {
        assert_eq!(phrase(&empty, destination), expected);
    }
    let port = phrase(&list(&["h.com"], &[]), "h.com:22");
    assert_eq!(port, "pond: port not allowed: h.com:22 (--allow-host h.com:22)");
    let long = format!("{}\0", "a".repeat(100));
    let target = "a\r\nSet-Cookie: x\u{1b}[2J\u{202e}\0\"";
    let fault = Destination::parse(target).expect_err("malformed");
    for denial in [Denial::malformed(target, fault), Denial::https_only(target), Denial::https_only(&long)] {
        let phrase = denial.reason_phrase();
        assert!(
            phrase.starts_with("pond: ") && phrase.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
            "{phrase}"
        );
    }
}

#[test]
fn case_60_a_name_is_known_where_any_port_of_it_may_be_reached() {
    let name = |text: &str| HostName::parse(text).unwrap();
    let port = |permit: Result<Permit, Denial>| permit.unwrap().port().get();
    let listed = list(&["p.acme.com:8443", "q.acme.com"], &["p.acme.com:443", "q.acme.com:443"]);
    assert_eq!(port(decide_name(&listed, &name("p.acme.com"))), 8443);
    let denied = decide_name(&listed, &name("q.acme.com")).unwrap_err();
    assert_eq!((denied.code(), denied.host()), (DenialCode::DeniedByRule, "q.acme.com"));
    let unlisted = decide_name(&listed, &name("gitlab.com")).unwrap_err();
    let hint = "--allow-host gitlab.com, for HTTPS: ssh and other protocols are not carried";
    assert_eq!((unlisted.host(), unlisted.hint()), ("gitlab.com", hint));

    let closed: Vec<String> = (1..=9).chain([443]).map(|port| format!("x.com:{port}")).collect();
    let closed: Vec<&str> = closed.iter().map(String::as_str).chain(["y.com"]).collect();
    let open = list(&[], &closed);
    assert_eq!(port(decide_name_internet(&open, &name("x.com"))), 10);
    assert_eq!(port(decide_name_internet(&open, &name("z.com"))), 443);
    for (text, code) in [
        ("y.com", DenialCode::DeniedByRule),
        ("a.internal", DenialCode::SpecialName),
        ("api.openai.com", DenialCode::HostNotAllowed),
    ] {
        assert_eq!(decide_name_internet(&open, &name(text)).unwrap_err().code(), code, "{text}");
    }
}
