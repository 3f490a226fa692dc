//! The staging directory: new contents, verified against their digests, one numbered slot each, on the checkout's own
//! file system so that they can change places with what is there.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode as Permissions, Stat, Uid};
use rustix::io::Errno;

use super::journal::{Action, Journal, Step};
use super::plan::{Move, MoveKind, Plan};
use super::{Accept, ApplyOptions, ApplyRefused, attributes};
use crate::collect::link::{Leads, leads};
use crate::collect::{Leaf, Mode};
use crate::object::{Sparse, Store};
use crate::path::RelPath;
use crate::{beneath, fault};

/// Makes the staging directory and fills in the journal's steps.
pub(super) fn stage(
    plan: &Plan,
    store: &Store,
    root: BorrowedFd<'_>,
    options: ApplyOptions,
    journal: &mut Journal,
) -> Result<OwnedFd, ApplyRefused> {
    let opened = |errno: Errno| ApplyRefused::Open { source: errno.into() };
    rustix::fs::mkdirat(root, &journal.staging, Permissions::RWXU).map_err(opened)?;
    fault::point();
    let staging = beneath::open_dir(root, journal.staging.as_bytes()).map_err(opened)?;
    let tree = rustix::fs::fstat(root).map_err(opened)?;
    for (number, planned) in plan.moves.iter().enumerate() {
        let stager = Stager { store, root, staging: staging.as_fd(), tree: &tree, options };
        let step = stager.one(number, planned)?;
        journal.steps.push(step);
        fault::point();
    }
    journal.made.clone_from(&plan.made);
    journal.gone.clone_from(&plan.gone);
    Ok(staging)
}

struct Stager<'a> {
    store: &'a Store,
    root: BorrowedFd<'a>,
    staging: BorrowedFd<'a>,
    tree: &'a Stat,
    options: ApplyOptions,
}

