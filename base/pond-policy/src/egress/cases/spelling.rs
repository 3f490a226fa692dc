//! How a request may spell a host and a port.

use super::{check_config, check_faults, list, to, verdict};
use crate::egress::{DestinationFault, HostName, NameFault, PortFault};

#[test]
fn cases_6_and_7_ports_are_explicit_and_plain() {
    let port = DestinationFault::Port;
    check_faults(&[
        ("h.com", port(PortFault::Missing)),
        ("h.com:", port(PortFault::Missing)),
        ("[::1]", port(PortFault::Missing)),
        ("h.com:0", port(PortFault::OutOfRange)),
        ("h.com:65536", port(PortFault::OutOfRange)),
        ("h.com:100000", port(PortFault::OutOfRange)),
        ("h.com:99999999999999999999", port(PortFault::OutOfRange)),
        ("h.com:-1", port(PortFault::NotDigits)),
        ("h.com:+443", port(PortFault::NotDigits)),
        ("h.com:443a", port(PortFault::NotDigits)),
        ("h.com:https", port(PortFault::NotDigits)),
        ("h.com: 443", port(PortFault::NotDigits)),
        ("h.com:\u{664}\u{664}\u{663}", port(PortFault::NotDigits)),
        ("h.com:0443", port(PortFault::LeadingZero)),
        ("h.com:00", port(PortFault::LeadingZero)),
    ]);
    assert_eq!(to("h.com:1").port.get(), 1);
    assert_eq!(to("h.com:65535").port.get(), 65535);
}

#[test]
fn cases_9_to_13_bytes_that_are_never_in_a_host() {
    let name = DestinationFault::Name;
    check_faults(&[
        ("http://h.com:443/", name(NameFault::Colon)),
        ("/", name(NameFault::Delimiter('/'))),
        ("*", name(NameFault::Punctuation('*'))),
        ("user:pw@h.com:443", name(NameFault::Colon)),
        ("user@h.com:443", name(NameFault::UserInfo)),
        ("allowed.com@evil.com:443", name(NameFault::UserInfo)),
        ("evil.com:443.allowed.com:443", name(NameFault::Colon)),
        ("evil.com/.allowed.com:443", name(NameFault::Delimiter('/'))),
        ("evil.com#.allowed.com:443", name(NameFault::Delimiter('#'))),
        ("evil.com?.allowed.com:443", name(NameFault::Delimiter('?'))),
        ("evil.com\\.allowed.com:443", name(NameFault::Delimiter('\\'))),
        ("evil.com\0.allowed.com:443", name(NameFault::Nul)),
        ("evil.com%00.allowed.com:443", name(NameFault::Percent)),
        ("evil.com\r.allowed.com:443", name(NameFault::Control(b'\r'))),
        ("evil.com\n.allowed.com:443", name(NameFault::Control(b'\n'))),
        ("evil.com\t.allowed.com:443", name(NameFault::Control(b'\t'))),
        ("evil.com\u{7f}.allowed.com:443", name(NameFault::Control(0x7f))),
        ("evil.com .allowed.com:443", name(NameFault::Space)),
        ("evil.com,allowed.com:443", name(NameFault::Punctuation(','))),
        ("evil\u{e9}.com:443", name(NameFault::NotAscii)),
        (":443", name(NameFault::Empty)),
        ("", name(NameFault::Empty)),
    ]);
    assert_eq!(HostName::parse(b"evil\xff.com"), Err(NameFault::NotAscii));
}

#[test]
fn cases_32_and_33_case_folds_and_one_trailing_dot_drops() {
    let list = list(&["api.acme.com"], &[]);
    assert_eq!(verdict(&list, "API.Acme.CoM:443"), "api.acme.com");
    assert_eq!(verdict(&list, "api.acme.com.:443"), "api.acme.com");
    let name = DestinationFault::Name;
    check_faults(&[
        ("h.com..:443", name(NameFault::EmptyLabel)),
        (".h.com:443", name(NameFault::EmptyLabel)),
        ("a..b:443", name(NameFault::EmptyLabel)),
        (".:443", name(NameFault::Empty)),
        ("..:443", name(NameFault::EmptyLabel)),
        ("-a.com:443", name(NameFault::HyphenAtEdge)),
        ("a-.com:443", name(NameFault::HyphenAtEdge)),
    ]);
}

#[test]
fn case_34_lengths() {
    let label = "a".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
    assert_eq!(HostName::parse(&longest).map(|name| name.to_string()), Ok(longest.clone()));
    assert_eq!(HostName::parse(format!("{longest}.")).map(|name| name.to_string()), Ok(longest.clone()));
    assert_eq!(HostName::parse(format!("{longest}a")), Err(NameFault::NameTooLong));
    assert_eq!(HostName::parse(format!("{label}a.com")), Err(NameFault::LabelTooLong));
}

#[test]
fn cases_35_and_36_nothing_is_mapped_or_decoded() {
    let name = DestinationFault::Name;
    check_faults(&[
        ("\u{ff47}ithub.com:443", name(NameFault::NotAscii)),
        ("git\u{200d}hub.com:443", name(NameFault::NotAscii)),
        ("git\u{ad}hub.com:443", name(NameFault::NotAscii)),
        ("github%2ecom:443", name(NameFault::Percent)),
    ]);
    let list = list(&["xn--bcher-kva.de", "github.com"], &[]);
    assert_eq!(verdict(&list, "xn--bcher-kva.de:443"), "xn--bcher-kva.de");
    assert_eq!(verdict(&list, "bucher.de:443"), "host_not_allowed");
    assert_eq!(verdict(&list, "xn--ithub-n3a.com:443"), "host_not_allowed");
}

#[test]
fn case_45_underscores_are_refused_everywhere() {
    check_faults(&[("_x.acme.com:443", DestinationFault::Name(NameFault::Underscore))]);
    check_config(&[("_x.acme.com", "host_invalid", None)]);
}

#[test]
fn case_51_zone_ids_and_broken_brackets() {
    let name = DestinationFault::Name;
    check_faults(&[
        ("[fe80::1%eth0]:443", name(NameFault::Percent)),
        ("[fe80::1%25eth0]:443", name(NameFault::Percent)),
        ("::1:443", name(NameFault::Colon)),
        ("[::1:443", name(NameFault::Bracket)),
        ("::1]:443", name(NameFault::Colon)),
        ("[[::1]]:443", DestinationFault::NotIpv6),
        ("[]:443", DestinationFault::NotIpv6),
        ("[1.2.3.4]:443", DestinationFault::NotIpv6),
        ("[::1]443", name(NameFault::Bracket)),
    ]);
}
