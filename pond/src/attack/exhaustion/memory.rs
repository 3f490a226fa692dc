//! E02–E07, E25, E27: memory in every form the kernel hands it out, and descriptors.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use pond_sys::attempt;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit};

use crate::attack::case::{Case, Evidence, Expect, IN_OWN_STORAGE, Probe, Room, Stage, capped, denied};
use crate::attack::scene::Scene;

const LITTLE: Stage = Stage { limits: &[("memory", "64m")], evidence: Evidence::OutOfMemory, ..Stage::PLAIN };
const WITHIN: Stage =
    Stage { limits: &[("memory", "32m")], evidence: Evidence::MemoryWithinLimit, ..Stage::PLAIN };
const MIB: usize = 1 << 20;
const MUCH: usize = 128 * MIB;
/// More than a job may have, fewer than root usually may.
const DESCRIPTORS: usize = 18_000;
const OWN_LIMIT: &[(Errno, &str)] = &[
    (Errno::MFILE, "the caller's own limit on open files is lower"),
    (Errno::AGAIN, "the caller's own limit on queued signals is lower"),
    (Errno::TOOMANYREFS, "the caller's own limit on descriptors in flight is lower"),
];

pub(super) const CASES: &[Case] = &[
    Case {
        id: "E02",
        what: "a memory bomb",
        probes: &[capped("anonymous", |_| attempt::touch_memory(MUCH), LITTLE)],
    },
    Case {
        id: "E03",
        what: "a memory file bomb",
        probes: &[capped("memfd", |_| fill_memory_file(), LITTLE)],
    },
    Case {
        id: "E04",
        what: "bytes and descriptors waiting in sockets",
        probes: &[
            capped("bytes", |_| fill_sockets(), LITTLE),
            shared("descriptors", |_| send_descriptors()).excused(OWN_LIMIT),
            shared("routing messages", |_| open_routing_sockets()).excused(OWN_LIMIT),
        ],
    },
    Case { id: "E05", what: "enlarged pipes", probes: &[capped("pipes", |_| fill_pipes(), LITTLE)] },
    Case {
        id: "E06",
        what: "a descriptor bomb",
        probes: &[shared("dup", |_| duplicate()).excused(OWN_LIMIT)],
    },
    Case {
        id: "E07",
        what: "event counters and timers",
        probes: &[
            shared("eventfd", |_| event_counters()).excused(OWN_LIMIT),
            shared("timers", |_| attempt::make_timers(8192)).excused(OWN_LIMIT),
        ],
    },
    Case {
        id: "E25",
        what: "thrashing the page cache",
        probes: &[capped("page cache", thrash, WITHIN).control(IN_OWN_STORAGE)],
    },
    Case { id: "E27", what: "names that do not exist", probes: &[capped("lookups", look_up, WITHIN)] },
];

/// Capped by a limit every sandbox has, so it needs none of its own.
const fn shared(name: &'static str, attempt: fn(&Scene) -> io::Result<()>) -> Probe {
    Probe { expect: Expect::Capped, room: Room::Shared, ..denied(name, attempt) }
}

/// What waits in each of them nobody counts, so there must be an end of them.
fn open_routing_sockets() -> io::Result<()> {
    const MANY: u32 = 700;
    let made: Result<Vec<OwnedFd>, Errno> =
        (0..MANY).map(|_| rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None)).collect();
    Ok(made.map(drop)?)
}

fn fill_memory_file() -> io::Result<()> {
    let mut file = File::from(rustix::fs::memfd_create("bomb", MemfdFlags::CLOEXEC)?);
    let piece = vec![1; MIB];
    (0..MUCH / MIB).try_for_each(|_| file.write_all(&piece))
}

/// As many descriptors as the hard limit grants.
fn raise_own_limit() -> io::Result<()> {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    Ok(rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// Writes until the other side would have to read. Returns how much fitted.
fn fill(file: &OwnedFd) -> io::Result<usize> {
    let piece = vec![1; 64 << 10];
    rustix::io::ioctl_fionbio(file, true)?;
    let mut fitted = 0;
    loop {
        match rustix::io::write(file, &piece) {
            Ok(length) => fitted += length,
            Err(Errno::AGAIN) => return Ok(fitted),
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn fill_sockets() -> io::Result<()> {
    raise_own_limit()?;
    let (mut held, mut fitted) = (Vec::new(), 0);
    while fitted < MUCH {
        let (one, other) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        fitted += fill(&one)? + fill(&other)?;
        held.push((one, other));
    }
    Ok(())
}

fn send_descriptors() -> io::Result<()> {
    let file = File::open("/dev/null")?;
    let packet = [file.as_fd(); pond_sys::socket::MAX_DESCRIPTORS];
    let (mut held, mut sent) = (Vec::new(), 0);
    while sent < DESCRIPTORS {
        let (one, other) = pond_sys::socket::pair()?;
        rustix::io::ioctl_fionbio(&one, true)?;
        loop {
            match pond_sys::socket::send(&one, &[0], &packet) {
                Ok(()) => sent += packet.len(),
                Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => break,
                Err(fault) => return Err(fault),
            }
        }
        held.push((one, other));
    }
    Ok(())
}

fn fill_pipes() -> io::Result<()> {
    let (mut held, mut fitted) = (Vec::new(), 0);
    while fitted < MUCH {
        let (read, write) = rustix::pipe::pipe()?;
        rustix::pipe::fcntl_setpipe_size(&write, MIB)?;
        fitted += fill(&write)?;
        held.push((read, write));
    }
    Ok(())
}

fn duplicate() -> io::Result<()> {
    raise_own_limit()?;
    let file = File::open("/dev/null")?;
    (0..DESCRIPTORS).map(|_| file.try_clone()).collect::<io::Result<Vec<_>>>().map(drop)
}

fn event_counters() -> io::Result<()> {
    raise_own_limit()?;
    let counters = (0..DESCRIPTORS).map(|_| eventfd(0, EventfdFlags::CLOEXEC));
    Ok(counters.collect::<Result<Vec<_>, _>>().map(drop)?)
}

/// Writes and reads back more than the limit on a disk that has room for it.
fn thrash(scene: &Scene) -> io::Result<()> {
    let path = scene.home.join("thrash");
    let piece = vec![1; MIB];
    let mut file = File::create(&path)?;
    (0..64).try_for_each(|_| file.write_all(&piece))?;
    let mut buffer = vec![0; MIB];
    let mut file = File::open(&path)?;
    while file.read(&mut buffer)? > 0 {}
    std::fs::remove_file(path)
}

fn look_up(scene: &Scene) -> io::Result<()> {
    for number in 0..200_000 {
        if std::fs::symlink_metadata(scene.home.join(format!("missing-{number}"))).is_ok() {
            return Err(Errno::EXIST.into());
        }
    }
    Ok(())
}
