//! N: ways out. A job has a loopback of its own and nothing else, and none of pond's own channels.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use pond_wire::contained::{Kind, frame};
use pond_wire::jail::{Report, Usage};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};

use super::case::{Case, Evidence, Expect, IN_OWN_NETWORK, Probe, Room, Stage, absent, denied};
use super::kernel::{open, socket};
use super::scene::{Scene, found};

const NO_ROUTE: &[(Errno, &str)] = &[(Errno::NETUNREACH, "this host has no such route either")];

pub(super) const CASES: &[Case] = &[
    Case {
        id: "N01",
        what: "an interface, a route, a packet out",
        probes: &[
            absent("interface", |_| other_interface())
                .excused(&[(Errno::NODATA, "this host has no interface but the loopback")]),
            absent("route", |_| connect(SocketType::DGRAM, (Ipv4Addr::new(192, 0, 2, 1), 9).into()))
                .excused(NO_ROUTE),
            absent("route v6", |_| {
                connect(SocketType::DGRAM, (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9).into())
            })
            .excused(&[
                (Errno::NETUNREACH, "this host has no such route either"),
                (Errno::ADDRNOTAVAIL, "this host has no IPv6 address"),
                (Errno::AFNOSUPPORT, "this host has no IPv6"),
            ]),
            absent("multicast", |_| connect(SocketType::DGRAM, (Ipv4Addr::new(224, 0, 0, 251), 5353).into()))
                .excused(NO_ROUTE),
            absent("name server", |_| connect(SocketType::DGRAM, (Ipv4Addr::new(9, 9, 9, 9), 53).into()))
                .excused(NO_ROUTE),
            absent("metadata service", |_| {
                connect(SocketType::DGRAM, (Ipv4Addr::new(169, 254, 169, 254), 80).into())
            })
            .excused(NO_ROUTE),
            denied("ping", |_| socket(2, 2, 1))
                .excused(&[(Errno::ACCESS, "this host lets nobody ping without privilege")]),
        ],
    },
    Case {
        id: "N02",
        what: "configuring or making an interface",
        probes: &[
            absent("configure", |_| {
                let any = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
                pond_sys::net::loopback_up(&any)
            })
            .control(IN_OWN_NETWORK),
            absent("tun", |_| open("/dev/net/tun", OFlags::RDWR))
                .excused(&[(Errno::NOENT, "this host has no tun device")]),
        ],
    },
    Case {
        id: "N04",
        what: "a service on the host's loopback",
        probes: &[absent("connect", |scene| {
            connect(SocketType::STREAM, (Ipv4Addr::LOCALHOST, scene.host.port).into())
        })],
    },
    Case {
        id: "N11",
        what: "forging the report on itself",
        probes: &[Probe {
            expect: Expect::Absent,
            room: Room::Own(Stage { evidence: Evidence::Exited(0), ..Stage::PLAIN }),
            ..denied("record", forge)
        }
        .uncontrolled("there is no report to forge without a sandbox")],
    },
];

fn other_interface() -> io::Result<()> {
    let table = std::fs::read_to_string("/proc/net/dev")?;
    let names = table.lines().skip(2).filter_map(|line| line.split(':').next()).map(str::trim);
    found(names.into_iter().any(|name| name != "lo"))
}

/// Datagrams only choose a route: nothing is sent.
fn connect(kind: SocketType, address: SocketAddr) -> io::Result<()> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket(family, kind, None)?;
    Ok(rustix::net::connect(&socket, &address)?)
}

/// Writes a report of its own ending to every descriptor it could have, and to init's, as pid 1 of a container spells it.
fn forge(scene: &Scene) -> io::Result<()> {
    let lie = Report::Exited { code: 42, usage: Usage::default() }.encode();
    let framed = frame(Kind::Report, &lie).ok_or(Errno::MSGSIZE)?;
    for number in 0..1024 {
        let places = [
            (format!("/proc/self/fd/{number}"), lie.as_slice()),
            (scene.of_init(&format!("fd/{number}")), framed.as_slice()),
        ];
        for (path, lie) in places {
            if let Ok(mut file) = std::fs::File::options().write(true).open(path) {
                io::Write::write_all(&mut file, lie)?;
            }
        }
    }
    Ok(())
}
