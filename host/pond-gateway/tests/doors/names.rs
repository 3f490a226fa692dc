//! Name resolution: what the job is told, what the site's resolver is asked, and which answers are believed.

use std::io::{Read, Write};
use std::net::UdpSocket;

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use pond_wire::gateway::{Door, Event, Reach, Refused, doors};

use super::far::{self, Says, expect};
use super::gate::{CAPS, Gate, PATIENCE, hello, order};
use super::world::{NEAR, world};

/// What the job's resolver says about a name.
fn lookup(gate: &Gate, name: &str, kind: RecordType) -> (ResponseCode, Vec<String>) {
    let reply = gate.job.inside(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send_to(&query(name, kind), doors::DNS).unwrap();
        let mut packet = [0; 1500];
        let length = socket.recv(&mut packet).unwrap();
        Message::from_vec(&packet[..length]).unwrap()
    });
    read(&reply)
}

fn query(name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message.to_vec().unwrap()
}

fn read(reply: &Message) -> (ResponseCode, Vec<String>) {
    let shown = |data: &RData| data.to_string();
    (reply.metadata.response_code, reply.answers.iter().map(|record| shown(&record.data)).collect())
}

#[test]
fn c60_c69_the_job_learns_listed_names_only_and_nobody_is_asked() {
    let gate = Gate::to(&["c60.com", "*.c60.org", "c60.net:8443"]);
    let front = doors::FRONT.to_string();
    for name in ["c60.com.", "C60.Com.", "a.b.c60.org.", "c60.net."] {
        assert_eq!(
            lookup(&gate, name, RecordType::A),
            (ResponseCode::NoError, vec![front.clone()]),
            "{name}"
        );
        for kind in [RecordType::AAAA, RecordType::HTTPS, RecordType::TXT, RecordType::MX, RecordType::ANY] {
            assert_eq!(lookup(&gate, name, kind), (ResponseCode::NoError, vec![]), "{name} {kind}");
        }
    }
    for name in ["c60.org.", "evil.com.", "dGhlIGtleQ.evil.com.", "c60.com.evil.com.", "_x.c60.org.", "."] {
        for kind in [RecordType::A, RecordType::TXT] {
            assert_eq!(lookup(&gate, name, kind), (ResponseCode::NXDomain, vec![]), "{name} {kind}");
            assert_eq!(gate.refused().door, Door::DnsUdp, "{name}");
        }
    }
    assert_eq!((far::asked("c60.com"), far::asked("evil.com")), (0, 0));
}

#[test]
fn c92_what_is_no_query_is_recorded_and_a_name_without_a_port() {
    let gate = Gate::to(&["c92.com"]);
    let exchange = |packet: Vec<u8>| {
        gate.job.inside(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.send_to(&packet, doors::DNS).unwrap();
            socket.recv(&mut [0; 1500]).unwrap();
        });
        let Refused { door, target, code, .. } = gate.refused();
        (door, target, code)
    };
    let told = |target: &str, code: &str| (Door::DnsUdp, target.to_owned(), code.to_owned());
    let whole = query("c92.com.", RecordType::A);
    let mut update = whole.clone();
    update[2] |= 0x28;
    for packet in [whole[..14].to_vec(), update] {
        assert_eq!(exchange(packet), told("\"dns query\"", "request_malformed"));
    }
    assert_eq!(exchange(query("gitlab.com.", RecordType::A)), told("gitlab.com", "host_not_allowed"));
}

/// A port that is denied says nothing about the others.
#[test]
fn c60_a_deny_of_one_port_does_not_hide_the_name() {
    let reach = Reach::Allowlist { allow: vec!["p.c60.com:8443".into()], deny: vec!["p.c60.com:443".into()] };
    let gate = Gate::new(&order(reach, CAPS));
    let front = vec![doors::FRONT.to_string()];
    assert_eq!(lookup(&gate, "p.c60.com.", RecordType::A), (ResponseCode::NoError, front));
    let _server = far::host("half.org");
    let gate = Gate::new(&order(Reach::Internet { deny: vec!["half.org:443".into()] }, CAPS));
    let (code, found) = lookup(&gate, "half.org.", RecordType::A);
    assert_eq!((code, found.len()), (ResponseCode::NoError, 1));
    assert!(matches!(gate.event(), Event::Looked(looked) if looked.host == "half.org"));
    assert_eq!(gate.code("half.org:443"), "denied_by_rule");
}

