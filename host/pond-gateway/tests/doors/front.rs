//! The transparent TLS door.

use std::net::TcpListener;

use pond_wire::gateway::{Close, Door, Event, doors};

use super::far::{self, expect, send};
use super::gate::{CAPS, Gate, allow, hello, listeners, order, rest};
use super::world::Net;

const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

#[test]
fn a_client_that_knows_no_proxy_reaches_what_its_hello_names() {
    let server = far::host("plain.com");
    let gate = Gate::to(&["plain.com"]);
    let mut client = gate.client(doors::TLS);
    send(&mut client, &hello("plain.com"));
    let mut upstream = server.accept();
    expect(&mut upstream, &hello("plain.com"));
    send(&mut upstream, b"pong");
    expect(&mut client, b"pong");
    drop((client, upstream));
    let Event::Opened(approval) = gate.event() else { panic!("no record") };
    assert_eq!((approval.door, approval.host.as_str(), approval.port), (Door::Tls, "plain.com", 443));
    assert_eq!(gate.closed().close, Close::Finished);
}

#[test]
fn what_is_not_listed_ends_in_an_alert_and_no_query() {
    let gate = Gate::to(&["plain2.com"]);
    for (bytes, code) in [
        (hello("evil.com"), "host_not_allowed"),
        (hello("10.0.0.1"), "sni_mismatch"),
        (b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(), "tls_expected"),
    ] {
        let mut client = gate.client(doors::TLS);
        send(&mut client, &bytes);
        assert_eq!(rest(&mut client), ALERT, "{code}");
        assert_eq!(gate.refused().code, code);
    }
    assert_eq!(far::asked("evil.com"), 0);
}

/// What a request in clear text gets at whichever door, naming this host.
pub(crate) fn in_clear_text(host: &str) -> String {
    format!(
        "HTTP/1.1 403 pond: https only: \"{host}\" (use an https URL; clear-text requests are never forwarded)\r\n"
    )
}

#[test]
fn c70_clear_text_is_answered_in_its_own_words() {
    let gate = Gate::to(&["plain3.com"]);
    for (request, host) in [
        ("GET / HTTP/1.1\r\nHost: plain3.com\r\n\r\n", "plain3.com"),
        ("POST /x HTTP/1.1\r\nHost: plain3.com\r\nContent-Length: 6\r\n\r\nsecret", "plain3.com"),
        ("GET / HTTP/1.0\r\n\r\n", "unnamed:443"),
        ("GET http://x.com/ HTTP/1.1\r\nHost: a.com\r\nHost: b.com\r\n\r\n", "unnamed:443"),
    ] {
        let mut client = gate.client(doors::TLS);
        send(&mut client, request.as_bytes());
        let reply = String::from_utf8(rest(&mut client)).unwrap();
        assert!(reply.starts_with(&in_clear_text(host)), "{request:?}: {reply}");
        let refused = gate.refused();
        assert_eq!((refused.code.as_str(), refused.target), ("https_only", format!("\"{host}\"")));
    }
    // What only begins like a request is none.
    let mut client = gate.client(doors::TLS);
    send(&mut client, b"GET / HTTP/1.1\nHost: plain3.com\n\n");
    assert_eq!(rest(&mut client), ALERT);
    assert_eq!(gate.refused().code, "tls_expected");
}

#[test]
fn the_port_a_client_dialled_is_part_of_the_verdict() {
    let gate = Gate::start(&order(allow(&["port.com:8443", "https.com"]), CAPS), Net::new());
    let mut doors = gate.job.inside(listeners);
    let other = gate.job.inside(|| TcpListener::bind("0.0.0.0:8443").unwrap());
    doors.push((Door::Tls, other.into()));
    gate.give_doors(&doors);
    assert_eq!(gate.event(), Event::Serving);
    far::addresses("port.com", &["93.184.220.251"]);
    let server = far::Server::at("93.184.220.251:8443");
    let mut client = gate.client("127.0.0.2:8443".parse::<std::net::SocketAddr>().unwrap());
    send(&mut client, &hello("port.com"));
    expect(&mut server.accept(), &hello("port.com"));
    assert!(matches!(gate.event(), Event::Opened(_)));
    drop(client);
    assert!(matches!(gate.event(), Event::Closed(_)));
    for (door, name) in [("127.0.0.2:443", "port.com"), ("127.0.0.2:8443", "https.com")] {
        let mut client = gate.client(door.parse::<std::net::SocketAddr>().unwrap());
        send(&mut client, &hello(name));
        assert_eq!(rest(&mut client), ALERT);
        assert_eq!(gate.refused().code, "port_not_allowed");
    }
}
