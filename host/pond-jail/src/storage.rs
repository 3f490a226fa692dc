//! The job's disk: a bounded scratch filesystem and the view of the checkout, as detached mounts.
//!
//! Nothing here has a path: mounts are descriptors until the sandbox moves them into its own root, so there is nothing to
//! unmount, and everything vanishes with the last descriptor. The scratch holds `u` (the upper layer), `w` (overlay's own)
//! `h` (the job's home) and `t…` (layers over directories of the host that the job may change).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pond_sys::mount::{Attributes, set_attributes};
use pond_wire::jail::{
    BindKind, CheckoutPath, CheckoutView, Identity, JOB_ID, JailPlan, ReplacedFile, RootEntry, Scratch, Step,
    TmpfsCap, WORKSPACE,
};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_fd,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, open_tree,
};

use crate::fault::{At, Failure};
use crate::idmap::Owners;
use crate::{idmap, owners, shown};

/// The mounts a sandbox needs from outside its root, and what the collector reads afterwards.
pub(crate) struct Storage {
    /// The host's directories, in the plan's order.
    pub(crate) shown: Vec<OwnedFd>,
    pub(crate) workspace: OwnedFd,
    pub(crate) home: OwnedFd,
    /// The upper layer as an ordinary directory descriptor.
    pub(crate) upper: OwnedFd,
    /// Mounts that the others were made from. Letting go of one waits for every processor, and delays whoever waits likewise; so
    /// they are left to an unmount that waits anyhow.
    pub(crate) spent: Vec<OwnedFd>,
}

/// Whose privileges build the storage, which decides how owners and overlay metadata are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Builder {
    /// The host's root: owners translated, overlay metadata out of the job's reach.
    Host { base: u32 },
    /// Root of the sandbox's own user namespace, standing for one ordinary user.
    Inside,
}

impl Builder {
    pub(crate) fn of(identity: Identity) -> Self {
        match identity {
            Identity::Range { base, .. } => Self::Host { base },
            Identity::Single { .. } => Self::Inside,
        }
    }
}

/// `shown` are the entries of the plan whose directories do not stand yet; `owners` translates the checkout's, unless that has to
/// be made. `disk` is asked for when all is done that can be done without: it may still be in the making.
pub(crate) fn build(
    plan: &JailPlan,
    shown: &[RootEntry],
    owners: Option<Owners>,
    disk: impl FnOnce() -> Result<OwnedFd, Failure>,
    checkout: BorrowedFd<'_>,
) -> Result<Storage, Failure> {
    let builder = Builder::of(plan.identity);
    let views = shown::show(shown, plan.identity)?;
    let owners = match owners {
        Some(owners) => Some(owners),
        None => idmap::owner_namespace(plan.identity)?,
    };
    let tree = |named| checkout_tree(builder, named, checkout, owners.as_ref());
    let lower = match &plan.checkout {
        CheckoutView::Empty => None,
        CheckoutView::ReadOnly(named) | CheckoutView::Copy(named) => Some(tree(named)?),
    };
    let disk = disk()?;
    if let (Builder::Host { base }, Lasts::Yes) = (builder, Lasts::of(plan.scratch)) {
        owners::move_to(&disk, base)?;
    }
    let (views, mut spent) = views.on(shown, plan, &disk)?;
    let upper = directory(&disk, "u", builder)?;
    let work = directory(&disk, "w", builder)?;
    directory(&disk, "h", builder)?;
    for file in &plan.replaced {
        replace(&upper, file, builder)?;
    }
    prepare_mount_points(&upper, plan, builder)?;
    let home = subtree(&disk, "h")?;
    let workspace = match &lower {
        None => subtree(&disk, "u")?,
        // Never the tree itself: the mount table would tell the job where on the host it lies.
        Some(lower) => overlay(builder, lower, &upper, &work, Lasts::of(plan.scratch))?,
    };
    if let CheckoutView::ReadOnly(_) = plan.checkout {
        let locked = Attributes { read_only: true, ..Attributes::default() };
        set_attributes(&workspace, locked, false).at(Step::MountWorkspace)?;
    }
    spent.extend(lower);
    spent.push(disk);
    Ok(Storage { shown: views, workspace, home, upper, spent })
}

