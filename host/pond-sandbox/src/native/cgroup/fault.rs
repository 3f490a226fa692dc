//! What can go wrong with control groups, by step, and what the user can do about it.

use std::fmt;
use std::path::PathBuf;

use rustix::io::Errno;

/// A kind of resource a control group watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    Memory,
    Cpu,
    Pids,
    /// Processor time used; counts, limits nothing.
    CpuAccounting,
}

impl Controller {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Pids => "pids",
            Self::CpuAccounting => "cpuacct",
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How to get what is missing. Prints as the sentence a user reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// An ordinary user on a v2 host.
    DelegatedScope,
    /// An ordinary user on a v1 host.
    DelegatedByRoot { uid: u32 },
    /// An ordinary user whose session manager was not given this controller.
    DelegatedToUsers(Controller),
    /// The kernel has the controller switched off, or nobody mounted it.
    EnableController(Controller),
    /// Root, where the hierarchy is mounted read-only or lies outside the container.
    WritableHierarchy,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DelegatedScope => f.write_str(
                "run pond in a delegated group: systemd-run --user --scope -p Delegate=yes pond …",
            ),
            Self::DelegatedByRoot { uid } => {
                write!(f, "have root run once per boot: sudo pond host delegate {uid}")
            }
            Self::DelegatedToUsers(controller) => write!(
                f,
                "have root delegate {controller} to user sessions: systemctl edit user@.service, add \"[Service]\" and \
                 \"Delegate=cpu memory pids\", then log in again"
            ),
            Self::EnableController(controller) => write!(
                f,
                "boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1), or mount it: mkdir -p /sys/fs/cgroup/{controller} \
                 && mount -t cgroup -o {controller} cgroup /sys/fs/cgroup/{controller} (some kernels also need \
                 cgroup_enable={controller} on their command line)"
            ),
            Self::WritableHierarchy => f.write_str(
                "mount the control groups writable (in a container: give it a cgroup namespace of its own)",
            ),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CgroupFault {
    #[error("cannot read {}", .file.display())]
    Read { file: PathBuf, source: Errno },
    #[error("no {controller} control group is to be had here; {remedy}")]
    NoController { controller: Controller, remedy: Remedy },
    #[error("no job group may be made in {}; {remedy}", .directory.display())]
    NotDelegated { directory: PathBuf, remedy: Remedy, source: Errno },
    #[error("{} holds other processes, so it cannot hand out limits; {remedy}", .directory.display())]
    Occupied { directory: PathBuf, remedy: Remedy },
    #[error("a job group's name is 1 to 80 of a-z, 0-9 and -")]
    BadName,
    #[error("cannot make the group {}", .group.display())]
    Create { group: PathBuf, source: Errno },
    #[error("cannot set {} to {wanted}", .file.display())]
    Set { file: PathBuf, wanted: String, source: Errno },
    #[error("{} was set to {wanted} but says {found}", .file.display())]
    NotTaken { file: PathBuf, wanted: String, found: String },
    #[error("cannot open {} for the job to enter", .file.display())]
    Entry { file: PathBuf, source: Errno },
    #[error("cannot kill what runs in {}", .group.display())]
    Kill { group: PathBuf, source: Errno },
    #[error("processes in {} outlived every kill", .group.display())]
    StillPopulated { group: PathBuf },
    #[error("cannot remove the group {}", .group.display())]
    Remove { group: PathBuf, source: Errno },
    #[error("cannot hand {} to the user", .directory.display())]
    Delegate { directory: PathBuf, source: Errno },
    #[error("only hosts with v1 control groups need this: with v2, {}", Remedy::DelegatedScope)]
    NothingToDelegate,
}
