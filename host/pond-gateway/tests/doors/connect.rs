//! The CONNECT door, from the head to the first byte of the tunnel.

use std::io::{Read, Write};
use std::net::Shutdown;

use pond_wire::gateway::{Approval, Close, Door, Event, Refused, Tunnel, doors};

use super::far::{self, expect, send};
use super::front::in_clear_text;
use super::gate::{CAPS, Gate, allow, half_close, hello, order, rest};

const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

#[test]
fn c01_c92_a_listed_host_is_tunnelled_and_recorded() {
    let server = far::host("c01.com");
    let gate = Gate::to(&["c01.com"]);
    let mut client = gate.connect("C01.com.:443");
    let greeting = hello("c01.com");
    send(&mut client, &greeting);
    let mut upstream = server.accept();
    expect(&mut upstream, &greeting);
    send(&mut upstream, b"answer");
    expect(&mut client, b"answer");
    half_close(&client);
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
        address: server.address(),
    };
    assert_eq!(gate.event(), Event::Opened(approval.clone()));
    let duration_ms = 0;
    let up = u64::try_from(greeting.len()).unwrap();
    let expected = Tunnel { approval, bytes_up: up, bytes_down: 6, duration_ms, close: Close::Finished };
    assert_eq!(Tunnel { duration_ms, ..gate.closed() }, expected);
}

#[test]
fn c02_c03_heads_of_old_clients_are_accepted() {
    let server = far::host("c02.com");
    let gate = Gate::to(&["c02.com"]);
    for head in [
        "CONNECT c02.com:443 HTTP/1.0\r\n\r\n",
        "CONNECT c02.com:443 HTTP/1.1\r\nHost: c02.com\r\n\r\n",
        "CONNECT c02.com:443 HTTP/1.1\r\nHost: C02.com.:443\r\nExpect: 100-continue\r\n\r\n",
        "CONNECT c02.com:443 HTTP/1.1\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\nConnection: Upgrade\r\n\r\n",
        "CONNECT c02.com:443 HTTP/1.1\r\nX-Unix-Socket: /run/docker.sock\r\nForwarded: for=1\r\nVia: x\r\n\r\n",
        "CONNECT c02.com:443 HTTP/1.1\r\nProxy-Authorization: Basic c2VjcmV0\r\n\r\n",
    ] {
        let mut client = gate.client(doors::PROXY);
        send(&mut client, head.as_bytes());
        expect(&mut client, b"HTTP/1.1 200 Connection established\r\n\r\n");
        send(&mut client, &hello("c02.com"));
        let mut upstream = server.accept();
        // What the far side sees starts with the hello: no header of the head leaves.
        expect(&mut upstream, &hello("c02.com"));
    }
}

