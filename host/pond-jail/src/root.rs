//! The root a job sees: a small tmpfs of our own making, with the host's toolchain shown in it read-only.
//!
//! Runs inside the sandbox's mount namespace, before the job exists. Every mount lands on a directory or file made here in our
//! own tmpfs, never on a path inside somebody else's tree, so there is no name a hostile tree could have prepared.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use pond_sys::mount::{Attributes, set_attributes};
use pond_wire::jail::{BindKind, Console, HOME, JOB_ID, JailPlan, RootEntry, Step, TmpfsCap, WORKSPACE};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use crate::fault::{At, Failure};
use crate::storage::{Storage, tmpfs};
use crate::{check, shown, terminal};

/// Room for the skeleton: directories, links and the few files under /etc.
const ROOT_CAP: TmpfsCap = TmpfsCap { bytes: 1 << 20, inodes: 512 };
/// Where the new root hangs until it becomes the root, in this namespace only. Nothing of the host is opened below it any
/// more, which no other directory can promise: a checkout may lie anywhere else.
const STAGING: &str = "/proc";

/// Where mounts hang that nobody needs any more, in this namespace only: they go with the host's root, and cost no wait of
/// their own.
const RUBBISH: &str = "/dev";

/// Parts of /proc that tell of the host or act on it. Absent ones are skipped: a kernel without the file has no leak.
///
/// How often each device interrupted is among them: it tells when somebody types.
const MASKED: [&str; 10] = [
    "cmdline",
    "interrupts",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "latency_stats",
    "sched_debug",
    "sysrq-trigger",
    "timer_list",
];

/// The devices these entries bind, as detached mounts, in their order. What `shown` shows comes with the storage.
///
/// Opened with the identity this process was born with.
pub(crate) fn open_sources(entries: &[RootEntry]) -> Result<VecDeque<OwnedFd>, Failure> {
    let device = Attributes { no_suid: true, no_exec: true, private: true, ..Attributes::default() };
    let mut sources = VecDeque::new();
    for entry in entries {
        match entry {
            RootEntry::Device { source, .. } => {
                let kind = FileType::CharacterDevice;
                sources.push_back(clone_one(source, kind, device, Step::MountDevices)?);
            }
            RootEntry::Bind { .. }
            | RootEntry::Throwaway { .. }
            | RootEntry::Mount { .. }
            | RootEntry::Directory { .. }
            | RootEntry::Symlink { .. }
            | RootEntry::File { .. } => {}
        }
    }
    Ok(sources)
}

/// A file of the host itself: who has it open, holds a lock on it or watches it is then met there. What lies there is looked at
/// after it was opened: a socket under such a name would be the host's own.
pub(crate) fn clone_file(source: &str) -> Result<OwnedFd, Failure> {
    let attributes =
        Attributes { read_only: true, no_suid: true, no_dev: true, private: true, ..Attributes::default() };
    clone_one(source, FileType::RegularFile, attributes, Step::OpenRoot)
}

fn clone_one(
    source: &str,
    kind: FileType,
    attributes: Attributes<'_>,
    step: Step,
) -> Result<OwnedFd, Failure> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = open_tree(CWD, source, flags).at(step)?;
    if FileType::from_raw_mode(rustix::fs::fstat(&mount).at(step)?.st_mode) != kind {
        return Err(Failure { step, errno: Errno::OPNOTSUPP });
    }
    set_attributes(&mount, attributes, false).at(step)?;
    Ok(mount)
}

/// The skeleton, these entries and /dev/shm. Returns the root's descriptor.
pub(crate) fn build(
    entries: &[RootEntry],
    shm: TmpfsCap,
    sources: &mut VecDeque<OwnedFd>,
) -> Result<OwnedFd, Failure> {
    let root = tmpfs(ROOT_CAP, "0755", Step::BuildRoot)?;
    move_mount(&root, "", CWD, STAGING, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).at(Step::BuildRoot)?;
    for path in ["/proc", "/tmp", "/dev", "/dev/shm", "/home", HOME, WORKSPACE] {
        make_directory(&root, path, Step::BuildRoot)?;
    }
    place_all(&root, entries, sources)?;
    attach(&root, &tmpfs(shm, "1777", Step::MountTmp)?, "dev/shm", Step::MountTmp)?;
    Ok(root)
}

/// Further entries, in a root that stands.
pub(crate) fn place_all(
    root: &OwnedFd,
    entries: &[RootEntry],
    sources: &mut VecDeque<OwnedFd>,
) -> Result<(), Failure> {
    entries.iter().try_for_each(|entry| place(root, entry, sources))
}

/// The /proc of this process' own pid namespace, with what tells of the host masked.
pub(crate) fn show_processes(root: &OwnedFd) -> Result<(), Failure> {
    // A process mounts the /proc of its own pid namespace, and the kernel allows that only where the host's is there to be seen. What
    // covers it in this namespace is of our making, which the kernel leaves out of account.
    attach(root, &proc_mount()?, "proc", Step::MountProc)?;
    mask_proc(root)
}

/// What is the job's own: /tmp as large as it may be, and the terminals if it gets one.
pub(crate) fn make_own(root: &OwnedFd, plan: &JailPlan) -> Result<(), Failure> {
    attach(root, &tmpfs(plan.tmp, "1777", Step::MountTmp)?, "tmp", Step::MountTmp)?;
    match plan.console {
        Console::Pipes => Ok(()),
        Console::Terminal { .. } => {
            make_directory(root, terminal::PLACE, Step::Terminal)?;
            attach(root, &terminal::mount(JOB_ID)?, relative(terminal::PLACE), Step::Terminal)
        }
    }
}

