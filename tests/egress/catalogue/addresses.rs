//! Cases 52 to 58: a listed name may have any address its owner likes; only public ones are dialled.

use std::net::{IpAddr, SocketAddr};

use super::row::{Control, Door, Expect, Row, Step, own};
use crate::hello::Hello;
use crate::world::sides::{HOST, HOST_V6};
use crate::world::zone::Script;

/// First and last address of every block that is not public.
const CLOSED_V4: [(&str, &str); 15] = [
    ("0.0.0.0", "0.255.255.255"),
    ("10.0.0.0", "10.255.255.255"),
    ("100.64.0.0", "100.127.255.255"),
    ("127.0.0.0", "127.255.255.255"),
    ("169.254.0.0", "169.254.255.255"),
    ("172.16.0.0", "172.31.255.255"),
    ("192.0.0.0", "192.0.0.255"),
    ("192.0.2.0", "192.0.2.255"),
    ("192.88.99.0", "192.88.99.255"),
    ("192.168.0.0", "192.168.255.255"),
    ("198.18.0.0", "198.19.255.255"),
    ("198.51.100.0", "198.51.100.255"),
    ("203.0.113.0", "203.0.113.255"),
    ("224.0.0.0", "239.255.255.255"),
    ("240.0.0.0", "255.255.255.255"),
];

/// The last public address before a closed block, or the first behind one.
const OPEN_V4: [&str; 18] = [
    "1.0.0.1",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.88.98.255",
    "192.167.255.255",
    "198.17.255.255",
    "198.20.0.0",
    "203.0.114.0",
    "223.255.255.255",
];

/// Services of clouds that hand out credentials.
const METADATA: [(u8, &str); 9] = [
    (54, "168.63.129.16"),
    (55, "100.100.100.200"),
    (55, "192.0.0.192"),
    (55, "169.254.169.254"),
    (55, "169.254.170.2"),
    (55, "169.254.170.23"),
    (55, "fd00:ec2::254"),
    (55, "fd20:ce::254"),
    (56, "fec0::1"),
];

const CLOSED_V6: [&str; 15] = [
    "::",
    "::1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:1ff:ffff::1",
    "2001:db8::1",
    "2002:a9fe:a9fe::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fe80::1",
    "ff02::1",
    "::ffff:169.254.169.254",
];

const OPEN_V6: [&str; 3] = ["2001:200::1", "2606:4700::1111", "3fff:1000::1"];

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for address in CLOSED_V4.iter().flat_map(|(first, last)| [first, last]) {
        rows.push(refused(52, address, &[403]));
    }
    rows.extend(OPEN_V4.iter().map(|address| tunnel(53, address)));
    rows.extend(METADATA.iter().map(|(case, address)| refused(*case, address, &[403])));
    rows.extend(CLOSED_V6.iter().map(|address| refused(56, address, &[403])));
    rows.extend(OPEN_V6.iter().map(|address| tunnel(56, address)));
    for address in [IpAddr::from(HOST), IpAddr::from(HOST_V6)] {
        rows.push(refused(58, &address.to_string(), &[403]).controlled(Control::Opens));
    }
    rows
}

fn name_of(case: u8, address: &str) -> String {
    own(case, &format!("-{}x", address.replace(['.', ':'], "-")))
}

/// A listed name that has just this address, and a tunnel to it.
fn row(case: u8, text: &str, expect: Expect, control: Control) -> Row {
    let (name, address) = (name_of(case, text), text.parse().unwrap());
    let head = format!("CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\n\r\n");
    Row::new(case, text, Door::Proxy, expect, control)
        .send(head)
        .listing(&name)
        .resolving(&name)
        .scripted(&name, Script::Addresses(vec![address]))
}

fn refused(case: u8, text: &str, statuses: &'static [u16]) -> Row {
    let address: IpAddr = text.parse().unwrap();
    let control = match address.to_canonical() {
        IpAddr::V4(v4) if v4.octets() == [127, 255, 255, 255] => Control::Moot("no connection goes to many"),
        // These name the machine itself.
        IpAddr::V4(v4) if v4.is_loopback() || v4.is_unspecified() => Control::Opens,
        IpAddr::V4(v4) if v4.is_multicast() || v4.is_broadcast() => {
            Control::Moot("no connection goes to many")
        }
        IpAddr::V6(v6) if v6.is_loopback() || v6.is_unspecified() => Control::Opens,
        IpAddr::V6(v6) if v6.is_multicast() || v6.is_unicast_link_local() => {
            Control::Moot("no connection goes to many, or to a link nobody names")
        }
        canonical @ (IpAddr::V4(_) | IpAddr::V6(_)) => Control::reaches_address(canonical),
    };
    row(case, text, Expect::Refused(statuses), control)
}

fn tunnel(case: u8, text: &str) -> Row {
    let address = SocketAddr::new(text.parse().unwrap(), 443);
    let hello = Hello::to(&name_of(case, text)).record();
    row(case, text, Expect::Tunnel, Control::Delivers(address))
        .step(Step::Reply)
        .send(hello)
        .dialling(address)
}
