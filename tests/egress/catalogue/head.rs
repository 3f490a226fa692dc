//! Cases 1 to 31: the head of a request to the proxy.

use super::row::{Control, Door, Expect, Row, Step, at, own};
use crate::hello::Hello;
use crate::world::zone::{Script, public};

const NO_TARGET: Control = Control::Moot("names nothing that could be reached");

/// A plain request for a listed name of this case.
fn connect(name: &str) -> String {
    format!("CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\n\r\n")
}

/// A head that is refused although its name is listed; without the control it opens a tunnel.
fn bad(case: u8, tag: &str, head: impl Fn(&str) -> String) -> Row {
    let name = own(case, tag);
    Row::refused(case, tag, head(&name), &[400], Control::reaches(&name)).listing(&name)
}

fn good(case: u8, tag: &str, head: impl Fn(&str) -> String) -> Row {
    let name = own(case, tag);
    Row::tunnel(case, tag, &name, head(&name), Hello::to(&name).record())
}

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = accepted();
    rows.extend(targets());
    rows.extend(ports());
    rows.extend(syntax());
    rows.extend(sizes_and_versions());
    rows.extend(other_protocols());
    rows.extend(pipelined());
    rows.extend(other_methods());
    rows
}

fn accepted() -> Vec<Row> {
    let upper = own(32, "upper");
    vec![
        good(1, "plain", connect),
        good(2, "without-host", |name| format!("CONNECT {name}:443 HTTP/1.0\r\n\r\n")),
        good(3, "host-without-port", |name| format!("CONNECT {name}:443 HTTP/1.1\r\nHost: {name}\r\n\r\n")),
        good(29, "routing-headers", |name| {
            format!(
                "CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\nX-Upstream-Https-Proxy: http://10.0.0.5:3128\r\n\
                 X-Unix-Socket: /var/run/docker.sock\r\nForwarded: for=10.0.0.5\r\nX-Forwarded-Host: evil.com\r\nVia: 1.1 x\r\n\r\n"
            )
        }),
        good(30, "password", |name| {
            format!("CONNECT {name}:443 HTTP/1.1\r\nProxy-Authorization: Basic d3Jvbmc6d3Jvbmc=\r\n\r\n")
        }),
        good(31, "expect", |name| {
            format!("CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\nExpect: 100-continue\r\n\r\n")
        }),
        Row::tunnel(32, "upper case", &upper, connect(&upper.to_uppercase()), Hello::to(&upper).record()),
    ]
}

fn targets() -> Vec<Row> {
    let evil = own(10, "evil");
    let mut rows = vec![
        bad(4, "other-host", |name| format!("CONNECT {name}:443 HTTP/1.1\r\nHost: pypi.org:443\r\n\r\n")),
        bad(5, "two-hosts", |name| {
            format!("CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\nHost: pypi.org:443\r\n\r\n")
        }),
        bad(5, "same-host-twice", |name| {
            format!("CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\nHost: {name}:443\r\n\r\n")
        }),
        bad(6, "no-port", |name| format!("CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\n")),
        bad(9, "absolute", |name| format!("CONNECT http://{name}:443/ HTTP/1.1\r\nHost: {name}:443\r\n\r\n")),
        Row::refused(9, "slash", "CONNECT / HTTP/1.1\r\n\r\n", &[400], NO_TARGET),
        Row::refused(9, "star", "CONNECT * HTTP/1.1\r\n\r\n", &[400], NO_TARGET),
        bad(10, "credentials", |name| format!("CONNECT user:pw@{name}:443 HTTP/1.1\r\n\r\n")),
        Row::refused(
            10,
            "name as credentials",
            format!("CONNECT pypi.org@{evil}:443 HTTP/1.1\r\n\r\n"),
            &[400],
            Control::reaches(&evil),
        ),
    ];
    for (number, mark) in [":443.", "/.", "#.", "?.", "\\."].into_iter().enumerate() {
        let evil = own(11, &format!("evil{number}"));
        let head = format!("CONNECT {evil}{mark}pypi.org:443 HTTP/1.1\r\n\r\n");
        rows.push(Row::refused(11, format!("cut at {mark:?}"), head, &[400], Control::reaches(&evil)));
    }
    for (number, mark) in ["\0", "%00"].into_iter().enumerate() {
        let evil = own(12, &format!("evil{number}"));
        let head = format!("CONNECT {evil}{mark}.pypi.org:443 HTTP/1.1\r\n\r\n");
        rows.push(Row::refused(12, format!("cut at {mark:?}"), head, &[400], Control::reaches(&evil)));
    }
    for (number, mark) in ["\r", "\n", "\t", " ", "\x7f", "\x1b"].into_iter().enumerate() {
        rows.push(bad(13, &format!("byte{number}"), |name| {
            let (first, rest) = name.split_at(3);
            format!("CONNECT {first}{mark}{rest}:443 HTTP/1.1\r\n\r\n")
        }));
    }
    let beyond_ascii = b"CONNECT pypi\xff.org:443 HTTP/1.1\r\n\r\n";
    rows.push(Row::refused(13, "not ASCII", beyond_ascii, &[400], Control::Moot("no resolver takes it")));
    rows
}

