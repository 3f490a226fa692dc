//! Tries the forbidden, just before the job could: a layer that did not take ends the launch.
//!
//! Each attempt is something a hostile program would do first. All must fail; one that succeeds means that a control was
//! accepted and is not enforced, and the job never runs.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pond_wire::jail::Step;
use rustix::fs::{Access, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};
use rustix::process::Pid;
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::fault::Failure;
use crate::terminal::MULTIPLEXER;

/// Names the layer through the errno it reports: `EISNAM` for a confinement that is not there has no other meaning here.
const BREACH: Errno = Errno::ISNAM;

/// More than pid 1 ever has open, counted from zero.
const DESCRIPTORS_OF_INIT: u32 = 32;
/// Where its own streams are: they were the first it opened.
const DESCRIPTORS_OF_SERVER: u32 = 8;

pub(crate) fn confirm(report: BorrowedFd<'_>) -> Result<(), Failure> {
    let forbidden = [
        // A device that everybody may write to, which nothing but Landlock forbids.
        rustix::fs::open("/dev/urandom", OFlags::WRONLY, Mode::empty()).is_ok(),
        // What belongs to init. In a directory that cannot be searched no name leads anywhere.
        rustix::fs::openat(CWD, "/proc/1/environ", OFlags::RDONLY, Mode::empty()).is_ok(),
        rustix::fs::access("/proc/1/fd", Access::EXEC_OK).is_ok() && opens_any_descriptor_of_init(),
    ];
    if forbidden.contains(&true) {
        return Err(Failure { step: Step::Confirm, errno: BREACH });
    }
    confirm_anywhere(report)
}

fn opens_any_descriptor_of_init() -> bool {
    (0..DESCRIPTORS_OF_INIT).any(opens_descriptor_of_init)
}

/// In whichever direction: gVisor shows the job which ones there are. The other ends of its own pipes are its own, and the device
/// that makes terminals is everybody's: opening it again makes another one.
fn opens_descriptor_of_init(number: u32) -> bool {
    let path = format!("/proc/1/fd/{number}");
    let open =
        |flags| rustix::fs::openat(CWD, &path, flags | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty()).ok();
    let maker = rustix::fs::stat(MULTIPLEXER).ok().map(|stat| (stat.st_dev, stat.st_ino));
    let own = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()].map(file);
    let is_known = |opened: &OwnedFd| {
        let opened = file(opened.as_fd());
        opened.is_some() && (own.contains(&opened) || opened == maker)
    };
    [OFlags::RDONLY, OFlags::WRONLY].into_iter().filter_map(open).any(|opened| !is_known(&opened))
}

/// Which file a descriptor leads to; nothing for one that cannot be looked at.
fn file(descriptor: BorrowedFd<'_>) -> Option<(u64, u64)> {
    rustix::fs::fstat(descriptor).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// The same on gVisor's kernel, which has no Landlock and shows everybody the environment of init; that of a container's is
/// the engine's and says nothing.
pub(crate) fn confirm_on_gvisor(report: BorrowedFd<'_>) -> Result<(), Failure> {
    if opens_any_descriptor_of_init() {
        return Err(Failure { step: Step::Confirm, errno: BREACH });
    }
    confirm_anywhere(report)
}

/// The same where pid 1 serves: it also has the ends of other programs' pipes, which are the same user's. The engine's streams are
/// nobody's but its own.
pub(crate) fn confirm_among_others(engines: [&OwnedFd; 2]) -> Result<(), Failure> {
    let own = engines.map(|stream| file(stream.as_fd()));
    let opens = |number: u32| {
        let path = format!("/proc/1/fd/{number}");
        let open = |flags| {
            let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
            rustix::fs::openat(CWD, &path, flags, Mode::empty()).ok()
        };
        [OFlags::RDONLY, OFlags::WRONLY].into_iter().filter_map(open).any(|opened| {
            let opened = file(opened.as_fd());
            opened.is_none() || own.contains(&opened)
        })
    };
    if (0..DESCRIPTORS_OF_SERVER).any(opens) {
        return Err(Failure { step: Step::Confirm, errno: BREACH });
    }
    let [_, to_pond] = engines;
    confirm_anywhere(to_pond.as_fd())
}

fn confirm_anywhere(report: BorrowedFd<'_>) -> Result<(), Failure> {
    let every = CapabilitySet::from_bits_retain(u64::MAX >> 23);
    let regained = CapabilitySets { effective: every, permitted: every, inheritable: CapabilitySet::empty() };
    let forbidden = [
        // Identity and capabilities.
        rustix::thread::set_thread_res_uid(
            rustix::fs::Uid::ROOT,
            rustix::fs::Uid::ROOT,
            rustix::fs::Uid::ROOT,
        )
        .is_ok(),
        rustix::thread::set_capabilities(None, regained).is_ok(),
        rustix::process::geteuid().is_root(),
        !rustix::thread::no_new_privs().is_ok_and(|on| on),
        // Namespaces and mounts.
        pond_sys::process::unshare_user().is_ok(),
        rustix::mount::unmount("/proc", rustix::mount::UnmountFlags::DETACH).is_ok(),
        // The read-only root.
        rustix::fs::open("/etc/pond-confirm", OFlags::WRONLY | OFlags::CREATE, Mode::from_raw_mode(0o600))
            .is_ok(),
        // What belongs to init: its files, its memory and its life.
        rustix::fs::openat(CWD, "/proc/1/root/etc", OFlags::RDONLY, Mode::empty()).is_ok(),
        rustix::fs::openat(CWD, "/proc/1/mem", OFlags::RDONLY, Mode::empty()).is_ok(),
        rustix::process::test_kill_process(Pid::INIT).is_ok(),
        // A device of its own.
        rustix::fs::mknodat(CWD, "/tmp/pond-confirm", FileType::CharacterDevice, Mode::empty(), 0).is_ok(),
        // Sockets that reach beyond the network namespace.
        rustix::net::socket(AddressFamily::VSOCK, SocketType::STREAM, None).is_ok(),
        rustix::net::socket(AddressFamily::PACKET, SocketType::RAW, None).is_ok(),
    ];
    let streams_are_plain =
        rustix::io::fcntl_getfd(report).is_ok_and(|flags| flags.contains(rustix::io::FdFlags::CLOEXEC));
    if forbidden.contains(&true) || !streams_are_plain {
        return Err(Failure { step: Step::Confirm, errno: BREACH });
    }
    Ok(())
}
