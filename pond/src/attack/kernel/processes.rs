//! K09–K12, K28–K34, K36, K41, K43: other processes, priorities, privileges by execution, and what init holds.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use pond_sys::attempt::{self, Kind};
use rustix::fs::{Gid, OFlags, Uid};
use rustix::io::Errno;
use rustix::process::{ForeignRawFd, Pid, PidfdFlags, PidfdGetfdFlags, Signal};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets, SecureComputingMode};

use super::interfaces::open;
use crate::attack::accomplice;
use crate::attack::case::{Case, Evidence, Probe, Room, Stage, absent, denied};
use crate::attack::probe::NAME;
use crate::attack::scene::{Scene, found, got};

pub(super) const CASES: &[Case] = &[
    Case {
        id: "K09",
        what: "trace a process",
        probes: &[
            denied("traceme", |_| attempt::trace_me()),
            denied("seize", |_| attempt::trace(parent()?)).needs("CAP_SYS_PTRACE", CapabilitySet::SYS_PTRACE),
        ],
    },
    Case {
        id: "K10",
        what: "read or write the memory of another process",
        probes: &[
            denied("process_vm_readv", |_| attempt::read_memory_of(parent()?))
                .needs("CAP_SYS_PTRACE", CapabilitySet::SYS_PTRACE),
            denied("process_vm_writev", |_| attempt::write_memory_of(parent()?))
                .needs("CAP_SYS_PTRACE", CapabilitySet::SYS_PTRACE),
        ],
    },
    Case {
        id: "K11",
        what: "signal a process of the host",
        probes: &[
            absent("kill", |scene| Ok(rustix::process::test_kill_process(host_process(scene)?)?)),
            absent("pidfd", |scene| {
                got(rustix::process::pidfd_open(host_process(scene)?, PidfdFlags::empty()))
            }),
        ],
    },
    Case {
        id: "K12",
        what: "take a descriptor from another process, or compare its kernel objects",
        probes: &[
            denied("pidfd_getfd", |_| take_descriptor()).needs("CAP_SYS_PTRACE", CapabilitySet::SYS_PTRACE),
            denied("kcmp", |_| attempt::compare_files(parent()?, rustix::process::getpid())),
        ],
    },
    Case {
        id: "K28",
        what: "switch address randomisation off",
        probes: &[denied("personality", |_| attempt::disable_randomisation())],
    },
    Case {
        id: "K29",
        what: "get ahead of others: priority, real time, the out-of-memory score",
        probes: &[
            denied("nice", |_| Ok(rustix::process::setpriority_process(None, -5)?))
                .needs("CAP_SYS_NICE", CapabilitySet::SYS_NICE),
            denied("real time", |_| run_in_real_time())
                .needs("CAP_SYS_NICE", CapabilitySet::SYS_NICE)
                .excused(&[(Errno::PERM, "pond's own control group has no real-time share")]),
            denied("oom score", |_| {
                File::options().write(true).open("/proc/self/oom_score_adj")?.write_all(b"-500")
            })
            .needs("CAP_SYS_RESOURCE", CapabilitySet::SYS_RESOURCE),
        ],
    },
    Case {
        id: "K30",
        what: "gain an identity from a set-user-id program",
        probes: &[
            denied("in the repository", changed_user).excused(NOT_PLANTED),
            denied("mounts that honour it", |_| mount_without_nosuid()),
        ],
    },
    Case {
        id: "K31",
        what: "gain capabilities from a file",
        probes: &[denied("in the repository", gained_capabilities).excused(NOT_PLANTED)],
    },
    Case {
        id: "K33",
        what: "look into init, or find a secret of the host in any process",
        probes: &[
            denied("environ", |scene| read_of_init(scene, "environ")),
            denied("maps", |scene| read_of_init(scene, "maps")),
            denied("mem", |scene| open(&scene.of_init("mem"), OFlags::RDONLY)),
            denied("fd", |scene| std::fs::read_dir(scene.of_init("fd")).map(drop)),
            denied("open descriptors", open_descriptor_of_init),
            denied("root", |scene| open(&scene.of_init("root/."), OFlags::PATH)),
            denied("cwd", |scene| open(&scene.of_init("cwd/."), OFlags::PATH)),
            absent("secret in a process", marker_in_any_process),
        ],
    },
    Case {
        id: "K34",
        what: "start with something that was not meant for it",
        probes: &[
            absent("descriptors", |scene| found(!scene.inherited.is_empty())),
            absent("working directory", |scene| {
                found(!std::env::current_dir()?.starts_with(&scene.workspace) || !scene.is_inside())
            }),
            absent("privileges", |_| found(!is_stripped()?)),
            absent("umask", foreign_umask),
            absent("signals", foreign_signals),
            absent("securebits", |_| found(rustix::thread::capabilities_secure_bits()? != SECURE)),
            absent("groups", |_| foreign_groups())
                .excused(&[(Errno::NODATA, "pond itself has no further groups")]),
        ],
    },
    Case {
        id: "K36",
        what: "become or own as root",
        probes: &[
            denied("setuid", |_| by_id(rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT))),
            denied("chown", chown_to_root),
            denied("uid_map", map_root),
        ],
    },
    Case {
        id: "K41",
        what: "what one layer alone forbids: Landlock, writing where every other layer lets it",
        probes: &[
            denied("own name", |_| {
                File::options().write(true).open("/proc/self/comm")?.write_all(NAME.as_bytes())
            }),
            denied("device", |_| open("/dev/urandom", OFlags::WRONLY)),
        ],
    },
    Case {
        id: "K43",
        what: "stop everything, so that nothing can be ended",
        probes: &[Probe {
            room: Room::Own(Stage {
                wall: Duration::from_secs(1),
                evidence: Evidence::TimedOut,
                ..Stage::PLAIN
            }),
            ..denied("SIGSTOP", stop_everything)
        }],
    },
];

