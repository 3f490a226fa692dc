//! What a person can do about a step of a launch that failed. One table, for `pond run` and for `pond doctor`. Pure, but for
//! the name of a mount that is in the way.

use std::path::Path;

use pond_wire::jail::Step;
use rustix::io::Errno;

use super::{mounts, toolchain};

const USER_NAMESPACES: &str = "allow user namespaces: sysctl user.max_user_namespaces=15000, and for an ordinary user on Ubuntu \
                               sysctl kernel.apparmor_restrict_unprivileged_userns=0 or an AppArmor profile for pond, on older \
                               Debian sysctl kernel.unprivileged_userns_clone=1";
const HOST_NOT_CONTAINER: &str = "pond needs the kernel's own namespaces and mounts; inside a container run it privileged, or \
                                  run it on the host";
const OVERLAY: &str = "the kernel needs overlay with layers by descriptor (Linux 6.13 or later; modprobe overlay), on directories that are not \
     overlays of overlays";
const BUSY_HOST: &str = "the host is out of memory or processes; try again when it has some, or lower --memory and --pids of \
                         other runs";

const TOO_LONG: &str = "the command line and the variables are longer than a program can be given; put what is long into a file of the \
                        checkout and name that";

/// Why a launch came to nothing when no step of it says so.
pub const KILLED: &str = "a process of pond's own was killed";

/// What to do about that.
pub const AFTER_KILL: &str = "run it again; if nobody killed it, the kernel's log (dmesg) says why";

/// The launcher's word for a directory with a file system mounted below it, which an ordinary user cannot leave out.
const MOUNT_BELOW: Errno = Errno::XDEV;

/// What stands mounted where a launch failed because of it, by name.
pub fn in_the_way(step: Step, errno: i32, checkout: &str) -> Option<String> {
    let opening = [Step::OpenCheckout, Step::OpenRoot].contains(&step);
    if !opening || Errno::from_raw_os_error(errno) != MOUNT_BELOW {
        return None;
    }
    let point = if step == Step::OpenCheckout {
        mounts::first_below([Path::new(checkout)])?
    } else {
        mounts::first_below(toolchain::directories().map(Path::new))?
    };
    Some(format!("a file system is mounted on {}", point.display()))
}

/// The remedy for this failure, where there is one that helps.
pub fn remedy(step: Step, errno: i32) -> Option<&'static str> {
    let errno = Errno::from_raw_os_error(errno);
    if [Errno::NOMEM, Errno::AGAIN].contains(&errno) {
        return Some(BUSY_HOST);
    }
    match step {
        Step::OpenCheckout => checkout(errno),
        Step::OpenRoot => root(errno),
        Step::MountScratch => scratch(errno),
        Step::Exec | Step::ReadPlan if errno == Errno::TOOBIG => Some(TOO_LONG),
        Step::Exec => command(errno),
        Step::CreateNamespaces if errno == Errno::NOSYS => Some(HOST_NOT_CONTAINER),
        Step::MapOwner | Step::CreateNamespaces | Step::WriteIdMaps => Some(USER_NAMESPACES),
        Step::MountWorkspace => Some(OVERLAY),
        Step::MountProc if errno == Errno::PERM => Some(
            "something covers part of /proc on this host, as containers do; run pond where /proc is whole",
        ),
        Step::Landlock => Some(
            "the kernel needs Landlock of version 6 (Linux 6.12 or later), switched on: add landlock to lsm= on its command line",
        ),
        Step::Everywhere => Some(
            "the internet posture needs nf_tables with transparent proxying (modprobe nf_tables nft_tproxy); without it use \
             untrusted-code-write and name the hosts",
        ),
        Step::Seccomp => Some("the kernel needs seccomp filters (CONFIG_SECCOMP_FILTER)"),
        Step::Confirm => {
            Some("a layer was accepted and does not hold: do not run jobs on this kernel, and report it")
        }
        Step::EnterCgroup => Some(
            "the control group went away or is not writable; run pond again, and `pond doctor` if it stays so",
        ),
        Step::ReadPlan | Step::CheckPlan => {
            Some("two versions of pond met; use one executable for everything")
        }
        Step::CgroupNamespace
        | Step::Hostname
        | Step::Loopback
        | Step::Doors
        | Step::BuildRoot
        | Step::MountTmp
        | Step::MountProc
        | Step::MountDevices
        | Step::Terminal
        | Step::PivotRoot
        | Step::Furnish => Some(HOST_NOT_CONTAINER),
        Step::BecomeRootInside
        | Step::Announce
        | Step::Rlimits
        | Step::ForkJob
        | Step::DropIdentity
        | Step::DropCapabilities
        | Step::NoNewPrivileges
        | Step::GuardInit
        | Step::Unpack
        | Step::Connect
        | Step::WorkingDirectory => None,
    }
}

