//! Directories and files of the host, as a job sees them: through overlays of its own, read-only but for those it may change for itself,
//! whose upper layer is on its disk.
//!
//! A plain bind would share the host's inodes, and with them every socket that listens there, every lock, and the watches that
//! tell who opens what. An overlay's inodes are the sandbox's own; only contents are shared. What is mounted below such a
//! directory is not shown. There is no other way to show one: where the overlay cannot be made, nothing starts.
//! Every overlay costs the launch and its end a wait for all processors, so what is shown of /etc shares one: each is a
//! mount of its own part of it, and the rest of it has no mount that anybody inside could walk to. Another file is such a part of
//! an overlay of its directory.

use std::os::fd::{AsFd, OwnedFd};

use pond_sys::mount::{Attributes, set_attributes};
use pond_wire::jail::{BindKind, CheckoutPath, Identity, JailPlan, RootEntry, Step, TmpfsCap};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_fd,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, open_tree,
};

use crate::fault::{At, Failure};
use crate::idmap::owner_namespace;
use crate::root::clone_file;
use crate::storage::{self, Builder, Lasts, mount_below, open_directory, reopen, tmpfs};

const STEP: Step = Step::OpenRoot;
/// Room for the root of a filesystem and nothing else.
const EMPTY_CAP: TmpfsCap = TmpfsCap { bytes: 4096, inodes: 1 };
/// What is shown of this shares an overlay.
const SHARED: &str = "/etc";

/// Overlays as detached mounts, and the mounts they were made from. Those the job may change are missing until there is a disk.
pub(crate) struct Shown {
    views: Vec<Option<OwnedFd>>,
    files: Vec<OwnedFd>,
    spent: Vec<OwnedFd>,
}