const NOT_PLANTED: &[(Errno, &str)] = &[
    (Errno::NOENT, "only root can plant such a file"),
    (Errno::PERM, "the temporary directory of this host ignores such bits"),
];

/// The probe, which forked this attempt.
fn parent() -> io::Result<Pid> {
    rustix::process::getppid().ok_or_else(|| Errno::SRCH.into())
}

/// The number of a host process, unless a process of our own happens to have the same one here.
fn host_process(scene: &Scene) -> io::Result<Pid> {
    let name = std::fs::read(format!("/proc/{}/cmdline", scene.host.pid)).unwrap_or_default();
    let ours = scene.is_inside() && String::from_utf8_lossy(&name).contains(NAME);
    Pid::from_raw(scene.host.pid).filter(|_| !ours).ok_or_else(|| Errno::SRCH.into())
}

fn take_descriptor() -> io::Result<()> {
    let process = rustix::process::pidfd_open(parent()?, PidfdFlags::empty())?;
    let number: ForeignRawFd = 0;
    got(rustix::process::pidfd_getfd(process, number, PidfdGetfdFlags::empty()))
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// No capability in any set, none to be had by executing, and a filter that holds. Asked by calls: some kernels' /proc leaves
/// half of it out.
fn is_stripped() -> io::Result<bool> {
    let CapabilitySets { effective, permitted, inheritable } = rustix::thread::capabilities(None)?;
    let in_bounds = CapabilitySet::all()
        .iter()
        .any(|one| matches!(rustix::thread::capability_is_in_bounding_set(one), Ok(true)));
    // A kernel without such a set has nothing in it.
    let in_ambient = CapabilitySet::all()
        .iter()
        .any(|one| matches!(rustix::thread::capability_is_in_ambient_set(one), Ok(true)));
    let has_none = effective.is_empty() && permitted.is_empty() && inheritable.is_empty();
    let is_filtered = rustix::thread::secure_computing_mode()? == SecureComputingMode::Filter;
    Ok(has_none && !in_bounds && !in_ambient && rustix::thread::no_new_privs()? && is_filtered)
}

/// A kernel that knows no such policy says "invalid".
fn run_in_real_time() -> io::Result<()> {
    attempt::run_in_real_time().map_err(|fault| match Errno::from_io_error(&fault) {
        Some(Errno::INVAL) => Errno::NOSYS.into(),
        _ => fault,
    })
}

/// As strict as the launcher sets them.
const SECURE: CapabilitiesSecureBits = CapabilitiesSecureBits::NO_ROOT
    .union(CapabilitiesSecureBits::NO_ROOT_LOCKED)
    .union(CapabilitiesSecureBits::KEEP_CAPS_LOCKED)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED);

/// The control has one of its own, as the caller of a careless launcher could.
fn foreign_umask(scene: &Scene) -> io::Result<()> {
    if !scene.is_inside() {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    }
    let usual = rustix::fs::Mode::from_raw_mode(0o022);
    found(rustix::process::umask(usual) != usual)
}

/// Signals that are blocked or ignored at the start; the control blocks them all. A Rust program ignores SIGPIPE by itself.
fn foreign_signals(scene: &Scene) -> io::Result<()> {
    const PIPE: u64 = 1 << 12;
    if !scene.is_inside() {
        attempt::ignore_signals()?;
    }
    let (blocked, ignored) = attempt::silenced_signals()?;
    found(blocked != 0 || ignored & !PIPE != 0)
}

