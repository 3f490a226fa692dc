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
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "tls_expected"),
    ] {
        let mut client = gate.client(doors::TLS);
        send(&mut client, &bytes);
        assert_eq!(rest(&mut client), ALERT, "{code}");
        assert_eq!(gate.refused().code, code);
    }
    assert_eq!(far::asked("evil.com"), 0);
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