fn ports() -> Vec<Row> {
    let mut rows = Vec::new();
    for port in ["0443", "+443", "https", "000443"] {
        rows.push(bad(7, &format!("port-{}", port.trim_start_matches('+')), |name| {
            format!("CONNECT {name}:{port} HTTP/1.1\r\n\r\n")
        }));
    }
    for port in ["0", "65536", "-1", "443a", "", "4430000"] {
        let name = own(7, "none");
        let head = format!("CONNECT {name}:{port} HTTP/1.1\r\n\r\n");
        let control = Control::Moot("no such port");
        rows.push(Row::refused(7, format!("port {port:?}"), head, &[400], control).listing(&name));
    }
    for port in [22, 25, 80, 8443] {
        let name = own(8, &format!("port{port}"));
        let head = format!("CONNECT {name}:{port} HTTP/1.1\r\n\r\n");
        let control = Control::Reaches(vec![at(&name, port)]);
        rows.push(Row::refused(8, format!("port {port}"), head, &[403], control).listing(&name));
    }
    rows
}

fn syntax() -> Vec<Row> {
    let with =
        |line: &'static str| move |name: &str| format!("CONNECT {name}:443 HTTP/1.1\r\n{line}\r\n\r\n");
    vec![
        bad(14, "bare-lf", |name| format!("CONNECT {name}:443 HTTP/1.1\nHost: {name}:443\n\n")),
        bad(14, "folded", with("A: b\r\n c")),
        bad(14, "space-before-colon", with("A : b")),
        bad(14, "no-colon", with("no colon")),
        bad(14, "no-name", with(": b")),
        bad(18, "length", with("Content-Length: 5\r\n\r\nhello")),
        bad(18, "chunked", with("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0")),
    ]
}