/// Moves the host's directories and files in, each onto its entry.
pub(crate) fn hang(root: &OwnedFd, entries: &[RootEntry], views: &[OwnedFd]) -> Result<(), Failure> {
    let mut views = views.iter();
    for path in shown::places(entries) {
        let step = Step::OpenRoot;
        let view = views.next().ok_or(Failure { step, errno: Errno::BADF })?;
        attach(root, view, relative(path), step)?;
    }
    Ok(())
}

/// Moves the job's storage in. What is mounted in the workspace lands on the job's disk, and comes after this.
pub(crate) fn move_in(root: &OwnedFd, storage: &Storage) -> Result<(), Failure> {
    attach(root, &storage.workspace, relative(WORKSPACE), Step::MountWorkspace)?;
    attach(root, &storage.home, relative(HOME), Step::MountWorkspace)
}

/// From here on the skeleton is read-only.
pub(crate) fn close(root: &OwnedFd) -> Result<(), Failure> {
    let locked = Attributes { read_only: true, no_suid: true, ..Attributes::default() };
    set_attributes(root, locked, false).at(Step::PivotRoot)
}

/// Leaves the host's root for good, with what is spent.
pub(crate) fn leave_host(root: &OwnedFd, spent: &[OwnedFd]) -> Result<(), Failure> {
    for spent in spent {
        move_mount(spent, "", CWD, RUBBISH, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).at(Step::PivotRoot)?;
    }
    rustix::process::fchdir(root).at(Step::PivotRoot)?;
    // Old and new root are stacked on one place: the first unmount of "." takes the old one away.
    rustix::process::pivot_root(".", ".").at(Step::PivotRoot)?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).at(Step::PivotRoot)?;
    rustix::process::chdir("/").at(Step::PivotRoot)
}

fn place(root: &OwnedFd, entry: &RootEntry, sources: &mut VecDeque<OwnedFd>) -> Result<(), Failure> {
    match entry {
        RootEntry::Directory { path } => make_directory(root, path, Step::BuildRoot),
        RootEntry::Symlink { path, target } => {
            rustix::fs::symlinkat(target.as_str(), root, relative(path)).at(Step::BuildRoot)
        }
        RootEntry::File { path, content } => {
            let file = make_file(root, path, Step::BuildRoot)?;
            let written = rustix::io::write(&file, content.as_bytes()).at(Step::BuildRoot)?;
            if written == content.len() {
                Ok(())
            } else {
                Err(Failure { step: Step::BuildRoot, errno: Errno::NOSPC })
            }
        }
        RootEntry::Mount { path, .. } if check::is_at_or_below(path, WORKSPACE) => Ok(()),
        RootEntry::Bind { path, kind: BindKind::Directory, .. }
        | RootEntry::Mount { path, kind: BindKind::Directory, .. }
        | RootEntry::Throwaway { path, .. } => make_directory(root, path, Step::OpenRoot),
        RootEntry::Mount { path, kind: BindKind::File, .. }
        | RootEntry::Bind { path, kind: BindKind::File, .. } => {
            make_file(root, path, Step::OpenRoot).map(drop)
        }
        RootEntry::Device { path, .. } => {
            let step = Step::MountDevices;
            drop(make_file(root, path, step)?);
            let source = sources.pop_front().ok_or(Failure { step, errno: Errno::BADF })?;
            attach(root, &source, relative(path), step)
        }
    }
}

fn attach(root: &OwnedFd, mount: &OwnedFd, path: &str, step: Step) -> Result<(), Failure> {
    move_mount(mount, "", root, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).at(step)
}

fn proc_mount() -> Result<OwnedFd, Failure> {
    let step = Step::MountProc;
    let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC).at(step)?;
    fsconfig_set_string(&context, "source", "proc").at(step)?;
    fsconfig_create(&context).at(step)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).at(step)
}

/// Covers what a job has no business reading with /dev/null, and makes the kernel's settings read-only.
fn mask_proc(root: &OwnedFd) -> Result<(), Failure> {
    let step = Step::MountProc;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    for name in MASKED {
        let path = format!("proc/{name}");
        // Asked first, because a mount that was made and finds no place costs a grace period to take back.
        match rustix::fs::statat(root, &path, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            other => other.at(step)?,
        };
        attach(root, &open_tree(root, "dev/null", flags).at(step)?, &path, step)?;
    }
    let settings = open_tree(root, "proc/sys", flags).at(step)?;
    set_attributes(&settings, Attributes { read_only: true, ..Attributes::default() }, false).at(step)?;
    attach(root, &settings, "proc/sys", step)
}

fn make_directory(root: &OwnedFd, path: &str, step: Step) -> Result<(), Failure> {
    match rustix::fs::mkdirat(root, relative(path), Mode::from_raw_mode(0o755)) {
        // A plan may name a directory that already stands, such as /dev.
        Err(Errno::EXIST) => Ok(()),
        other => other.at(step),
    }
}

fn make_file(root: &OwnedFd, path: &str, step: Step) -> Result<OwnedFd, Failure> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(root.as_fd(), relative(path), flags, Mode::from_raw_mode(0o644)).at(step)
}

fn relative(path: &str) -> &str {
    path.trim_start_matches('/')
}