/// The checkout as a read-only mount of its own, without setuid or device files, owned by the job.
fn checkout_tree(
    builder: Builder,
    named: &CheckoutPath,
    checkout: BorrowedFd<'_>,
    owners: Option<&Owners>,
) -> Result<OwnedFd, Failure> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = match builder {
        Builder::Host { .. } => open_tree(checkout, "", flags).at(Step::OpenCheckout)?,
        // The descriptor came from another mount namespace, where an ordinary user may clone nothing: the directory is
        // opened again by name and must be the same one.
        Builder::Inside => {
            open_tree(reopen(named)?, "", flags).map_err(mount_below).at(Step::OpenCheckout)?
        }
    };
    let attributes = Attributes {
        read_only: true,
        no_suid: true,
        no_dev: true,
        private: true,
        idmap: owners.map(AsFd::as_fd),
        ..Attributes::default()
    };
    set_attributes(&tree, attributes, false).at(Step::OpenCheckout)?;
    Ok(tree)
}

/// What is mounted below a directory hides part of it, and only the host's root may see behind: for everybody else the kernel
/// finds the call invalid, which would say nothing.
pub(crate) fn mount_below(errno: Errno) -> Errno {
    if errno == Errno::INVAL { Errno::XDEV } else { errno }
}

/// The directory, or the file where that is what it was.
pub(crate) fn reopen(named: &CheckoutPath) -> Result<OwnedFd, Failure> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let again = rustix::fs::openat2(CWD, &named.path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        .at(Step::OpenCheckout)?;
    let stat = rustix::fs::fstat(&again).at(Step::OpenCheckout)?;
    if (stat.st_dev, stat.st_ino) == (named.device, named.inode) {
        Ok(again)
    } else {
        Err(Failure { step: Step::OpenCheckout, errno: Errno::STALE })
    }
}

/// Whether what is written outlives the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasts {
    Yes,
    No,
}

impl Lasts {
    pub(crate) fn of(scratch: Scratch) -> Self {
        match scratch {
            Scratch::KeptImage => Self::Yes,
            Scratch::Ext4Image | Scratch::Tmpfs(_) => Self::No,
        }
    }
}

pub(crate) fn overlay(
    builder: Builder,
    lower: &OwnedFd,
    upper: &OwnedFd,
    work: &OwnedFd,
    lasts: Lasts,
) -> Result<OwnedFd, Failure> {
    let step = Step::MountWorkspace;
    let lower = open_directory(lower, ".").at(step)?;
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).at(step)?;
    fsconfig_set_fd(&context, "lowerdir+", lower.as_fd()).at(step)?;
    fsconfig_set_fd(&context, "upperdir", upper.as_fd()).at(step)?;
    fsconfig_set_fd(&context, "workdir", work.as_fd()).at(step)?;
    // Where nothing survives the job, nothing needs to survive a power cut, and the kernel would not take such a layer again.
    if lasts == Lasts::No {
        fsconfig_set_flag(&context, "volatile").at(step)?;
    }
    // A directory must never be able to point at another part of the lower layer.
    fsconfig_set_string(&context, "redirect_dir", "nofollow").at(step)?;
    fsconfig_set_string(&context, "metacopy", "off").at(step)?;
    match builder {
        Builder::Host { .. } => {}
        Builder::Inside => fsconfig_set_flag(&context, "userxattr").at(step)?,
    }
    finish(&context, step)
}

/// A scratch in memory.
pub(crate) fn scratch(cap: TmpfsCap) -> Result<OwnedFd, Failure> {
    tmpfs(cap, "0755", Step::MountScratch)
}