fn sizes_and_versions() -> Vec<Row> {
    let large = |tag: &str, head: &dyn Fn(&str) -> String| {
        let name = own(15, tag);
        Row::refused(15, tag, head(&name), &[431], Control::reaches(&name)).listing(&name)
    };
    let version = |tag: &str, statuses, head: &dyn Fn(&str) -> String| {
        let name = own(16, tag);
        Row::refused(16, tag, head(&name), statuses, Control::reaches(&name)).listing(&name)
    };
    let long_name = format!("CONNECT {}:443 HTTP/1.1\r\n\r\n", "a".repeat(9000));
    vec![
        Row::refused(15, "request line", long_name, &[431], Control::Moot("no name is that long")),
        large("head", &|name| {
            let lines = format!("X: {}\r\n", "x".repeat(7000)).repeat(10);
            format!("CONNECT {name}:443 HTTP/1.1\r\n{lines}\r\n")
        }),
        large("fields", &|name| format!("CONNECT {name}:443 HTTP/1.1\r\n{}\r\n", "X: x\r\n".repeat(101))),
        version("lower", &[400, 405], &|name| format!("connect {name}:443 HTTP/1.1\r\n\r\n")),
        version("mixed", &[400, 405], &|name| format!("Connect {name}:443 HTTP/1.1\r\n\r\n")),
        version("none", &[400, 505], &|name| format!("CONNECT {name}:443\r\n\r\n")),
        version("three", &[400, 505], &|name| format!("CONNECT {name}:443 HTTP/3.0\r\n\r\n")),
        Row::refused(16, "h2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[400, 505], NO_TARGET),
    ]
}

fn other_protocols() -> Vec<Row> {
    let not_http = Control::Moot("another protocol, which this control does not speak");
    let row = |what: &str, bytes: Vec<u8>, control| {
        Row::new(17, what, Door::Proxy, Expect::NotServed, control).send(bytes).step(Step::Finish)
    };
    let name = own(17, "proxy-line");
    vec![
        row("socks 5", vec![5, 1, 0], not_http.clone()),
        row("socks 4", [&[4, 1, 1, 187][..], &[1, 1, 1, 1, 0]].concat(), not_http.clone()),
        row("tls", Hello::to("pypi.org").record(), not_http),
        row(
            "proxy line",
            format!("PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n{}", connect(&name)).into(),
            Control::reaches(&name),
        )
        .listing(&name),
    ]
}

fn pipelined() -> Vec<Row> {
    let (listed, denied) = (own(19, "listed"), own(19, "denied"));
    let early = own(20, "early");
    let late = own(21, "late");
    let both = [connect(&early).into_bytes(), Hello::to(&early).record()].concat();
    let script = Script::Late(1500, vec![public(&late).into()]);
    vec![
        Row::refused(
            19,
            "a second request behind a refused one",
            connect(&denied) + &connect(&listed),
            &[403],
            Control::reaches(&denied),
        )
        .listing(&listed),
        Row::refused(
            19,
            "a page behind a refused request",
            connect(&own(19, "denied2")) + "GET / HTTP/1.1\r\n\r\n",
            &[403],
            Control::reaches(&own(19, "denied2")),
        ),
        Row::new(
            20,
            "hello in the same segment",
            Door::Proxy,
            Expect::Tunnel,
            Control::Delivers(at(&early, 443)),
        )
        .send(both)
        .listing(&early)
        .resolving(&early)
        .dialling(at(&early, 443)),
        Row::new(21, "gone before the verdict", Door::Proxy, Expect::Silence, Control::reaches(&late))
            .send(connect(&late))
            .step(Step::Pause(300))
            .step(Step::Finish)
            .listing(&late)
            .resolving(&late)
            .scripted(&late, script),
    ]
}

fn other_methods() -> Vec<Row> {
    const NOTHING_SERVED: Control = Control::Moot("the open proxy serves no page either");
    let (clear, secret) = (own(23, "clear"), own(24, "secret"));
    let body = "POST https://{}/ HTTP/1.1\r\nAuthorization: Bearer planted-secret\r\nContent-Length: 14\r\n\r\nplanted-secret";
    let mut rows = vec![
        Row::refused(
            23,
            "absolute form",
            format!("GET http://{clear}/ HTTP/1.1\r\nHost: {clear}\r\n\r\n"),
            &[403],
            Control::Reaches(vec![at(&clear, 80)]),
        )
        .listing(&clear),
        Row::refused(24, "absolute https", body.replace("{}", &secret), &[403], Control::reaches(&secret))
            .listing(&secret),
    ];
    for target in ["/", "/metrics", "/healthz", "/v1/messages"] {
        rows.push(Row::refused(25, target, format!("GET {target} HTTP/1.1\r\n\r\n"), &[403], NOTHING_SERVED));
    }
    for target in ["127.0.0.1:3128", "127.0.0.1:8377", "localhost:8377", "[::1]:3128"] {
        let head = format!("CONNECT {target} HTTP/1.1\r\n\r\n");
        rows.push(Row::refused(26, format!("the proxy by {target}"), head, &[403], Control::Opens));
    }
    let own_page = "GET http://127.0.0.1:3128/ HTTP/1.1\r\n\r\n";
    rows.push(Row::refused(26, "a page of the proxy", own_page, &[403], NOTHING_SERVED));
    for head in ["OPTIONS * HTTP/1.1\r\n\r\n", "TRACE / HTTP/1.1\r\n\r\n", "PUT /x HTTP/1.1\r\n\r\n"] {
        rows.push(Row::refused(27, head.trim(), head, &[403, 405], NOTHING_SERVED));
    }
    for upgrade in ["h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__", "websocket\r\nSec-WebSocket-Version: 13"] {
        let head = format!("GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: {upgrade}\r\n\r\n");
        rows.push(Row::refused(28, "upgrade", head, &[400, 403], NOTHING_SERVED));
    }
    rows
}