#[test]
fn c04_to_c18_malformed_requests_are_refused_before_any_verdict() {
    let gate = Gate::to(&["c04.com"]);
    let table: &[(&str, &str, &str)] = &[
        ("CONNECT c04.com:443 HTTP/1.1\r\nHost: evil.com\r\n\r\n", "400", "request_malformed"),
        (
            "CONNECT c04.com:443 HTTP/1.1\r\nHost: c04.com\r\nHost: c04.com\r\n\r\n",
            "400",
            "request_malformed",
        ),
        ("CONNECT c04.com HTTP/1.1\r\n\r\n", "400", "host_malformed"),
        ("CONNECT c04.com:0443 HTTP/1.1\r\n\r\n", "400", "host_malformed"),
        ("CONNECT c04.com:65536 HTTP/1.1\r\n\r\n", "400", "host_malformed"),
        ("CONNECT http://c04.com:443/ HTTP/1.1\r\n\r\n", "400", "host_malformed"),
        ("CONNECT / HTTP/1.1\r\n\r\n", "400", "host_malformed"),
        ("CONNECT * HTTP/1.1\r\n\r\n", "400", "host_malformed"),
        ("CONNECT user:pw@c04.com:443 HTTP/1.1\r\n\r\n", "400", "host_malformed"),
        ("CONNECT evil.com:443.c04.com:443 HTTP/1.1\r\n\r\n", "400", "host_malformed"),
        ("CONNECT evil.com%00.c04.com:443 HTTP/1.1\r\n\r\n", "400", "host_malformed"),
        ("CONNECT c04.com\u{0}:443 HTTP/1.1\r\n\r\n", "400", "request_malformed"),
        ("CONNECT \u{ff47}ithub.com:443 HTTP/1.1\r\n\r\n", "400", "request_malformed"),
        ("CONNECT c04.com:443 HTTP/1.1\nHost: c04.com\n\n", "400", "request_malformed"),
        ("CONNECT c04.com:443 HTTP/1.1\r\nA: b\r\n c\r\n\r\n", "400", "request_malformed"),
        ("CONNECT c04.com:443 HTTP/1.1\r\nHost : c04.com\r\n\r\n", "400", "request_malformed"),
        ("CONNECT c04.com:443 HTTP/1.1\r\nnothing\r\n\r\n", "400", "request_malformed"),
        ("connect c04.com:443 HTTP/1.1\r\n\r\n", "405", "method_not_allowed"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400", "request_malformed"),
        ("CONNECT c04.com:443 HTTP/3.0\r\n\r\n", "505", "version_unsupported"),
        ("CONNECT c04.com:443\r\n\r\n", "400", "request_malformed"),
        ("\u{5}\u{1}\u{0}", "400", "request_malformed"),
        ("\u{16}\u{3}\u{1}", "400", "request_malformed"),
        ("PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n", "400", "request_malformed"),
        ("CONNECT c04.com:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "400", "request_malformed"),
        ("CONNECT c04.com:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "400", "request_malformed"),
    ];
    for (request, status, code) in table {
        let refusal = gate.refusal(request.as_bytes());
        assert_eq!(refusal, ((*status).to_owned(), (*code).to_owned()), "{request:?}");
        assert_eq!(gate.refused().code, *code, "{request:?}");
    }
    assert_eq!(far::asked("c04.com"), 0);
}

#[test]
fn c15_heads_over_the_limits_are_431() {
    let gate = Gate::to(&["c15.com"]);
    let long_line = format!("CONNECT {}:443 HTTP/1.1\r\n\r\n", "a".repeat(9 << 10));
    let many = format!("CONNECT c15.com:443 HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(101));
    let long_head = format!("CONNECT c15.com:443 HTTP/1.1\r\nA: {}\r\n\r\n", "b".repeat(64 << 10));
    for request in [long_line, many, long_head] {
        let refusal = gate.refusal(request.as_bytes());
        assert_eq!(refusal, ("431".to_owned(), "head_too_large".to_owned()));
    }
}

#[test]
fn c08_c19_c23_to_c29_policy_is_403_once_with_the_reason_in_the_status_line() {
    let gate = Gate::to(&["c19.com"]);
    let table: &[(&str, &str)] = &[
        ("CONNECT c19.com:22 HTTP/1.1\r\n\r\n", "port_not_allowed"),
        ("CONNECT evil.com:443 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", "host_not_allowed"),
        ("CONNECT evil.com:443 HTTP/1.1\r\n\r\nCONNECT c19.com:443 HTTP/1.1\r\n\r\n", "host_not_allowed"),
        ("CONNECT 1.1.1.1:443 HTTP/1.1\r\n\r\n", "ip_literal"),
        ("CONNECT 2852039166:443 HTTP/1.1\r\n\r\n", "ip_literal"),
        ("CONNECT [2606:4700::1]:443 HTTP/1.1\r\n\r\n", "ip_literal"),
        ("CONNECT metadata.internal:443 HTTP/1.1\r\n\r\n", "special_name"),
        ("CONNECT 127.0.0.1:8377 HTTP/1.1\r\n\r\n", "self_address"),
        ("CONNECT localhost:3128 HTTP/1.1\r\n\r\n", "self_address"),
        ("GET http://c19.com/secret?q=1 HTTP/1.1\r\nHost: c19.com\r\n\r\n", "https_only"),
        ("POST https://c19.com/secret HTTP/1.1\r\nContent-Length: 6\r\n\r\nsecret", "https_only"),
        ("GET http://127.0.0.1:3128/ HTTP/1.1\r\n\r\n", "self_address"),
        ("GET / HTTP/1.1\r\n\r\n", "https_only"),
        ("GET /metrics HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", "https_only"),
        ("OPTIONS * HTTP/1.1\r\n\r\n", "https_only"),
        ("TRACE / HTTP/1.1\r\n\r\n", "https_only"),
    ];
    for (request, code) in table {
        let reply = gate.ask(request.as_bytes());
        let line = reply.lines().next().unwrap_or_default();
        assert!(line.starts_with("HTTP/1.1 403 pond: "), "{request:?}: {reply}");
        assert_eq!(reply.matches("HTTP/1.1 ").count(), 1, "{request:?}: {reply}");
        assert!(reply.contains(&format!("X-Pond-Denied: {code}\r\n")), "{request:?}: {reply}");
        let refused = gate.refused();
        assert_eq!(refused.code, *code, "{request:?}");
        let told = serde_json::to_string(&refused).unwrap();
        assert!(!told.contains("secret"), "c24: {told}");
    }
    assert_eq!((far::asked("c19.com"), far::asked("evil.com")), (0, 0));
}

#[test]
fn a_refusal_says_what_would_help() {
    let gate = Gate::to(&["c19b.com"]);
    let reply = gate.ask(b"CONNECT other.example.org:443 HTTP/1.1\r\n\r\n");
    let line = "HTTP/1.1 403 pond: host not allowed: other.example.org:443 (--allow-host other.example.org)";
    assert_eq!(reply.lines().next(), Some(line));
    let expected = Refused {
        job: "job-1".into(),
        door: Door::Proxy,
        target: "other.example.org:443".into(),
        code: "host_not_allowed".into(),
        rule: None,
        address: None,
        hint: "--allow-host other.example.org".into(),
    };
    assert_eq!(gate.refused(), expected);
}

#[test]
fn c20_bytes_sent_with_the_head_arrive_first_and_intact() {
    let server = far::host("c20.com");
    let gate = Gate::to(&["c20.com"]);
    let mut client = gate.client(doors::PROXY);
    let mut early = b"CONNECT c20.com:443 HTTP/1.1\r\n\r\n".to_vec();
    let mut expected = hello("c20.com");
    expected.extend(b"and more");
    early.extend(&expected);
    send(&mut client, &early);
    expect(&mut client, b"HTTP/1.1 200 Connection established\r\n\r\n");
    let mut upstream = server.accept();
    expect(&mut upstream, &expected);
}

#[test]
fn c21_a_client_that_leaves_before_the_verdict_causes_no_dial() {
    let server = far::host("c21.com");
    let gate = Gate::to(&["c21.com"]);
    let mut client = gate.client(doors::PROXY);
    send(&mut client, b"CONNECT c21.com:443 HTTP/1.1\r\n\r");
    // The head's last byte and the end of the client arrive together.
    rustix::net::sockopt::set_tcp_cork(&client, true).unwrap();
    send(&mut client, b"\n");
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut client), b"");
    assert!(!server.was_reached());
    // Its name may have been looked up, so it is in the record.
    assert!(matches!(gate.event(), Event::Refused(refused) if refused.code == "client_left"));
    // The slot is free and the gateway well.
    drop(gate.tunnel("c21.com", &server));
}

#[test]
fn c22_a_reset_while_dialling_frees_the_slot() {
    far::addresses("c22.com", &[super::world::BLACK_HOLE]);
    let server = far::host("c22b.com");
    let caps = pond_wire::gateway::Caps { tunnels: 1, ..CAPS };
    let gate = Gate::new(&order(allow(&["c22.com", "c22b.com"]), caps));
    let mut client = gate.client(doors::PROXY);
    send(&mut client, b"CONNECT c22.com:443 HTTP/1.1\r\n\r\n");
    while gate.code("c22b.com:443") != "too_many_tunnels" {
        std::thread::yield_now();
    }
    rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO)).unwrap();
    drop(client);
    let mut reply = String::new();
    while !reply.starts_with("HTTP/1.1 200") {
        let mut again = gate.client(doors::PROXY);
        send(&mut again, b"CONNECT c22b.com:443 HTTP/1.1\r\n\r\n");
        let mut part = [0; 64];
        let count = again.read(&mut part).unwrap();
        reply = String::from_utf8_lossy(&part[..count]).into_owned();
    }
    drop(server.accept());
}

