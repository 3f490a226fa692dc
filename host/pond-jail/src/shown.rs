//! Directories of the host as a job sees them: each through an overlay of its own, read-only but for those it may change for
//! itself, whose upper layer is on its disk.
//!
//! A plain bind would share the host's inodes, and with them every socket that listens there, every lock, and the watches that
//! tell who opens what. An overlay's inodes are the sandbox's own; only contents are shared. What is mounted below such a
//! directory is not shown. There is no other way to show one: where the overlay cannot be made, nothing starts.

use std::os::fd::{AsFd, OwnedFd};

use pond_sys::mount::{Attributes, set_attributes};
use pond_wire::jail::{BindKind, Identity, JailPlan, RootEntry, Step};
use rustix::fs::{CWD, Mode};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_fd,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, open_tree,
};

use crate::fault::{At, Failure};
use crate::idmap::owner_namespace;
use crate::storage::{self, Builder, mount_below, open_directory};

const STEP: Step = Step::OpenRoot;
/// The second layer the kernel asks for. Nobody but the launcher writes to it, and it writes nothing.
const EMPTY: &str = "e";

/// Overlays as detached mounts, and the mounts they were made from.
pub(crate) struct Shown {
    pub(crate) views: Vec<OwnedFd>,
    pub(crate) spent: Vec<OwnedFd>,
}

/// What becomes of the host's directory inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View<'a> {
    ReadOnly(&'a str),
    Throwaway(Option<&'a str>),
}

/// The plan's directories, in its order.
pub(crate) fn directories(plan: &JailPlan) -> impl Iterator<Item = (&str, View<'_>)> {
    plan.root.iter().filter_map(|entry| match entry {
        RootEntry::Bind { path, source, kind: BindKind::Directory } => {
            Some((path.as_str(), View::ReadOnly(source)))
        }
        RootEntry::Throwaway { path, source } => Some((path.as_str(), View::Throwaway(source.as_deref()))),
        RootEntry::Bind { kind: BindKind::File, .. }
        | RootEntry::Directory { .. }
        | RootEntry::Symlink { .. }
        | RootEntry::File { .. }
        | RootEntry::Device { .. } => None,
    })
}

pub(crate) fn show(plan: &JailPlan, disk: &OwnedFd) -> Result<Shown, Failure> {
    let empty = empty_layer(disk)?;
    let mut shown = Shown { views: Vec::new(), spent: Vec::new() };
    for (index, (_, view)) in directories(plan).enumerate() {
        match view {
            View::ReadOnly(source) => {
                let tree = tree_of(source)?;
                shown.views.push(overlay(&tree, &empty)?);
                shown.spent.push(tree);
            }
            View::Throwaway(source) => {
                let tree = source.map(|source| owned_by_job(plan.identity, source)).transpose()?;
                shown.views.push(throwaway(disk, index, tree.as_ref(), Builder::of(plan.identity))?);
                shown.spent.extend(tree);
            }
        }
    }
    Ok(shown)
}

/// A mount of its own has no path: the mount table will not tell where on the host the directory lies.
fn tree_of(source: &str) -> Result<OwnedFd, Failure> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(CWD, source, flags).map_err(mount_below).at(STEP)
}

/// As a read-only mount whose owner appears as the job: what it may change must be its own.
fn owned_by_job(identity: Identity, source: &str) -> Result<OwnedFd, Failure> {
    let tree = tree_of(source)?;
    let owners = match identity {
        Identity::Range { base, .. } => {
            let stat = rustix::fs::fstat(&tree).at(STEP)?;
            owner_namespace(Identity::Range { base, owner_uid: stat.st_uid, owner_gid: stat.st_gid })?
        }
        Identity::Single { .. } => None,
    };
    let attributes = Attributes {
        read_only: true,
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
    builder: Builder,
) -> Result<OwnedFd, Failure> {
    let (upper, work) = (format!("t{index}"), format!("t{index}w"));
    let layer = storage::directory(disk, &upper, builder)?;
    match lower {
        None => storage::subtree(disk, &upper),
        Some(lower) => storage::overlay(builder, lower, &layer, &storage::directory(disk, &work, builder)?),
    }
}

fn empty_layer(disk: &OwnedFd) -> Result<OwnedFd, Failure> {
    match rustix::fs::mkdirat(disk, EMPTY, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => open_directory(disk, EMPTY).at(STEP),
        Err(errno) => Err(errno).at(STEP),
    }
}

/// Without an upper layer an overlay is read-only for good, whatever its mount says.
fn overlay(tree: &OwnedFd, empty: &OwnedFd) -> Result<OwnedFd, Failure> {
    let directory = open_directory(tree, ".").at(STEP)?;
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).at(STEP)?;
    fsconfig_set_flag(&context, "ro").at(STEP)?;
    fsconfig_set_fd(&context, "lowerdir+", directory.as_fd()).at(STEP)?;
    fsconfig_set_fd(&context, "lowerdir+", empty.as_fd()).at(STEP)?;
    // Nothing that is written in the host's directory may lead to another part of it.
    fsconfig_set_string(&context, "redirect_dir", "nofollow").at(STEP)?;
    for feature in ["metacopy", "index", "xino"] {
        fsconfig_set_string(&context, feature, "off").at(STEP)?;
    }
    fsconfig_create(&context).at(STEP)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).at(STEP)
}
