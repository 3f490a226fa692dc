//! K07–K08, K13–K19, K25–K26, K39, K42: kernel interfaces, socket families, terminals, logs, memory, the clock, the machine.

use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use pond_sys::attempt;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, SocketAddrUnix, SocketType};
use rustix::pty::OpenptFlags;
use rustix::thread::CapabilitySet;

use crate::attack::case::{Case, Probe, absent, denied};
use crate::attack::scene::{found, got};
use crate::attack::shown::SOCKET;

const NO_FAMILY: &[(Errno, &str)] = &[
    (Errno::AFNOSUPPORT, "this kernel has no such socket family"),
    (Errno::PROTONOSUPPORT, "this kernel has no such protocol"),
    (Errno::SOCKTNOSUPPORT, "this kernel has no such socket type"),
];

pub(super) const CASES: &[Case] = &[
    Case {
        id: "K07",
        what: "program the kernel",
        probes: &[
            denied("bpf", |_| attempt::bpf_map()),
            denied("perf", |_| attempt::perf_event())
                .excused(&[(Errno::NOENT, "this kernel offers no software events")]),
            denied("userfaultfd", |_| attempt::userfault()),
            denied("io_uring", |_| attempt::io_uring())
                .excused(&[(Errno::PERM, "io_uring is switched off on this host")]),
            denied("kernel aio", |_| attempt::kernel_aio())
                .excused(&[(Errno::AGAIN, "somebody holds every request that this host has")]),
            denied("socket filter", |_| attempt::socket_program(stream()?.as_fd())),
            denied("upper protocol", |_| attempt::upper_protocol(stream()?.as_fd())),
            denied("segment keys", |_| attempt::segment_key(stream()?.as_fd()))
                .excused(&[(Errno::NOPROTOOPT, "this kernel signs no segments")]),
            denied("flow label", |_| attempt::flow_label(datagrams()?.as_fd())).excused(&[
                (Errno::AFNOSUPPORT, "this kernel speaks no IPv6"),
                (Errno::NOBUFS, "somebody holds every label that this host has"),
            ]),
        ],
    },
    Case {
        id: "K08",
        what: "use keyrings",
        probes: &[
            denied("add_key", |_| attempt::key_add()),
            denied("keyctl", |_| attempt::key_session()),
            denied("request_key", |_| attempt::key_request()),
            absent("/proc/keys", |_| read_some("/proc/keys"))
                .excused(&[(Errno::NOENT, "this kernel has no keyrings")]),
        ],
    },
    Case {
        id: "K13",
        what: "open a socket of a family or protocol that reaches further than local and internet ones",
        probes: &[
            denied("netlink uevent", |_| socket(16, 3, 15)),
            denied("netlink netfilter", |_| socket(16, 3, 12)).excused(NO_FAMILY),
            denied("netlink generic", |_| socket(16, 3, 16)).excused(NO_FAMILY),
            denied("netlink audit", |_| socket(16, 3, 9)).excused(NO_FAMILY),
            denied("packet", |_| socket(17, 3, 0)).excused(NO_FAMILY),
            denied("vsock", |_| socket(40, 1, 0)).excused(NO_FAMILY),
            denied("alg", |_| socket(38, 5, 0)).excused(NO_FAMILY),
            denied("bluetooth", |_| socket(31, 3, 1)).excused(NO_FAMILY),
            denied("xdp", |_| socket(44, 3, 0)).excused(NO_FAMILY),
            denied("rds", |_| socket(21, 5, 0)).excused(NO_FAMILY),
            denied("raw", |_| socket(2, 3, 1)),
            denied("raw v6", |_| socket(10, 3, 58)).excused(NO_FAMILY),
            denied("sctp", |_| socket(2, 1, 132)).excused(NO_FAMILY),
            denied("mptcp", |_| socket(2, 1, 262)).excused(NO_FAMILY),
            denied("32-bit", |_| attempt::socket_as_i386()),
            denied("x32", |_| attempt::socket_as_x32()),
        ],
    },
    Case {
        id: "K14",
        what: "reach an abstract socket of the host",
        probes: &[absent("connect", |scene| {
            connect(&SocketAddrUnix::new_abstract_name(scene.host.abstract_name.as_bytes())?)
        })],
    },
    Case {
        id: "K15",
        what: "reach a socket file of the host",
        probes: &[
            absent("canary", |scene| connect(&SocketAddrUnix::new(&scene.host.socket)?)),
            absent("in a shown directory", |scene| connect(&SocketAddrUnix::new(scene.shown.join(SOCKET))?)),
            absent("well-known", |_| well_known_sockets()).excused(&[
                (Errno::NOENT, "none of the well-known services runs here"),
                (Errno::CONNREFUSED, "none of the well-known services listens here"),
            ]),
        ],
    },
    Case {
        id: "K16",
        what: "type into or drive a terminal",
        probes: &[
            denied("TIOCSTI", |_| on_terminal(|fd| attempt::type_into_terminal(fd))),
            denied("TIOCLINUX", |_| on_terminal(|fd| attempt::drive_console(fd))),
        ],
    },
    Case {
        id: "K17",
        what: "change or take a terminal",
        probes: &[
            denied("TIOCSETD", |_| on_terminal(|fd| attempt::set_line_discipline(fd))),
            absent("/dev/tty", |_| open("/dev/tty", OFlags::RDWR))
                .excused(&[(Errno::NXIO, "pond itself runs without a terminal")]),
            absent("/dev/ptmx", |_| open("/dev/ptmx", OFlags::RDWR)),
        ],
    },
    Case {
        id: "K18",
        what: "read the kernel's log",
        probes: &[
            denied("syslog", |_| attempt::kernel_log()).needs("CAP_SYSLOG", CapabilitySet::SYSLOG),
            absent("/dev/kmsg", |_| open("/dev/kmsg", OFlags::RDONLY))
                .excused(&[(Errno::NOENT, "this host has no /dev/kmsg")]),
            absent("/proc/kmsg", |_| open("/proc/kmsg", OFlags::RDONLY | OFlags::NONBLOCK))
                .needs("CAP_SYSLOG", CapabilitySet::SYSLOG),
        ],
    },
    Case {
        id: "K19",
        what: "read physical memory or use I/O ports",
        probes: &[
            absent("/proc/kcore", |_| read_some("/proc/kcore"))
                .needs("CAP_SYS_RAWIO", CapabilitySet::SYS_RAWIO)
                .excused(NO_FILE),
            absent("/dev/mem", |_| open("/dev/mem", OFlags::RDONLY))
                .needs("CAP_SYS_RAWIO", CapabilitySet::SYS_RAWIO)
                .excused(NO_FILE),
            denied("iopl", |_| attempt::port_privilege()).needs("CAP_SYS_RAWIO", CapabilitySet::SYS_RAWIO),
            denied("ioperm", |_| attempt::port_permissions())
                .needs("CAP_SYS_RAWIO", CapabilitySet::SYS_RAWIO),
        ],
    },
    Case {
        id: "K25",
        what: "set the clock",
        probes: &[
            denied("settimeofday", |_| attempt::set_time_of_day())
                .needs("CAP_SYS_TIME", CapabilitySet::SYS_TIME),
            denied("clock_settime", |_| attempt::set_clock()),
            denied("adjtimex", |_| attempt::adjust_clock()).needs("CAP_SYS_TIME", CapabilitySet::SYS_TIME),
        ],
    },
    Case {
        id: "K26",
        what: "reboot, swap, load kernels or modules, account, set quotas",
        probes: &[
            denied("reboot", |_| attempt::reboot()).needs("CAP_SYS_BOOT", CapabilitySet::SYS_BOOT),
            denied("swapon", |_| attempt::swap_on()),
            denied("swapoff", |_| attempt::swap_off()),
            denied("kexec", |_| attempt::kexec()).needs("CAP_SYS_BOOT", CapabilitySet::SYS_BOOT),
            denied("init_module", |_| attempt::load_module())
                .needs("CAP_SYS_MODULE", CapabilitySet::SYS_MODULE),
            denied("delete_module", |_| attempt::unload_module())
                .needs("CAP_SYS_MODULE", CapabilitySet::SYS_MODULE),
            denied("acct", |_| attempt::account_processes()).needs("CAP_SYS_PACCT", CapabilitySet::SYS_PACCT),
            denied("quotactl", |_| attempt::quota()),
        ],
    },
    Case {
        id: "K39",
        what: "reach any call the filter refuses",
        probes: &[denied("sweep", |_| attempt::reach_refused_calls())],
    },
    Case { id: "K42", what: "odd process controls", probes: &[SET_MM] },
];

