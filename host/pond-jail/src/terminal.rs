//! A terminal of the sandbox's own: a devpts instance nobody else mounts, and one pair of ends in it.
//!
//! Made by pid 1 before the job exists. The master leaves the sandbox by descriptor, or stays with pid 1 of a container, which
//! relays it; no terminal of the host comes in. Every
//! terminal of this instance belongs to the job, and there is a bound on how many it can open: the kernel's own bound is
//! shared by the whole host.

use std::os::fd::OwnedFd;

use pond_wire::contained::Kernel;
use pond_wire::jail::{Console, Step};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string,
    fsmount, fsopen,
};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, ptsname, unlockpt};
use rustix::termios::{InputModes, OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};

use crate::fault::{At, Failure};

/// Where the instance stands inside.
pub(crate) const PLACE: &str = "/dev/pts";
pub(crate) const MULTIPLEXER: &str = "/dev/pts/ptmx";
/// As many as a multiplexer and a test suite want.
const MOST: u32 = 64;

pub(crate) struct Terminal {
    /// For the asking side.
    pub(crate) master: OwnedFd,
    pub(crate) job_end: OwnedFd,
}

/// Every terminal of the instance will belong to `owner`.
pub(crate) fn mount(owner: u32) -> Result<OwnedFd, Failure> {
    let step = Step::Terminal;
    let context = fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC).at(step)?;
    fsconfig_set_string(&context, "source", "devpts").at(step)?;
    fsconfig_set_flag(&context, "newinstance").at(step)?;
    let owner = owner.to_string();
    let most = MOST.to_string();
    for (option, value) in
        [("ptmxmode", "0666"), ("mode", "0600"), ("uid", &owner), ("gid", &owner), ("max", &most)]
    {
        fsconfig_set_string(&context, option, value).at(step)?;
    }
    fsconfig_create(&context).at(step)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).at(step)
}

/// Opens both ends, once the sandbox's root is the root.
pub(crate) fn open(console: Console) -> Result<Option<Terminal>, Failure> {
    open_on(console, Kernel::Host)
}

pub(crate) fn open_on(console: Console, kernel: Kernel) -> Result<Option<Terminal>, Failure> {
    let (rows, columns) = match console {
        Console::Pipes => return Ok(None),
        Console::Terminal { rows, columns } => (rows, columns),
    };
    let step = Step::Terminal;
    // Neither end becomes the terminal of pid 1.
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = rustix::fs::open(MULTIPLEXER, flags, Mode::empty()).at(step)?;
    unlockpt(&master).at(step)?;
    let peer = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let job_end = match kernel {
        Kernel::Host | Kernel::Machine => ioctl_tiocgptpeer(&master, peer).at(step)?,
        // It knows the other end by its name only, in an instance that is the sandbox's alone.
        Kernel::Gvisor => {
            let name = ptsname(&master, Vec::new()).at(step)?;
            rustix::fs::open(name, flags | OFlags::NOFOLLOW, Mode::empty()).at(step)?
        }
    };
    let mut modes = tcgetattr(&job_end).at(step)?;
    modes.input_modes |= InputModes::IUTF8;
    tcsetattr(&job_end, OptionalActions::Now, &modes).at(step)?;
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&master, size).at(step)?;
    Ok(Some(Terminal { master, job_end }))
}