fn checkout(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::INVAL | Errno::OPNOTSUPP => Some(
            "the filesystem of the checkout cannot show its files under another owner (overlay, FUSE and network filesystems \
             cannot); use a directory on ext4, xfs, btrfs or tmpfs, or let pond copy it first: --snapshot",
        ),
        Errno::PERM | Errno::ACCESS => {
            Some("the checkout, or a directory above it, may not be read by the user who runs pond")
        }
        MOUNT_BELOW => Some(
            "with a file system mounted below the checkout only root can show it; let pond copy the checkout first: --snapshot",
        ),
        Errno::STALE | Errno::NOENT => Some("the directory was replaced while pond started; run it again"),
        _ => None,
    }
}

fn root(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::ACCESS => Some(
            "a program directory lies below one that other users may not enter; install pond and its tools under /usr/local",
        ),
        MOUNT_BELOW => Some(
            "with a file system mounted below a program directory only root can show that one, without what is mounted: \
             unmount it, or run pond as root",
        ),
        Errno::OPNOTSUPP => Some("what should be a file or a device to show is something else; repair it"),
        Errno::INVAL | Errno::NODEV => Some(OVERLAY),
        _ => None,
    }
}

fn scratch(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::NOENT | Errno::NXIO | Errno::PERM | Errno::ACCESS => Some(
            "the job's disk needs a free loop device: modprobe loop, give the container /dev/loop-control and more of \
             /dev/loop*, or end other jobs",
        ),
        // What should be the door to loop devices, or one of them, is some other file.
        Errno::NOTTY | Errno::ISDIR | Errno::NOTBLK => Some(
            "the job's disk needs loop devices, and what lies at /dev/loop-control or /dev/loop* is none: modprobe loop, and give \
             the container the host's own /dev/loop-control and /dev/loop*",
        ),
        Errno::BUSY => Some("every loop device is taken; end other jobs, or boot with more (max_loop=)"),
        Errno::NODEV => Some("the kernel needs ext4 and loop devices (modprobe ext4 loop)"),
        Errno::INVAL | Errno::UCLEAN => Some(
            "what new disks are copied from may be damaged: remove scratch/ext4-*.image in pond's state directory, and it is made anew",
        ),
        Errno::NOSPC => {
            Some("the disk of pond's state directory is full; set POND_STATE_DIR to one with room")
        }
        _ => None,
    }
}

fn command(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::NOENT => Some(
            "the command, or the interpreter it names, is not inside: a job sees the system's programs (with --image the image's \
             alone) and its checkout, no home directory; toolchains that live in one are shown with --tool",
        ),
        Errno::ISDIR => Some("the command is a directory: name a program in it"),
        Errno::ACCESS => Some("the file is not executable: chmod +x it, or name an interpreter"),
        Errno::NOEXEC => {
            Some("the file is neither a program for this machine nor a script that begins with #!")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    //! Where a failure has several causes, the remedy follows the cause.
    use super::*;

    #[test]
    fn the_remedy_follows_the_cause() {
        let says = |step, errno: Errno, word: &str| {
            let text = remedy(step, errno.raw_os_error()).unwrap_or_default();
            assert!(text.contains(word), "{step:?} {errno:?}: {text}");
        };
        says(Step::OpenCheckout, Errno::INVAL, "ext4, xfs, btrfs");
        says(Step::OpenCheckout, Errno::ACCESS, "may not be read");
        says(Step::OpenCheckout, MOUNT_BELOW, "--snapshot");
        says(Step::OpenRoot, MOUNT_BELOW, "as root");
        says(Step::OpenRoot, Errno::INVAL, "overlay");
        says(Step::CreateNamespaces, Errno::PERM, "apparmor_restrict_unprivileged_userns");
        says(Step::CreateNamespaces, Errno::NOSPC, "user.max_user_namespaces");
        says(Step::CreateNamespaces, Errno::NOSYS, "container");
        says(Step::Exec, Errno::NOENT, "home directory");
        says(Step::Exec, Errno::NOENT, "with --image the image's alone");
        says(Step::Exec, Errno::ISDIR, "is a directory");
        says(Step::Exec, Errno::NOEXEC, "#!");
        says(Step::Exec, Errno::TOOBIG, "into a file");
        says(Step::ReadPlan, Errno::TOOBIG, "into a file");
        says(Step::ReadPlan, Errno::INVAL, "two versions");
        says(Step::Landlock, Errno::OPNOTSUPP, "lsm=");
        says(Step::MountScratch, Errno::BUSY, "loop device");
        says(Step::MountScratch, Errno::NOTTY, "modprobe loop");
        says(Step::MountScratch, Errno::INVAL, "made anew");
        says(Step::ForkJob, Errno::AGAIN, "out of memory or processes");
        assert_eq!(remedy(Step::Announce, Errno::PIPE.raw_os_error()), None);
    }
}
