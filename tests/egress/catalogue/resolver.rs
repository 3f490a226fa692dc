//! Cases 60 to 69: names as a way out, and names whose owner lies.

use std::net::{IpAddr, SocketAddr};

use super::row::{Control, Door, Expect, Row, Step, at, own};
use crate::hello::Hello;
use crate::world::dns::question;
use crate::world::sides::{HOST, RESOLVER};
use crate::world::zone::{A, AAAA, DOMAIN, Script, public};

const FRONT: [u8; 4] = [127, 0, 0, 2];
const NO_SUCH_NAME: u8 = 3;
const NO_ANSWER: Control = Control::Moot("nobody can connect to a name without addresses");
const PRIVATE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 5));

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = lies();
    rows.extend(hidden());
    rows.extend(failures());
    rows.extend(responder());
    rows.extend(no_route());
    rows
}

fn head(name: &str) -> String {
    format!("CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\n\r\n")
}

fn scripted(case: u8, tag: &str, script: Script, statuses: &'static [u16], control: Control) -> Row {
    let name = own(case, tag);
    Row::refused(case, tag, head(&name), statuses, control)
        .listing(&name)
        .resolving(&name)
        .scripted(&name, script)
}

fn tunnel(case: u8, tag: &str, script: Script, address: SocketAddr) -> Row {
    let name = own(case, tag);
    let row = Row::tunnel(case, tag, &name, head(&name), Hello::to(&name).record()).scripted(&name, script);
    Row { dials: vec![address], control: Control::Delivers(address), ..row }
}

fn lies() -> Vec<Row> {
    let far = |tag: &str| IpAddr::from(public(tag));
    let either = |address: IpAddr| {
        Control::Reaches(vec![SocketAddr::new(PRIVATE, 443), SocketAddr::new(address, 443)])
    };
    let private_v6: IpAddr = "fd00:ec2::254".parse().unwrap();
    let unlisted = own(60, "unlisted");
    let beyond = own(65, "beyond");
    let chain = |length: u8| (0..length).map(|link| own(65, &format!("link{link}"))).collect::<Vec<_>>();
    let mut long =
        scripted(65, "long", Script::Alias(own(65, "link0")), &[502], Control::reaches(&own(65, "link20")));
    // Asked for itself when the chain brings no address of a family.
    long = long.resolving(&own(65, "link20"));
    for pair in chain(21).windows(2) {
        long = long.scripted(&pair[0], Script::Alias(pair[1].clone()));
    }
    vec![
        Row::refused(60, "unlisted", head(&unlisted), &[403], Control::reaches(&unlisted)),
        scripted(62, "mixed", Script::Addresses(vec![PRIVATE, far("mixed")]), &[403], either(far("mixed"))),
        scripted(
            63,
            "families",
            Script::Addresses(vec![far("families"), private_v6]),
            &[403],
            Control::Reaches(vec![SocketAddr::new(far("families"), 443), SocketAddr::new(private_v6, 443)]),
        ),
        tunnel(
            64,
            "rebinding",
            Script::Flip(vec![far("rebinding")], vec![PRIVATE]),
            SocketAddr::new(far("rebinding"), 443),
        )
        .controlled(Control::Reaches(vec![SocketAddr::new(PRIVATE, 443)])),
        scripted(65, "inward", Script::Alias(own(65, "hidden")), &[403], Control::reaches_address(PRIVATE))
            .scripted(&own(65, "hidden"), Script::Addresses(vec![PRIVATE]))
            .resolving(&own(65, "hidden")),
        scripted(65, "loop", Script::Alias(own(65, "loop")), &[502], NO_ANSWER),
        long,
        tunnel(65, "outward", Script::Alias(beyond.clone()), at(&beyond, 443)).resolving(&beyond),
    ]
}

/// A site whose IPv6 addresses hide IPv4 ones, and says so when asked.
fn hidden() -> Vec<Row> {
    let under = |tail: &str| -> IpAddr { format!("2a00:64::{tail}").parse().unwrap() };
    let (inside, outside) = (under("10.0.0.5"), under("93.184.216.34"));
    let shown = Script::Addresses(vec![under("192.0.0.170"), under("192.0.0.171")]);
    vec![
        scripted(57, "hidden", Script::Addresses(vec![inside]), &[403], Control::reaches_address(inside))
            .scripted("ipv4only.arpa", shown),
        tunnel(57, "translated", Script::Addresses(vec![outside]), SocketAddr::new(outside, 443)),
    ]
}

