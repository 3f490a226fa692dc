//! The CONNECT door, from the head to the first byte of the tunnel.

use std::io::Write;

use pond_wire::gateway::{Approval, Close, Door, Event, Tunnel, doors};

use super::far::{self, Server, expect, send};
use super::gate::{Gate, half_close, hello, rest};
use super::world::FAR;

#[test]
fn c01_c92_a_listed_host_is_tunnelled_and_recorded() {
    far::addresses("c01.com", &[FAR[0]]);
    let server = Server::at("93.184.216.34:443");
    let gate = Gate::to(&["c01.com"]);
    let mut client = gate.connect("c01.com:443");
    let greeting = hello("c01.com");
    send(&mut client, &greeting);
    let mut upstream = server.accept();
    expect(&mut upstream, &greeting);
    send(&mut upstream, b"answer");
    expect(&mut client, b"answer");
    half_close(&client);
    expect(&mut upstream, b"");
    assert_eq!(rest(&mut upstream), b"");
    drop(upstream);
    assert_eq!(rest(&mut client), b"");
    let approval = Approval {
        job: "job-1".into(),
        door: Door::Proxy,
        tunnel: 0,
        host: "c01.com".into(),
        port: 443,
        rule: Some("c01.com".into()),
        address: FAR[0].parse().unwrap(),
    };
    assert_eq!(gate.event(), Event::Opened(approval.clone()));
    let duration_ms = 0;
    let up = u64::try_from(greeting.len()).unwrap();
    let expected = Tunnel { approval, bytes_up: up, bytes_down: 6, duration_ms, close: Close::Finished };
    assert_eq!(Tunnel { duration_ms, ..gate.closed() }, expected);
}
