//! Cases 32 to 51: how a host can be spelled. (Cases 39 to 44 and 46 are about rules; see `rules.rs`.)

use super::row::{Control, Door, Expect, Row, Step, at, own};
use crate::hello::Hello;
use crate::world::zone::DOMAIN;

const UNRESOLVABLE: Control = Control::Moot("no resolver takes such a name");

fn refused(case: u8, target: &str, statuses: &'static [u16], control: Control) -> Row {
    let head = format!("CONNECT {target} HTTP/1.1\r\n\r\n");
    Row::refused(case, target.chars().take(60).collect::<String>(), head, statuses, control)
}

fn tunnel(case: u8, name: &str, target: &str) -> Row {
    let head = format!("CONNECT {target}:443 HTTP/1.1\r\nHost: {target}:443\r\n\r\n");
    Row::tunnel(case, target, name, head, Hello::to(name).record())
}

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = spellings();
    rows.extend(wildcards());
    rows.extend(ports());
    rows.extend(special());
    rows.extend(literals());
    rows
}

fn spellings() -> Vec<Row> {
    let dotted = own(33, "dotted");
    let mut rows = vec![tunnel(33, &dotted, &format!("{dotted}."))];
    let listed = own(33, "bad");
    for target in [format!("{listed}..:443"), format!(".{listed}:443"), listed.replace('.', "..") + ":443"] {
        rows.push(refused(33, &target, &[400], UNRESOLVABLE).listing(&listed));
    }
    let long_label = format!("{}.{DOMAIN}:443", "a".repeat(64));
    let long_name = format!("{}{DOMAIN}:443", "abcdefghi.".repeat(25));
    rows.push(refused(34, &long_label, &[400], UNRESOLVABLE));
    rows.push(refused(34, &long_name, &[400], UNRESOLVABLE));
    let github = Control::reaches("github.com");
    for target in ["ｇithub.com:443", "git\u{ad}hub.com:443", "git\u{200d}hub.com:443"] {
        let control = if target.contains('\u{200d}') { UNRESOLVABLE } else { github.clone() };
        rows.push(refused(35, target, &[400], control));
    }
    rows.push(refused(36, "github%2ecom:443", &[400], github));
    let look_alike = format!("xn--gthub-cta.{DOMAIN}");
    rows.push(refused(36, &format!("{look_alike}:443"), &[403], Control::reaches(&look_alike)));
    rows
}

fn wildcards() -> Vec<Row> {
    let rule = format!("*.wild.{DOMAIN}");
    let inside = format!("a.b.wild.{DOMAIN}");
    let mut rows = vec![Row { listed: vec![rule], ..tunnel(37, &inside, &inside) }];
    for name in
        [format!("wild.{DOMAIN}"), format!("evilwild.{DOMAIN}"), format!("wild.{DOMAIN}.evil.{DOMAIN}")]
    {
        rows.push(refused(37, &format!("{name}:443"), &[403], Control::reaches(&name)));
    }
    let scoped = format!("[::ffff:1.2.3.4%x.wild.{DOMAIN}]:443");
    rows.push(refused(38, &scoped, &[400], Control::Moot("no such interface")));
    let underscore = format!("_x.{DOMAIN}");
    rows.push(refused(45, &format!("{underscore}:443"), &[400], Control::reaches(&underscore)));
    rows
}

/// A rule that names a port opens that port and no other.
fn ports() -> Vec<Row> {
    let (name, front) = (own(46, "port"), own(46, "front"));
    let rule = |name: &str| format!("{name}:8443");
    let head = format!("CONNECT {name}:8443 HTTP/1.1\r\nHost: {name}:8443\r\n\r\n");
    let far = at(&name, 8443);
    vec![
        Row::new(46, "the port of the rule", Door::Proxy, Expect::Tunnel, Control::Delivers(far))
            .send(head)
            .step(Step::Reply)
            .send(Hello::to(&name).record())
            .listing(&rule(&name))
            .resolving(&name)
            .dialling(far),
        refused(46, &format!("{name}:443"), &[403], Control::reaches(&name)).listing(&rule(&name)),
        Row::new(
            46,
            "the port of the rule, without a proxy",
            Door::Front(at(&front, 8443)),
            Expect::Tunnel,
            Control::Delivers(at(&front, 8443)),
        )
        .send(Hello::to(&front).record())
        .listing(&rule(&front))
        .resolving(&front)
        .dialling(at(&front, 8443)),
    ]
}

fn special() -> Vec<Row> {
    let mut rows = Vec::new();
    for name in
        ["metadata.google.internal", "printer.local", "hidden.onion", "x.test", "x.invalid", "x.home.arpa"]
    {
        rows.push(refused(47, &format!("{name}:443"), &[403], Control::Asks(name.to_owned())));
    }
    rows.push(refused(47, "x.localhost:443", &[403], Control::Moot("some resolvers answer it themselves")));
    rows
}

fn literals() -> Vec<Row> {
    let metadata = || Control::reaches_address([169, 254, 169, 254]);
    let mut rows = vec![
        refused(48, "1.1.1.1:443", &[403], Control::reaches_address([1, 1, 1, 1])),
        refused(
            48,
            "[2606:4700::1111]:443",
            &[403],
            Control::Reaches(vec!["[2606:4700::1111]:443".parse().unwrap()]),
        ),
        refused(49, "1.2.3:443", &[400, 403], Control::reaches_address([1, 2, 0, 3])),
        refused(49, "127.0.0.1.:443", &[400, 403], UNRESOLVABLE),
        refused(50, "[::ffff:a9fe:a9fe]:443", &[403], metadata()),
        refused(
            50,
            "[::127.0.0.1]:443",
            &[403],
            Control::Reaches(vec!["[::127.0.0.1]:443".parse().unwrap()]),
        ),
    ];
    for spelling in ["2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "169.254.43518"] {
        rows.push(refused(49, &format!("{spelling}:443"), &[400, 403], metadata()));
    }
    for spelling in ["127.1", "0x7f.1", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]"] {
        let case = if spelling.contains("::") || spelling == "0.0.0.0" { 50 } else { 49 };
        rows.push(refused(case, &format!("{spelling}:443"), &[400, 403], Control::Opens));
    }
    for spelling in ["[fe80::1%eth0]:443", "[fe80::1%25eth0]:443", "[::1:443", "[[::1]]:443", "::1:443"] {
        rows.push(refused(51, spelling, &[400], Control::Moot("no resolver takes such an address")));
    }
    rows
}

#[test]
fn names_have_addresses_of_their_own() {
    let rows = rows();
    let mut names: Vec<_> = rows.iter().flat_map(|row| row.queries.clone()).collect();
    names.sort();
    names.dedup();
    let mut addresses: Vec<_> = names.iter().map(|name| at(name, 443)).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), names.len());
}
