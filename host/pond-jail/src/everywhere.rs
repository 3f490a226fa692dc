//! Makes every address outside loopback end at one listener, on whichever port: the internet posture's door.
//!
//! Two things, both of the job's own network namespace: a route that calls the whole of IPv4 local, and one nf_tables rule
//! that gives TCP to the listener, which sees the address that was dialled. No interface is made, no packet leaves, and
//! nothing is translated or tracked. Datagrams find nobody and are refused at once; IPv6 has no route.

use core::net::{Ipv4Addr, SocketAddrV4};

use rustix::io::Errno;
use rustix::net::netlink::NETFILTER;

use crate::netlink::{Message, ask, attribute, nested, text};

const LOOPBACK_INDEX: u32 = 1;
const TCP: u8 = 6;
const NAME: &str = "pond";

pub(crate) fn lead_to(listener: SocketAddrV4) -> Result<(), Errno> {
    ask(None, &[route()])?;
    ask(Some(NETFILTER), &rules(listener))
}

/// All of IPv4 is this machine, which speaks from its loopback address: answers to that one are left alone by the rule.
fn route() -> Message {
    const NEW_ROUTE: u16 = 24;
    const OUT_INTERFACE: u16 = 4;
    const PREFERRED_SOURCE: u16 = 7;
    // Family, two prefix lengths, service; then table, protocol, scope, type; then flags.
    let head = [2, 0, 0, 0, 255, 4, 254, 2, 0, 0, 0, 0];
    Message::creating(NEW_ROUTE, &head)
        .with(&attribute(OUT_INTERFACE, &LOOPBACK_INDEX.to_ne_bytes()))
        .with(&attribute(PREFERRED_SOURCE, &Ipv4Addr::LOCALHOST.octets()))
}

/// As nft spells it: `table ip pond { chain pond { type filter hook prerouting priority mangle; meta l4proto tcp
/// @nh,128,8 != 127 tproxy to 127.0.0.2:1 } }`. Numbers are those of the kernel's `nf_tables.h`.
fn rules(listener: SocketAddrV4) -> Vec<Message> {
    const BATCH_BEGIN: u16 = 0x10;
    const BATCH_END: u16 = 0x11;
    const NEW_TABLE: u16 = 0xA00;
    const NEW_CHAIN: u16 = 0xA03;
    const NEW_RULE: u16 = 0xA06;
    const FAMILY_IP: [u8; 4] = [2, 0, 0, 0];
    const NF_TABLES: [u8; 4] = [0, 0, 0, 10];
    const PREROUTING: u32 = 0;
    const MANGLE: i32 = -150;
    let hook = [attribute(1, &PREROUTING.to_be_bytes()), attribute(2, &MANGLE.to_be_bytes())];
    vec![
        Message::bracket(BATCH_BEGIN, &NF_TABLES),
        Message::creating(NEW_TABLE, &FAMILY_IP).with(&text(1, NAME)),
        Message::creating(NEW_CHAIN, &FAMILY_IP)
            .with(&text(1, NAME))
            .with(&text(3, NAME))
            .with(&nested(4, &hook))
            .with(&text(7, "filter")),
        Message::creating(NEW_RULE, &FAMILY_IP)
            .with(&text(1, NAME))
            .with(&text(2, NAME))
            .with(&nested(4, &expressions(listener))),
        Message::bracket(BATCH_END, &NF_TABLES),
    ]
}

/// TCP to an address that does not begin with 127 goes to the listener.
fn expressions(listener: SocketAddrV4) -> [Vec<u8>; 7] {
    const FIRST: u32 = 1;
    const SECOND: u32 = 2;
    const L4PROTO: u32 = 16;
    const EQUAL: u32 = 0;
    const UNEQUAL: u32 = 1;
    const NETWORK_HEADER: u32 = 1;
    const DESTINATION_OFFSET: u32 = 16;
    const IPV4: u32 = 2;
    let number = |kind, value: u32| attribute(kind, &value.to_be_bytes());
    let value = |kind, bytes: &[u8]| nested(kind, &[attribute(1, bytes)]);
    let compare = |how, byte: u8| expression("cmp", &[number(1, FIRST), number(2, how), value(3, &[byte])]);
    let load = |register, bytes: &[u8]| expression("immediate", &[number(1, register), value(2, bytes)]);
    let first_of_destination =
        [number(1, FIRST), number(2, NETWORK_HEADER), number(3, DESTINATION_OFFSET), number(4, 1)];
    [
        expression("meta", &[number(1, FIRST), number(2, L4PROTO)]),
        compare(EQUAL, TCP),
        expression("payload", &first_of_destination),
        compare(UNEQUAL, 127),
        load(FIRST, &listener.ip().octets()),
        load(SECOND, &listener.port().to_be_bytes()),
        expression("tproxy", &[number(1, IPV4), number(2, FIRST), number(3, SECOND)]),
    ]
}

fn expression(name: &str, attributes: &[Vec<u8>]) -> Vec<u8> {
    nested(1, &[text(1, name), nested(2, attributes)])
}