impl Stager<'_> {
    fn one(&self, number: usize, planned: &Move) -> Result<Step, ApplyRefused> {
        let slot = slot(number);
        let path = planned.path.clone();
        let action = match &planned.kind {
            MoveKind::Remove { .. } => Action::Remove,
            MoveKind::Replace { seen, new } => {
                Action::Replace { staged: self.leaf(&slot, &path, *new, Some(seen))? }
            }
            MoveKind::Create { new } => Action::Create { staged: self.leaf(&slot, &path, *new, None)? },
        };
        Ok(Step { path, action })
    }

    fn leaf(
        &self,
        slot: &str,
        path: &RelPath,
        new: Leaf,
        replaced: Option<&Stat>,
    ) -> Result<u64, ApplyRefused> {
        let written = match new.mode {
            Mode::Link => self.link(slot, path, new)?,
            Mode::Regular | Mode::Executable => self.file(slot, path, new, replaced),
        };
        let owned = written.and_then(|()| self.hand_over(slot, path, replaced));
        let inode = owned.and_then(|()| {
            let stat = rustix::fs::statat(self.staging, slot, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(stat.st_ino)
        });
        inode.map_err(|source| ApplyRefused::Stage { path: path.clone(), source })
    }

    fn file(&self, slot: &str, path: &RelPath, new: Leaf, replaced: Option<&Stat>) -> io::Result<()> {
        let replaced = replaced.filter(|stat| beneath::kind(stat) == FileType::RegularFile);
        // What is new is as open as the caller's umask lets things be; nobody gets through the directory that it waits in.
        let born = if replaced.is_some() { 0o600 } else { permissions(new.mode, 0o666) };
        let born = Permissions::from_raw_mode(born);
        let fd = beneath::create_file(self.staging, slot.as_bytes(), born)?;
        let target = Sparse { file: File::from(fd.try_clone()?), end: 0 };
        self.store.copy_out(new.sha256, target)?;
        if let Some(replaced) = replaced {
            let old = beneath::open_file(self.root, path.as_bytes())?;
            attributes::hand_on(old.as_fd(), fd.as_fd())?;
            let mode = permissions(new.mode, replaced.st_mode & 0o666);
            rustix::fs::fchmod(&fd, Permissions::from_raw_mode(mode))?;
        }
        Ok(())
    }

    /// To whoever had what it replaces; what is new to the owner of the tree, in the group that its directory hands down.
    fn hand_over(&self, slot: &str, path: &RelPath, replaced: Option<&Stat>) -> io::Result<()> {
        let is_root = rustix::process::geteuid().is_root();
        let owner = replaced.unwrap_or(self.tree);
        let group = match replaced {
            Some(replaced) => Some(replaced.st_gid),
            None => self.handed_down(path)?.or(is_root.then_some(owner.st_gid)),
        };
        // Nobody but root gives anything away, or to a group that is not theirs.
        let user = is_root.then(|| Uid::from_raw(owner.st_uid));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        match rustix::fs::chownat(self.staging, slot, user, group.map(Gid::from_raw), flags) {
            Err(Errno::PERM) if !is_root => self.close_to_group(slot),
            done => Ok(done?),
        }
    }

    /// The group of the nearest directory there is, if that is one to share its group.
    fn handed_down(&self, path: &RelPath) -> io::Result<Option<u32>> {
        let bytes = path.as_bytes();
        let ends = bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        for end in ends.chain([0]) {
            match beneath::open_handle(self.root, bytes.get(..end).unwrap_or_default()) {
                Ok(found) => {
                    let stat = rustix::fs::fstat(&found)?;
                    // What is about to make room for a directory is none yet.
                    if beneath::kind(&stat) == FileType::Directory {
                        let shares = Permissions::from_raw_mode(stat.st_mode).contains(Permissions::SGID);
                        return Ok(shares.then_some(stat.st_gid));
                    }
                }
                Err(errno) if beneath::is_absent(errno) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(None)
    }

    /// It stays in a group that is not the one its permissions were meant for, which gets what everybody has.
    fn close_to_group(&self, slot: &str) -> io::Result<()> {
        let stat = rustix::fs::statat(self.staging, slot, AtFlags::SYMLINK_NOFOLLOW)?;
        if beneath::kind(&stat) != FileType::RegularFile {
            return Ok(());
        }
        let mode = (stat.st_mode & 0o707) | ((stat.st_mode & 0o007) << 3);
        Ok(rustix::fs::chmodat(self.staging, slot, Permissions::from_raw_mode(mode), AtFlags::empty())?)
    }

    fn link(&self, slot: &str, path: &RelPath, new: Leaf) -> Result<io::Result<()>, ApplyRefused> {
        let target = match self.store.bytes(new.sha256) {
            Ok(target) => target,
            Err(error) => return Ok(Err(error)),
        };
        match (leads(path, &target), self.options.escaping_links) {
            (Leads::Outside | Leads::IntoGitMetadata, Accept::No) => {
                Err(ApplyRefused::EscapingLink { path: path.clone() })
            }
            (Leads::Inside, Accept::No | Accept::Yes)
            | (Leads::Outside | Leads::IntoGitMetadata, Accept::Yes) => {
                Ok(rustix::fs::symlinkat(target.as_slice(), self.staging, slot).map_err(io::Error::from))
            }
        }
    }
}

/// A directory that was made, as root on behalf of whoever owns the one it lies in; anyone else can only make their own.
pub(super) fn give(dir: BorrowedFd<'_>, name: &[u8], owner: &Stat) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
    Ok(rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Only the right to execute follows the result: whoever may read may then execute.
fn permissions(mode: Mode, bits: u32) -> u32 {
    match mode {
        Mode::Executable => bits | (bits & 0o444) >> 2,
        Mode::Regular | Mode::Link => bits,
    }
}

pub(super) fn slot(number: usize) -> String {
    number.to_string()
}

/// Where the directory with this number waits while it is gone.
pub(super) fn directory_slot(number: usize) -> String {
    format!("d{number}")
}

pub(super) fn open(root: BorrowedFd<'_>, journal: &Journal) -> Result<Option<OwnedFd>, ApplyRefused> {
    match beneath::open_dir(root, journal.staging.as_bytes()) {
        Ok(staging) => Ok(Some(staging)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(ApplyRefused::Open { source: errno.into() }),
    }
}

/// Removes the staging directory: slots are files, links and empty directories.
pub(super) fn remove(root: BorrowedFd<'_>, journal: &Journal) -> Result<(), ApplyRefused> {
    let failed =
        |errno: Errno| ApplyRefused::Clean { staging: journal.staging.clone(), source: errno.into() };
    let Some(staging) = open(root, journal)? else { return Ok(()) };
    beneath::each_name(staging.as_fd(), failed, |name| {
        let stat = beneath::stat(&staging, name).map_err(failed)?;
        let is_directory = beneath::kind(&stat) == FileType::Directory;
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(&staging, name, flags).map_err(failed)?;
        fault::point();
        Ok(())
    })?;
    rustix::fs::unlinkat(root, &journal.staging, AtFlags::REMOVEDIR).map_err(failed)?;
    fault::point();
    Ok(())
}