fn failures() -> Vec<Row> {
    let many: Vec<IpAddr> = (1..=65).map(|last| IpAddr::from([93, 184, 216, last])).collect();
    let some: Vec<IpAddr> = many[..40].to_vec();
    let reached = |addresses: &[IpAddr]| {
        Control::Reaches(addresses.iter().map(|address| SocketAddr::new(*address, 443)).collect())
    };
    let searched = own(67, "searched");
    let hosts = own(67, "hosts");
    let stray = IpAddr::from([93, 184, 219, 1]);
    vec![
        scripted(66, "nxdomain", Script::NoSuchName, &[502], NO_ANSWER),
        scripted(66, "servfail", Script::ServerFailure, &[502], NO_ANSWER),
        scripted(66, "silent", Script::Silence, &[502, 504], NO_ANSWER),
        scripted(66, "empty", Script::Addresses(Vec::new()), &[502], NO_ANSWER),
        scripted(66, "sixty-five", Script::Addresses(many.clone()), &[502], reached(&many)),
        scripted(66, "another", Script::AboutAnother("pypi.org".to_owned(), vec![stray]), &[502], NO_ANSWER),
        tunnel(
            66,
            "too-long-for-udp",
            Script::TooLongForUdp(some[..1].to_vec()),
            SocketAddr::new(some[0], 443),
        )
        .expecting(Expect::Delivered),
        scripted(
            67,
            "searched",
            Script::NoSuchName,
            &[502],
            Control::Asks(format!("{searched}.searched.{DOMAIN}")),
        ),
        Row {
            hosts_file: vec![hosts.clone()],
            control: Control::Opens,
            ..Row::tunnel(67, "hosts file", &hosts, head(&hosts), Hello::to(&hosts).record())
        },
    ]
}

/// The responder inside: the job's only name server.
fn responder() -> Vec<Row> {
    let known = own(69, "known");
    let leak = format!("nbswy3dpeb3w64tmmqqhi2djomqgs4zamezxi4tfor2ge5lu.{DOMAIN}");
    let in_stream =
        |bytes: Vec<u8>| [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], &bytes].concat();
    let row = |what: &str, door, name: &str, kind, expect| {
        let bytes = question(name, kind);
        let bytes = if matches!(door, Door::DnsTcp) { in_stream(bytes) } else { bytes };
        let row = Row::new(60, what, door, expect, Control::Asks(name.to_owned())).send(bytes);
        if matches!(door, Door::DnsTcp) { row.step(Step::Finish) } else { row }
    };
    let mut rows = vec![
        row("a listed name", Door::DnsUdp, &known, A, Expect::Answer(0, vec![FRONT])),
        row("a listed name by stream", Door::DnsTcp, &known, A, Expect::Answer(0, vec![FRONT])),
        row("a listed name, IPv6", Door::DnsUdp, &known, AAAA, Expect::Answer(0, Vec::new())),
        row("a secret as a name", Door::DnsUdp, &leak, A, Expect::Answer(NO_SUCH_NAME, Vec::new())),
        row("a secret by stream", Door::DnsTcp, &leak, A, Expect::Answer(NO_SUCH_NAME, Vec::new())),
        row(
            "a reverse name",
            Door::DnsUdp,
            "5.0.0.10.in-addr.arpa",
            12,
            Expect::Answer(NO_SUCH_NAME, Vec::new()),
        ),
    ];
    for kind in [16, 15, 65, 255, 6, 2] {
        rows.push(row(&format!("type {kind}"), Door::DnsUdp, &known, kind, Expect::Answer(0, Vec::new())));
    }
    rows.iter_mut().for_each(|row| row.listed.push(known.clone()));
    rows
}

/// Everything that is not a door.
fn no_route() -> Vec<Row> {
    let far = SocketAddr::from(([9, 9, 9, 9], 53));
    let name = own(69, "direct");
    let reach = |address: SocketAddr| Control::Reaches(vec![address]);
    let tcp = |case, what: &str, address: SocketAddr| {
        Row::new(case, what, Door::Tcp(address), Expect::NoRoute, reach(address))
    };
    let udp = |what: &str, address: SocketAddr, control| {
        Row::new(69, what, Door::Udp(address), Expect::NoRoute, control).send(question(&name, A))
    };
    vec![
        udp("the world's name server", SocketAddr::from((RESOLVER, 53)), Control::Asks(name.clone())),
        udp("any name server", far, Control::Asks(name.clone())),
        udp("quic", SocketAddr::from(([1, 1, 1, 1], 443)), Control::Moot("the far side does not speak it")),
        udp("mdns", SocketAddr::from(([224, 0, 0, 251], 5353)), Control::Moot("nobody to answer")),
        tcp(69, "dns over tls", SocketAddr::from(([1, 1, 1, 1], 853))),
        tcp(90, "straight out", SocketAddr::from(([93, 184, 220, 1], 443))),
        tcp(90, "straight out, IPv6", "[2606:4700::9]:443".parse().unwrap()),
        tcp(90, "to the metadata service", SocketAddr::from(([169, 254, 169, 254], 80))),
        tcp(91, "to the host's own proxy", SocketAddr::from((HOST, 3128))).controlled(Control::StaysOpen),
    ]
}
