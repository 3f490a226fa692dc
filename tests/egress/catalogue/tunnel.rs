//! Cases 70 to 91: what is sent through a tunnel or to the transparent door, and connections that take their time.

use std::net::SocketAddr;

use super::row::{Control, Door, Expect, Row, Step, at, own};
use crate::hello::Hello;
use crate::world::sides::BLACK_HOLE;
use crate::world::zone::Script;

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = refused();
    rows.extend(carried());
    rows.extend(transparent());
    rows.extend(slow());
    rows
}

fn head(name: &str) -> String {
    format!("CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\n\r\n")
}

/// A tunnel to a listed name of the row's own, with these first bytes in it.
fn through(case: u8, tag: &str, first: impl Fn(&str) -> Vec<u8>) -> Row {
    let name = own(case, tag);
    Row::tunnel(case, tag, &name, head(&name), first(&name))
}

fn refused() -> Vec<Row> {
    let name_in = |name: &[u8]| Hello { names: vec![name.to_vec()], ..Hello::to("") }.record();
    let with_nul = |name: &str| [name.as_bytes(), b"\0.evil.com"].concat();
    let sslv2 = [&[0x80, 0x2E, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10][..], &[7; 37]].concat();
    let rows = vec![
        through(70, "ssh", |_| b"SSH-2.0-OpenSSH_9.9\r\n".to_vec()),
        through(70, "smtp", |_| b"EHLO inside\r\n".to_vec()),
        through(72, "other-name", |_| Hello::to("evil.com").record()),
        through(72, "no-name", |_| Hello { names: Vec::new(), ..Hello::to("") }.record()),
        through(72, "two-names", |name| {
            Hello { names: vec![name.into(), b"evil.com".to_vec()], ..Hello::to("") }.record()
        }),
        through(72, "literal", |_| name_in(b"10.0.0.5")),
        through(72, "nul", |name| name_in(&with_nul(name))),
        through(73, "too-large", |name| Hello { padding: 17 << 10, ..Hello::to(name) }.record()),
        through(74, "other-outer-name", |_| {
            Hello { encrypted_hello: true, ..Hello::to("cloudflare-ech.com") }.record()
        }),
        through(76, "tls11", |name| {
            Hello { versions: Vec::new(), legacy_version: 0x0302, ..Hello::to(name) }.record()
        }),
        through(76, "tls11-listed", |name| {
            Hello { versions: vec![0x0302, 0x0301], ..Hello::to(name) }.record()
        }),
        through(76, "sslv2", move |_| sslv2.clone()),
    ];
    let clear_text = through(70, "http", |name| format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n").into());
    let refused = rows.into_iter().map(|row| row.expecting(Expect::TunnelRefused));
    refused.chain([clear_text.expecting(Expect::RefusedInside)]).collect()
}

fn carried() -> Vec<Row> {
    let segments = own(73, "segments");
    let slow_hello = Hello::to(&segments).record();
    let bytewise = Row::new(
        73,
        "a byte per segment",
        Door::Proxy,
        Expect::Tunnel,
        Control::Delivers(at(&segments, 443)),
    )
    .listing(&segments)
    .resolving(&segments)
    .dialling(at(&segments, 443));
    vec![
        through(72, "dotted", |name| Hello::to(&format!("{name}.")).record()).expecting(Expect::Delivered),
        through(72, "capitals", |name| Hello::to(&name.to_uppercase()).record()).expecting(Expect::Delivered),
        bytewise.send(head(&segments)).step(Step::Reply).step(Step::Bytewise(slow_hello)),
        through(73, "records", |name| Hello::to(name).records(1)).expecting(Expect::Delivered),
        through(73, "post-quantum", |name| Hello { padding: 3000, ..Hello::to(name) }.record()),
        through(74, "encrypted-hello", |name| Hello { encrypted_hello: true, ..Hello::to(name) }.record()),
        through(81, "half-closed", |name| Hello::to(name).record()).step(Step::Finish),
    ]
}

/// Clients that ignore proxy settings and connect to what the responder told them.
fn transparent() -> Vec<Row> {
    let row = |case, what: &str, name: &str, hello: Vec<u8>| {
        let door = Door::Front(at(name, 443));
        Row::new(case, what, door, Expect::Silence, Control::Delivers(at(name, 443))).send(hello)
    };
    let good = own(90, "transparent");
    let denied = own(90, "denied");
    let port = own(90, "port");
    vec![
        row(90, "a listed name", &good, Hello::to(&good).record())
            .listing(&good)
            .resolving(&good)
            .dialling(at(&good, 443))
            .expecting(Expect::Tunnel),
        row(90, "another name", &denied, Hello::to(&denied).record()),
        row(72, "no name", &own(72, "front"), Hello { names: Vec::new(), ..Hello::to("") }.record()),
        row(72, "two names", &own(72, "front2"), {
            Hello { names: vec![good.clone().into(), denied.clone().into()], ..Hello::to("") }.record()
        }),
        row(70, "clear text", &own(70, "front"), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec())
            .expecting(Expect::Refused(&[403])),
        row(70, "half a request", &own(70, "half"), b"GET / HTTP/1.1\r\nHost".to_vec()).step(Step::Finish),
        row(47, "a special name", &own(47, "front"), Hello::to("metadata.google.internal").record()),
        row(48, "an address", &own(48, "front"), Hello::to("169.254.169.254").record()),
        Row::new(
            8,
            "another port of the front",
            Door::Tcp(SocketAddr::from(([127, 0, 0, 2], 81))),
            Expect::NoRoute,
            Control::Moot("the same address means nothing outside"),
        )
        .listing(&port),
        Row::new(
            23,
            "the port of clear text",
            Door::Front(at(&own(23, "front"), 80)),
            Expect::Refused(&[403]),
            Control::Delivers(at(&own(23, "front"), 80)),
        )
        .send("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    ]
}

/// Connections that wait for somebody; nobody waits for ever.
fn slow() -> Vec<Row> {
    let (quiet, dribble, hole) = (own(71, "quiet"), own(77, "dribble"), own(78, "hole"));
    let mut dribbled =
        Row::refused(77, "dribbled head", "CONNECT ", &[408], Control::Reaches(vec![at(&dribble, 443)]))
            .listing(&dribble);
    for byte in format!("{dribble}:443 HTTP/1.1\r\n\r\n").bytes().take(9) {
        dribbled = dribbled.step(Step::Pause(1000)).send([byte]);
    }
    let dribbled = dribbled.controlled(Control::StaysOpen);
    vec![
        Row::tunnel(71, "a tunnel nobody uses", &quiet, head(&quiet), [])
            .expecting(Expect::TunnelRefused)
            .controlled(Control::StaysOpen),
        dribbled,
        Row::refused(
            78,
            "nobody answers",
            head(&hole),
            &[504],
            Control::Moot("the open proxy waits as long"),
        )
        .listing(&hole)
        .resolving(&hole)
        .scripted(&hole, Script::Addresses(vec![BLACK_HOLE.into()])),
    ]
}