/// What becomes of the host's directory inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View<'a> {
    ReadOnly(&'a str),
    Throwaway(Option<&'a str>),
    /// The host's own, by this name if it is still the same.
    Live {
        source: &'a CheckoutPath,
        writable: bool,
    },
}

/// The directories among a root's entries, in their order.
pub(crate) fn directories(entries: &[RootEntry]) -> impl Iterator<Item = (&str, View<'_>)> {
    entries.iter().filter_map(|entry| match entry {
        RootEntry::Bind { path, source, kind: BindKind::Directory } => {
            Some((path.as_str(), View::ReadOnly(source)))
        }
        RootEntry::Throwaway { path, source } => Some((path.as_str(), View::Throwaway(source.as_deref()))),
        RootEntry::Mount { path, source, writable, .. } => {
            Some((path.as_str(), View::Live { source, writable: *writable }))
        }
        RootEntry::Bind { kind: BindKind::File, .. }
        | RootEntry::Directory { .. }
        | RootEntry::Symlink { .. }
        | RootEntry::File { .. }
        | RootEntry::Device { .. } => None,
    })
}

/// The files among them, in their order: where each goes, and which it is.
fn files(entries: &[RootEntry]) -> impl Iterator<Item = (&str, &str)> {
    entries.iter().filter_map(|entry| match entry {
        RootEntry::Bind { path, source, kind: BindKind::File } => Some((path.as_str(), source.as_str())),
        RootEntry::Bind { kind: BindKind::Directory, .. }
        | RootEntry::Throwaway { .. }
        | RootEntry::Mount { .. }
        | RootEntry::Directory { .. }
        | RootEntry::Symlink { .. }
        | RootEntry::File { .. }
        | RootEntry::Device { .. } => None,
    })
}

fn is_shared(path: &str) -> bool {
    path.strip_prefix(SHARED).is_some_and(|rest| rest.starts_with('/'))
}

/// Where they all go: the directories, then the files.
pub(crate) fn places(entries: &[RootEntry]) -> impl Iterator<Item = &str> {
    directories(entries).map(|(path, _)| path).chain(files(entries).map(|(path, _)| path))
}

/// Everything that needs no disk.
pub(crate) fn show(entries: &[RootEntry], identity: Identity) -> Result<Shown, Failure> {
    let mut shown = Shown { views: Vec::new(), files: Vec::new(), spent: Vec::new() };
    if places(entries).next().is_none() {
        return Ok(shown);
    }
    // The second layer the kernel asks for. Nobody could write to it, and nobody does.
    let nothing = tmpfs(EMPTY_CAP, "0755", STEP)?;
    let empty = open_directory(&nothing, ".").at(STEP)?;
    let shared = Shared::of(entries, &empty)?;
    for (path, view) in directories(entries) {
        let view = match view {
            View::ReadOnly(source) if path == source => {
                let part = shared.as_ref().and_then(|shared| shared.part(path));
                Some(part.unwrap_or_else(|| whole(source, &empty))?)
            }
            View::ReadOnly(source) => Some(moved(source, &empty, &mut shown.spent)?),
            View::Live { source, writable } => Some(live(identity, source, writable)?),
            View::Throwaway(_) => None,
        };
        shown.views.push(view);
    }
    for (path, source) in files(entries) {
        let shared = shared.as_ref().filter(|_| path == source);
        let part = shared.and_then(|shared| shared.file(path));
        shown.files.push(part.unwrap_or_else(|| alone(source, &empty, &mut shown.spent))?);
    }
    shown.spent.extend(shared.map(|shared| shared.view));
    shown.spent.push(nothing);
    Ok(shown)
}

impl Shown {
    /// Views that need no disk, and what they were made from.
    pub(crate) fn without_disk(self) -> Result<(Vec<OwnedFd>, Vec<OwnedFd>), Failure> {
        let views: Option<Vec<OwnedFd>> = self.views.into_iter().collect();
        let mut all = views.ok_or(Failure { step: STEP, errno: Errno::INVAL })?;
        all.extend(self.files);
        Ok((all, self.spent))
    }

    /// All views in the entries' order, and what they were made from.
    pub(crate) fn on(
        self,
        entries: &[RootEntry],
        plan: &JailPlan,
        disk: &OwnedFd,
    ) -> Result<(Vec<OwnedFd>, Vec<OwnedFd>), Failure> {
        let Self { views, files, mut spent } = self;
        let mut all = Vec::new();
        // Counted by themselves, so that each finds its own layer again on a disk that is kept, whatever else the host shows.
        let mut layers = 0..;
        for (made, (_, view)) in views.into_iter().zip(directories(entries)) {
            all.push(match (made, view) {
                (Some(made), View::ReadOnly(_) | View::Throwaway(_) | View::Live { .. }) => made,
                (None, View::ReadOnly(_) | View::Live { .. }) => {
                    return Err(Failure { step: STEP, errno: Errno::INVAL });
                }
                (None, View::Throwaway(source)) => {
                    let tree = source.map(|source| owned_by_job(plan.identity, source)).transpose()?;
                    let index = layers.next().unwrap_or(usize::MAX);
                    let view = throwaway(disk, index, tree.as_ref(), plan)?;
                    spent.extend(tree);
                    view
                }
            });
        }
        all.extend(files);
        Ok((all, spent))
    }
}

/// A directory under its own name: the mount table may tell where it lies.
fn whole(source: &str, empty: &OwnedFd) -> Result<OwnedFd, Failure> {
    overlay(&open_directory(CWD, source).at(STEP)?, empty)
}

/// A directory under another name.
fn moved(source: &str, empty: &OwnedFd, spent: &mut Vec<OwnedFd>) -> Result<OwnedFd, Failure> {
    let tree = tree_of(source)?;
    let view = overlay(&open_directory(&tree, ".").at(STEP)?, empty)?;
    spent.push(tree);
    Ok(view)
}

/// A file that shares no overlay: part of one of its directory, of which nothing else is to be had.
fn alone(source: &str, empty: &OwnedFd, spent: &mut Vec<OwnedFd>) -> Result<OwnedFd, Failure> {
    let (directory, name) = source.rsplit_once('/').ok_or(Failure { step: STEP, errno: Errno::INVAL })?;
    let directory = if directory.is_empty() { "/" } else { directory };
    let here = open_directory(CWD, directory).at(STEP)?;
    // A link, a mount of its own, or one beside it where nobody may look behind that: its directory does not lead to it.
    let Ok(_straight) = walk(&here, name, FileType::RegularFile) else { return clone_file(source) };
    let tree = match tree_of(directory) {
        Err(Failure { errno: Errno::XDEV, .. }) => return clone_file(source),
        made => made?,
    };
    let view = overlay(&open_directory(&tree, ".").at(STEP)?, empty)?;
    let part = part(&view, name, FileType::RegularFile)?;
    spent.push(view);
    Ok(part)
}

/// One overlay for several directories, itself mounted nowhere.
struct Shared {
    place: OwnedFd,
    view: OwnedFd,
}

impl Shared {
    /// Nothing where it would save nothing, or where the place cannot be shown as a whole.
    fn of(entries: &[RootEntry], empty: &OwnedFd) -> Result<Option<Self>, Failure> {
        let whole =
            directories(entries).filter(|(path, view)| *view == View::ReadOnly(path) && is_shared(path));
        if whole.count() + files(entries).filter(|(path, source)| path == source && is_shared(path)).count()
            < 2
        {
            return Ok(None);
        }
        let place = open_directory(CWD, SHARED).at(STEP)?;
        match overlay(&place, empty) {
            // Something is mounted below it: each directory shows by itself whether that is where it matters.
            Err(Failure { errno: Errno::XDEV, .. }) => Ok(None),
            made => made.map(|view| Some(Self { place, view })),
        }
    }

    /// This directory's part; nothing for one that lies elsewhere, or behind a link or another mount.
    fn part(&self, path: &str) -> Option<Result<OwnedFd, Failure>> {
        self.part_of(path, FileType::Directory)
    }

    /// The same for a file.
    fn file(&self, path: &str) -> Option<Result<OwnedFd, Failure>> {
        self.part_of(path, FileType::RegularFile)
    }

    fn part_of(&self, path: &str, kind: FileType) -> Option<Result<OwnedFd, Failure>> {
        let inside = path.strip_prefix(SHARED)?.strip_prefix('/')?;
        walk(&self.place, inside, kind).ok()?;
        Some(part(&self.view, inside, kind))
    }
}

/// A mount of one directory or file of an overlay.
fn part(view: &OwnedFd, path: &str, kind: FileType) -> Result<OwnedFd, Failure> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    walk(view, path, kind).and_then(|part| open_tree(part, "", flags)).at(STEP)
}