const NO_FILE: &[(Errno, &str)] = &[(Errno::NOENT, "this host has no such file")];
const SET_MM: Probe = denied("prctl SET_MM", |_| attempt::map_executable())
    .needs("CAP_SYS_RESOURCE", CapabilitySet::SYS_RESOURCE);

fn read_some(path: &str) -> io::Result<()> {
    let mut bytes = [0; 4];
    found(File::open(path)?.read(&mut bytes)? > 0)
}

pub(in crate::attack) fn open(path: &str, flags: OFlags) -> io::Result<()> {
    got(rustix::fs::open(path, flags | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()))
}

pub(in crate::attack) fn socket(family: u16, kind: u32, protocol: u32) -> io::Result<()> {
    let protocol = NonZeroU32::new(protocol).map(Protocol::from_raw);
    got(rustix::net::socket(AddressFamily::from_raw(family), SocketType::from_raw(kind), protocol))
}

fn stream() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?)
}

fn datagrams() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket(AddressFamily::INET6, SocketType::DGRAM, None)?)
}

fn connect(address: &SocketAddrUnix) -> io::Result<()> {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    Ok(rustix::net::connect(&socket, address)?)
}

fn well_known_sockets() -> io::Result<()> {
    let places = [
        "/run/docker.sock",
        "/run/containerd/containerd.sock",
        "/run/dbus/system_bus_socket",
        "/run/systemd/private",
        "/run/snapd.socket",
        "/run/podman/podman.sock",
    ];
    let mut result = Err(Errno::NOENT.into());
    for place in places.into_iter().filter(|place| Path::new(place).exists()) {
        result = SocketAddrUnix::new(place).map_err(io::Error::from).and_then(|address| connect(&address));
        if result.is_ok() {
            break;
        }
    }
    result
}

/// On a terminal where one can be made; where none can, the request alone must be refused.
fn on_terminal(request: impl Fn(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> {
    match new_terminal() {
        Ok((_controller, terminal)) => request(terminal.as_fd()),
        Err(_none_inside) => request(rustix::stdio::stdin()),
    }
}

fn new_terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    let controller = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    rustix::pty::unlockpt(&controller)?;
    let name = rustix::pty::ptsname(&controller, Vec::new())?;
    let terminal = rustix::fs::open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty())?;
    Ok((controller, terminal))
}