#[test]
fn c92_a_message_over_tcp_that_is_longer_than_any_question_is_refused_and_told() {
    let gate = Gate::to(&["tcp.com"]);
    let mut client = gate.client(doors::DNS);
    client.write_all(&5000_u16.to_be_bytes()).unwrap();
    assert_eq!(client.read(&mut [0; 16]).unwrap(), 0);
    let refused = gate.refused();
    assert_eq!((refused.door, refused.code.as_str()), (Door::DnsTcp, "request_malformed"));
}

#[test]
fn the_responder_answers_over_tcp_too() {
    let gate = Gate::to(&["tcp.com"]);
    let mut client = gate.client(doors::DNS);
    for _ in 0..2 {
        let query = query("tcp.com.", RecordType::A);
        client.write_all(&u16::try_from(query.len()).unwrap().to_be_bytes()).unwrap();
        client.write_all(&query).unwrap();
        let mut length = [0; 2];
        client.read_exact(&mut length).unwrap();
        let mut reply = vec![0; u16::from_be_bytes(length).into()];
        client.read_exact(&mut reply).unwrap();
        let expected = (ResponseCode::NoError, vec![doors::FRONT.to_string()]);
        assert_eq!(read(&Message::from_vec(&reply).unwrap()), expected);
    }
}

#[test]
fn c52_c55_c58_c62_c63_one_bad_address_refuses_the_whole_answer() {
    let gate = Gate::to(&["*.c62.com"]);
    let public = "93.184.220.250";
    let table: &[(&str, &[&str], &str)] = &[
        ("loop.c62.com", &["127.0.0.1"], "self_address"),
        ("meta.c62.com", &["169.254.169.254"], "private_address"),
        ("azure.c62.com", &["168.63.129.16"], "private_address"),
        ("ten.c62.com", &["10.0.0.1"], "private_address"),
        ("mixed.c62.com", &[public, "10.0.0.1"], "mixed_addresses"),
        ("six.c62.com", &[public, "fd00::1"], "mixed_addresses"),
        ("nat64.c62.com", &["64:ff9b::7f00:1"], "private_address"),
        ("mapped.c62.com", &["::ffff:127.0.0.1"], "self_address"),
        ("own.c62.com", &[NEAR], "self_address"),
        ("ours.c62.com", &[public, NEAR], "self_address"),
    ];
    for (name, addresses, code) in table {
        far::addresses(name, addresses);
        assert_eq!(gate.code(&format!("{name}:443")), *code, "{name}");
    }
    // c92: which address, and the rule that would have let it through.
    far::addresses("told.c62.com", &[public, "10.0.0.1"]);
    gate.ask(b"CONNECT told.c62.com:443 HTTP/1.1\r\n\r\n");
    let told =
        std::iter::repeat_with(|| gate.refused()).find(|told| told.target == "told.c62.com:443").unwrap();
    assert_eq!((told.address, told.rule.as_deref()), (Some([10, 0, 0, 1].into()), Some("*.c62.com")));
}

#[test]
fn c57_behind_nat64_the_embedded_address_is_judged() {
    let mut order = order(super::gate::allow(&["*.c57.com"]), CAPS);
    order.nat64 = Some("2001:67c:2b0::/96".into());
    let gate = Gate::new(&order);
    for (name, inside, code) in [
        ("loop.c57.com", "127.0.0.1", "self_address"),
        ("ten.c57.com", "10.0.0.1", "private_address"),
        ("own.c57.com", NEAR, "self_address"),
    ] {
        let [a, b, c, d] = inside.parse::<std::net::Ipv4Addr>().unwrap().octets();
        far::addresses(name, &[&format!("2001:67c:2b0::{a:x}{b:02x}:{c:x}{d:02x}")]);
        assert_eq!(gate.code(&format!("{name}:443")), code, "{name}");
    }
}

#[test]
fn c64_a_name_that_flips_is_dialled_where_it_was_judged() {
    let server = far::host("unused-c64.com");
    let here = vec![server.address()];
    far::say("c64.com", Says::Flips(vec![here, vec!["10.0.0.1".parse().unwrap()]]));
    let gate = Gate::to(&["c64.com"]);
    drop(gate.tunnel("c64.com", &server));
    assert_eq!(far::asked("c64.com"), 1);
    assert!(matches!(gate.event(), Event::Closed(_)));
    // The next request asks again, and is judged by what it hears.
    assert_eq!(gate.code("c64.com:443"), "private_address");
    assert_eq!(far::asked("c64.com"), 2);
}