fn changed_user(scene: &Scene) -> io::Result<()> {
    let status = accomplice::output(&scene.planted.join("setuid-cat"), "/proc/self/status", None)?;
    let effective = field(&status, "Uid").and_then(|ids| ids.split_whitespace().nth(1)?.parse().ok());
    let effective: u32 = effective.ok_or(Errno::IO)?;
    if effective == rustix::process::geteuid().as_raw() { Err(Errno::PERM.into()) } else { Ok(()) }
}

fn gained_capabilities(scene: &Scene) -> io::Result<()> {
    // Root has them all anyway, so the control is made as nobody.
    let nobody = (!scene.is_inside() && rustix::process::geteuid().is_root()).then_some(65_534);
    let status = accomplice::output(&scene.planted.join("capable-cat"), "/proc/self/status", nobody)?;
    let effective = field(&status, "CapEff").ok_or(Errno::IO)?;
    if effective.bytes().all(|digit| digit == b'0') { Err(Errno::PERM.into()) } else { Ok(()) }
}

fn mount_without_nosuid() -> io::Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let honours = mounts.lines().any(|line| {
        line.split(' ').nth(5).is_some_and(|options| !options.split(',').any(|one| one == "nosuid"))
    });
    if honours { Ok(()) } else { Err(Errno::PERM.into()) }
}

fn read_of_init(scene: &Scene, name: &str) -> io::Result<()> {
    let mut byte = [0; 1];
    File::open(scene.of_init(name))?.read(&mut byte).map(drop)
}

/// Whatever init has open, in whichever direction; the other ends of the probe's own pipes are its own.
fn open_descriptor_of_init(scene: &Scene) -> io::Result<()> {
    let file = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino));
    let own = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()].map(file);
    let paths = (0..64).map(|number| scene.of_init(&format!("fd/{number}")));
    let ways = [OFlags::RDONLY, OFlags::WRONLY].map(|way| way | OFlags::NONBLOCK | OFlags::NOCTTY);
    for (path, way) in paths.flat_map(|path| ways.map(|way| (path.clone(), way))) {
        if let Ok(opened) = rustix::fs::open(path, way, rustix::fs::Mode::empty())
            && !(scene.is_inside() && own.contains(&file(opened.as_fd())))
        {
            return Ok(());
        }
    }
    Err(Errno::PERM.into())
}

fn marker_in_any_process(scene: &Scene) -> io::Result<()> {
    let marker = scene.marker();
    let holds = |path: std::path::PathBuf| {
        std::fs::read(path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(&marker))
    };
    let processes = std::fs::read_dir("/proc")?.filter_map(Result::ok).map(|entry| entry.path());
    found(processes.flat_map(|process| ["environ", "cmdline"].map(|name| process.join(name))).any(holds))
}

/// An id that has no name in this namespace is answered with "invalid", which is a refusal too.
fn by_id(result: Result<(), Errno>) -> io::Result<()> {
    result.map_err(|errno| if errno == Errno::INVAL { Errno::PERM } else { errno }.into())
}

/// An ordinary user cannot drop groups in a namespace of one id; there they are nameless, which is the most that can be had.
fn foreign_groups() -> io::Result<()> {
    const NAMELESS: u32 = 65_534;
    let own = rustix::process::getegid();
    found(rustix::process::getgroups()?.iter().any(|group| *group != own && group.as_raw() != NAMELESS))
}

fn chown_to_root(scene: &Scene) -> io::Result<()> {
    let path = scene.temporary.join("to-root");
    File::create(&path)?;
    if !scene.is_inside() && std::fs::metadata(&path)?.uid() == 0 {
        // Root owns what it makes; giving it away and taking it back is the same right.
        rustix::fs::chown(&path, Some(Uid::from_raw(65_534)), None)?;
    }
    let result = rustix::fs::chown(&path, Some(Uid::ROOT), Some(Gid::ROOT));
    std::fs::remove_file(&path)?;
    by_id(result)
}

fn map_root(scene: &Scene) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    if !scene.is_inside() {
        attempt::unshare(&[Kind::User])?;
    }
    File::options().write(true).open("/proc/self/uid_map")?.write_all(format!("0 {own} 1\n").as_bytes())
}

/// Inside, the probe and with it all there is; outside, this attempt alone.
fn stop_everything(scene: &Scene) -> io::Result<()> {
    if scene.is_inside() {
        rustix::process::kill_process(parent()?, Signal::STOP)?;
    }
    rustix::process::kill_process(rustix::process::getpid(), Signal::STOP)?;
    std::thread::sleep(Stage::PATIENCE);
    Ok(())
}