fn walk(from: &OwnedFd, path: &str, kind: FileType) -> Result<OwnedFd, Errno> {
    let straight = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let found = openat2(from, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), straight)?;
    let is_kind = FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) == kind;
    is_kind.then_some(found).ok_or(Errno::OPNOTSUPP)
}

/// A mount of its own has no path: the mount table will not tell where on the host the directory lies.
fn tree_of(source: &str) -> Result<OwnedFd, Failure> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(CWD, source, flags).map_err(mount_below).at(STEP)
}

/// A mount of the host's tree itself, as declared by whoever asked for the sandbox: it must still be what they named. There is no
/// overlay between, whose view of a tree that changes would be an old one.
fn live(identity: Identity, source: &CheckoutPath, writable: bool) -> Result<OwnedFd, Failure> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(reopen(source)?, "", flags).map_err(mount_below).at(STEP)?;
    given_to_job(identity, tree, !writable)
}

/// As a read-only mount whose owner appears as the job: what it may change must be its own.
fn owned_by_job(identity: Identity, source: &str) -> Result<OwnedFd, Failure> {
    given_to_job(identity, tree_of(source)?, true)
}

fn given_to_job(identity: Identity, tree: OwnedFd, read_only: bool) -> Result<OwnedFd, Failure> {
    let owners = match identity {
        Identity::Range { base, .. } => {
            let stat = rustix::fs::fstat(&tree).at(STEP)?;
            owner_namespace(Identity::Range { base, owner_uid: stat.st_uid, owner_gid: stat.st_gid })?
        }
        Identity::Single { .. } => None,
    };
    let attributes = Attributes {
        read_only,
        no_suid: true,
        no_dev: true,
        private: true,
        idmap: owners.as_ref().map(AsFd::as_fd),
        ..Attributes::default()
    };
    set_attributes(&tree, attributes, false).at(STEP)?;
    Ok(tree)
}

fn throwaway(
    disk: &OwnedFd,
    index: usize,
    lower: Option<&OwnedFd>,
    plan: &JailPlan,
) -> Result<OwnedFd, Failure> {
    let (builder, lasts) = (Builder::of(plan.identity), Lasts::of(plan.scratch));
    let (upper, work) = (format!("t{index}"), format!("t{index}w"));
    let layer = storage::directory(disk, &upper, builder)?;
    match lower {
        None => storage::subtree(disk, &upper),
        Some(lower) => {
            let work = storage::directory(disk, &work, builder)?;
            storage::overlay(builder, lower, &layer, &work, lasts)
        }
    }
}

/// Without an upper layer an overlay is read-only for good, whatever its mount says.
fn overlay(directory: &OwnedFd, empty: &OwnedFd) -> Result<OwnedFd, Failure> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).at(STEP)?;
    fsconfig_set_flag(&context, "ro").at(STEP)?;
    fsconfig_set_fd(&context, "lowerdir+", directory.as_fd()).at(STEP)?;
    fsconfig_set_fd(&context, "lowerdir+", empty.as_fd()).at(STEP)?;
    // Nothing that is written in the host's directory may lead to another part of it.
    fsconfig_set_string(&context, "redirect_dir", "nofollow").at(STEP)?;
    for feature in ["metacopy", "index", "xino"] {
        fsconfig_set_string(&context, feature, "off").at(STEP)?;
    }
    fsconfig_create(&context).map_err(mount_below).at(STEP)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).at(STEP)
}