#[test]
fn c70_c71_c72_c74_c76_only_a_hello_for_the_authorised_name_passes() {
    let server = far::host("c72.com");
    let gate = Gate::to(&["c72.com"]);
    let mut ssl2 = vec![0x80, 0x2e, 1, 0, 2];
    ssl2.extend([0; 40]);
    let mut old = hello("c72.com");
    let position = old.windows(2).rposition(|pair| pair == [3, 4]).unwrap();
    old[position + 1] = 2;
    let table: Vec<(Vec<u8>, &str)> = vec![
        (b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(), "tls_expected"),
        (ssl2, "tls_expected"),
        (old, "tls_too_old"),
        (hello("evil.com"), "sni_mismatch"),
        (hello("cloudflare-ech.com"), "sni_mismatch"),
        (hello("1.2.3.4"), "sni_mismatch"),
        (hello("c72.com\0.evil.com"), "sni_mismatch"),
        (hello(""), "sni_mismatch"),
    ];
    for (bytes, code) in table {
        let mut client = gate.connect("c72.com:443");
        send(&mut client, &bytes);
        assert_eq!(rest(&mut client), ALERT, "{code}");
        let mut upstream = server.accept();
        assert_eq!(rest(&mut upstream), b"", "{code}");
        assert!(matches!(gate.event(), Event::Opened(_)));
        assert_eq!(gate.refused().code, code);
        assert_eq!(gate.closed().close, Close::Refused);
    }
    let mut client = gate.connect("c72.com:443");
    send(&mut client, b"GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n");
    let reply = String::from_utf8(rest(&mut client)).unwrap();
    assert!(reply.starts_with(&in_clear_text("evil.com")), "{reply}");
    assert_eq!(rest(&mut server.accept()), b"");
    assert!(matches!(gate.event(), Event::Opened(_)));
    assert_eq!(gate.refused().code, "https_only");
    assert_eq!(gate.closed().close, Close::Refused);
    // A capital letter and a trailing dot are the same name.
    let mut client = gate.connect("c72.com:443");
    send(&mut client, &hello("C72.COM."));
    expect(&mut server.accept(), &hello("C72.COM."));
}

#[test]
fn c73_a_hello_in_records_of_one_byte_passes_unchanged() {
    let server = far::host("c73.com");
    let gate = Gate::to(&["c73.com"]);
    let mut client = gate.connect("c73.com:443");
    let cut: Vec<u8> = hello("c73.com")[5..].iter().flat_map(|byte| [22, 3, 1, 0, 1, *byte]).collect();
    client.set_nodelay(true).unwrap();
    for part in cut.chunks(7) {
        client.write_all(part).unwrap();
    }
    expect(&mut server.accept(), &cut);
}