/// A tmpfs bounded in bytes and inodes; one bound alone is none.
pub(crate) fn tmpfs(cap: TmpfsCap, mode: &str, step: Step) -> Result<OwnedFd, Failure> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).at(step)?;
    fsconfig_set_string(&context, "source", "tmpfs").at(step)?;
    fsconfig_set_string(&context, "size", cap.bytes.to_string()).at(step)?;
    fsconfig_set_string(&context, "nr_inodes", cap.inodes.to_string()).at(step)?;
    fsconfig_set_string(&context, "mode", mode).at(step)?;
    finish(&context, step)
}

pub(crate) fn finish(context: &OwnedFd, step: Step) -> Result<OwnedFd, Failure> {
    fsconfig_create(context).at(step)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).at(step)
}

/// Puts a file into the upper layer before the overlay exists, where it hides the checkout's own. The directories on the way
/// are made by us in an empty layer, so nothing can stand in for them.
fn replace(upper: &OwnedFd, file: &ReplacedFile, builder: Builder) -> Result<(), Failure> {
    let step = Step::MountScratch;
    let mut parent = upper.try_clone().at(step)?;
    let mut parts = file.path.split('/').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_some() {
            parent = directory(&parent, part, builder)?;
            continue;
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&parent, part, flags, Mode::from_raw_mode(0o644)).at(step)?;
        let written = rustix::io::write(&made, file.content.as_bytes()).at(step)?;
        if written != file.content.len() {
            return Err(Failure { step, errno: Errno::NOSPC });
        }
        give_to_job(&parent, part, builder)?;
    }
    Ok(())
}

/// Where something is to be mounted in the workspace. On a disk that was used before, anything may stand there; a link or something of
/// another kind is no place for it.
fn prepare_mount_points(upper: &OwnedFd, plan: &JailPlan, builder: Builder) -> Result<(), Failure> {
    let step = Step::MountWorkspace;
    for entry in &plan.root {
        let RootEntry::Mount { path, kind, .. } = entry else { continue };
        let Some(inside) = path.strip_prefix(WORKSPACE).map(|rest| rest.trim_start_matches('/')) else {
            continue;
        };
        let mut at = upper.try_clone().at(step)?;
        let mut parts = inside.split('/').filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() && *kind == BindKind::File {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK;
                let mode = Mode::from_raw_mode(0o644);
                let made = rustix::fs::openat2(&at, part, flags, mode, STRAIGHT).at(step)?;
                let found = FileType::from_raw_mode(rustix::fs::fstat(&made).at(step)?.st_mode);
                if !found.is_file() {
                    return Err(Failure { step, errno: Errno::NOTUNIQ });
                }
                give_to_job(&at, part, builder)?;
                continue;
            }
            match rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(0o755)) {
                Ok(()) => give_to_job(&at, part, builder)?,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(Failure { step, errno }),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            at = rustix::fs::openat2(&at, part, flags, Mode::empty(), STRAIGHT).at(step)?;
        }
    }
    Ok(())
}

const STRAIGHT: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

fn give_to_job(parent: &OwnedFd, name: &str, builder: Builder) -> Result<(), Failure> {
    let Builder::Host { base } = builder else { return Ok(()) };
    let (uid, gid) = (Uid::from_raw(base + JOB_ID), Gid::from_raw(base + JOB_ID));
    rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).at(Step::MountScratch)
}

pub(crate) fn directory(disk: &OwnedFd, name: &str, builder: Builder) -> Result<OwnedFd, Failure> {
    let step = Step::MountScratch;
    match rustix::fs::mkdirat(disk, name, Mode::from_raw_mode(0o755)) {
        // An image comes with its directories.
        Err(Errno::EXIST) => {}
        other => other.at(step)?,
    }
    give_to_job(disk, name, builder)?;
    open_directory(disk, name).at(step)
}

pub(crate) fn open_directory(at: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(at, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

pub(crate) fn subtree(disk: &OwnedFd, name: &str) -> Result<OwnedFd, Failure> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(disk, name, flags).at(Step::MountScratch)
}