#[test]
fn c65_aliases_are_judged_by_where_they_end() {
    let server = far::host("cdn.c65.net");
    far::say("c65.com", Says::Alias("cdn.c65.net"));
    far::say("bad.c65.com", Says::Alias("internal.c65.net"));
    far::addresses("internal.c65.net", &["10.0.0.1"]);
    let gate = Gate::to(&["c65.com", "bad.c65.com"]);
    drop(gate.tunnel("c65.com", &server));
    assert!(matches!(gate.event(), Event::Closed(_)));
    assert_eq!(gate.code("bad.c65.com:443"), "private_address");
}

#[test]
fn c66_a_lookup_that_fails_is_502_and_never_a_permission() {
    far::say("fail.c66.com", Says::ServerFailure);
    far::say("none.c66.com", Says::Addresses(vec![]));
    let many = (0..65).map(|last| std::net::Ipv4Addr::new(93, 184, 221, last).into()).collect();
    far::say("many.c66.com", Says::Addresses(many));
    let gate = Gate::to(&["*.c66.com"]);
    for (name, code) in [
        ("gone.c66.com", "dns_failed"),
        ("fail.c66.com", "dns_failed"),
        ("none.c66.com", "dns_failed"),
        ("many.c66.com", "too_many_addresses"),
    ] {
        let request = format!("CONNECT {name}:443 HTTP/1.1\r\n\r\n");
        assert_eq!(gate.refusal(request.as_bytes()), ("502".to_owned(), code.to_owned()), "{name}");
    }
}

#[test]
fn c66_a_resolver_that_says_nothing_is_502_in_time() {
    far::say("silent.com", Says::Silence);
    let gate = Gate::to(&["silent.com"]);
    assert_eq!(gate.code("silent.com:443"), "dns_failed");
}

#[test]
fn c68_many_clients_of_one_name_ask_once() {
    let server = far::host("c68.com");
    let gate = Gate::to(&["c68.com"]);
    let mut clients: Vec<_> = (0..40).map(|_| gate.client(doors::PROXY)).collect();
    for client in &mut clients {
        client.write_all(b"CONNECT c68.com:443 HTTP/1.1\r\n\r\n").unwrap();
    }
    for client in &mut clients {
        expect(client, b"HTTP/1.1 200 Connection established\r\n\r\n");
        client.write_all(&hello("c68.com")).unwrap();
        drop(server.accept());
    }
    assert_eq!(far::asked("c68.com"), 1);
}

/// What is remembered of an address for a moment is looked at again once the connection stands.
#[test]
fn c58_an_address_the_machine_has_just_got_is_its_own() {
    let server = far::host("moved.com");
    let gate = Gate::to(&["moved.com"]);
    drop(gate.tunnel("moved.com", &server));
    assert!(matches!(gate.event(), Event::Closed(_)));
    let near = &world().near;
    near.ip(&format!("addr add {}/32 dev lo", server.address()));
    let _here = near.inside(|| std::net::TcpListener::bind((server.address(), 443)).unwrap());
    assert_eq!(gate.code("moved.com:443"), "self_address");
}

#[test]
fn in_the_internet_posture_any_public_name_is_known_and_reached() {
    let server = far::host("anything.org");
    let gate = Gate::new(&order(Reach::Internet { deny: vec!["bad.org".into()] }, CAPS));
    let (code, found) = lookup(&gate, "anything.org.", RecordType::A);
    assert_eq!((code, found.len()), (ResponseCode::NoError, 1));
    assert!(matches!(gate.event(), Event::Looked(looked) if looked.host == "anything.org"));
    drop(gate.tunnel("anything.org", &server));
    assert!(matches!(gate.event(), Event::Closed(_)));
    assert_eq!(lookup(&gate, "bad.org.", RecordType::A), (ResponseCode::NXDomain, vec![]));
    assert_eq!(gate.code("bad.org:443"), "denied_by_rule");
    assert_eq!(gate.code("anything.org:25"), "port_not_allowed");
    assert_eq!(gate.code("1.1.1.1:443"), "ip_literal");
}
