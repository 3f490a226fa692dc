//! The steps that change the checkout, and their undoing.
//!
//! Each step is one rename by descriptor and leaves a trace from which [`roll_back`] tells whether it was taken:
//! a removed file stands in its slot, a created one does not, a replaced one has changed places with its slot. Both
//! directions may be cut short anywhere and run again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, RenameFlags, Stat};
use rustix::io::Errno;

use super::ApplyRefused;
use super::journal::{Action, Journal};
use super::plan::{MoveKind, Plan};
use super::stage::{directory_slot, give, slot};
use crate::collect::same_file;
use crate::path::RelPath;
use crate::{beneath, fault};

/// Removals, emptied directories, new directories, replacements, creations: the order that lets a file become a
/// directory and the reverse.
pub(super) fn commit(
    plan: &Plan,
    journal: &Journal,
    root: BorrowedFd<'_>,
    staging: BorrowedFd<'_>,
) -> Result<(), ApplyRefused> {
    let tree = Trees { root, staging };
    let steps = || plan.moves.iter().enumerate();
    for (number, step) in steps() {
        if let MoveKind::Remove { seen } = &step.kind {
            tree.take(&step.path, &slot(number)).map_err(|source| changing(&step.path, source))?;
            tree.verify(&step.path, number, seen)?;
        }
    }
    for (number, dir) in journal.gone.iter().enumerate() {
        tree.take_if_empty(dir, &directory_slot(number)).map_err(|source| changing(dir, source))?;
    }
    for dir in &journal.made {
        tree.make(dir).map_err(|source| changing(dir, source))?;
    }
    for (number, step) in steps() {
        if let MoveKind::Replace { seen, .. } = &step.kind {
            tree.swap(&step.path, &slot(number)).map_err(|source| changing(&step.path, source))?;
            tree.verify(&step.path, number, seen)?;
        }
    }
    for (number, step) in steps() {
        if let MoveKind::Create { .. } = step.kind {
            tree.put(&step.path, &slot(number)).map_err(|source| changing(&step.path, source))?;
        }
    }
    Ok(())
}

fn changing(path: &RelPath, source: io::Error) -> ApplyRefused {
    ApplyRefused::Change { path: path.clone(), source }
}

/// Undoes whatever steps were taken, last kind first.
pub(super) fn roll_back(
    journal: &Journal,
    root: BorrowedFd<'_>,
    staging: BorrowedFd<'_>,
) -> Result<(), ApplyRefused> {
    let tree = Trees { root, staging };
    let failed = |path: &RelPath| {
        let (path, staging) = (path.clone(), journal.staging.clone());
        move |source| ApplyRefused::Undo { path, staging, source }
    };
    let steps = || journal.steps.iter().enumerate();
    for (number, step) in steps() {
        if let Action::Create { staged } = step.action {
            tree.untake(&step.path, &slot(number), staged).map_err(failed(&step.path))?;
        }
    }
    for dir in journal.made.iter().rev() {
        tree.unmake(dir).map_err(failed(dir))?;
    }
    for (number, step) in steps() {
        if let Action::Replace { staged } = step.action {
            tree.unswap(&step.path, &slot(number), staged).map_err(failed(&step.path))?;
        }
    }
    for (number, dir) in journal.gone.iter().enumerate().rev() {
        tree.put_back(dir, &directory_slot(number)).map_err(failed(dir))?;
    }
    for (number, step) in steps() {
        if let Action::Remove = step.action {
            tree.put_back(&step.path, &slot(number)).map_err(failed(&step.path))?;
        }
    }
    Ok(())
}

struct Trees<'a> {
    root: BorrowedFd<'a>,
    staging: BorrowedFd<'a>,
}

impl Trees<'_> {
    fn parent(&self, path: &RelPath) -> io::Result<OwnedFd> {
        Ok(beneath::open_dir(self.root, path.split().0)?)
    }

    fn take(&self, path: &RelPath, slot: &str) -> io::Result<()> {
        let parent = self.parent(path)?;
        rustix::fs::renameat_with(&parent, path.split().1, self.staging, slot, RenameFlags::NOREPLACE)?;
        fault::point();
        Ok(())
    }

    fn put(&self, path: &RelPath, slot: &str) -> io::Result<()> {
        let parent = self.parent(path)?;
        rustix::fs::renameat_with(self.staging, slot, &parent, path.split().1, RenameFlags::NOREPLACE)?;
        fault::point();
        Ok(())
    }

    fn swap(&self, path: &RelPath, slot: &str) -> io::Result<()> {
        let parent = self.parent(path)?;
        rustix::fs::renameat_with(self.staging, slot, &parent, path.split().1, RenameFlags::EXCHANGE)?;
        fault::point();
        Ok(())
    }

    /// What left the checkout must be what the survey saw: nothing was written in between.
    fn verify(&self, path: &RelPath, number: usize, seen: &Stat) -> Result<(), ApplyRefused> {
        let now = self.slot_stat(&slot(number)).map_err(|source| changing(path, source))?;
        if now.is_some_and(|now| same_file(&now, seen)) {
            Ok(())
        } else {
            Err(ApplyRefused::Moved { path: path.clone() })
        }
    }

    fn take_if_empty(&self, dir: &RelPath, slot: &str) -> io::Result<()> {
        let fd = match beneath::open_dir(self.root, dir.as_bytes()) {
            Ok(fd) => fd,
            Err(errno) if beneath::is_absent(errno) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        if !is_empty(fd.as_fd())? {
            return Ok(());
        }
        self.take(dir, slot)?;
        // Someone may have written into it between the look and the move; then the whole apply is undone.
        let slot_fd = beneath::open_dir(self.staging, slot.as_bytes())?;
        if is_empty(slot_fd.as_fd())? { Ok(()) } else { Err(Errno::NOTEMPTY.into()) }
    }

    fn make(&self, dir: &RelPath) -> io::Result<()> {
        let parent = self.parent(dir)?;
        rustix::fs::mkdirat(&parent, dir.split().1, Mode::from_raw_mode(0o777))?;
        give(parent.as_fd(), dir.split().1, &rustix::fs::fstat(&parent)?)?;
        fault::point();
        Ok(())
    }

    /// A directory that is in use by someone else by now is left to them.
    fn unmake(&self, dir: &RelPath) -> io::Result<()> {
        let parent = match self.parent(dir) {
            Ok(parent) => parent,
            Err(error)
                if error.raw_os_error().map(Errno::from_raw_os_error).is_some_and(beneath::is_absent) =>
            {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let removed = rustix::fs::unlinkat(parent, dir.split().1, AtFlags::REMOVEDIR);
        fault::point();
        match removed {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::NOTEMPTY) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn untake(&self, path: &RelPath, slot: &str, staged: u64) -> io::Result<()> {
        if self.slot_stat(slot)?.is_some() {
            return Ok(());
        }
        let handle = beneath::open_handle(self.root, path.as_bytes())?;
        if rustix::fs::fstat(&handle)?.st_ino != staged {
            return Err(Errno::STALE.into());
        }
        self.take(path, slot)
    }

    fn unswap(&self, path: &RelPath, slot: &str, staged: u64) -> io::Result<()> {
        match self.slot_stat(slot)? {
            Some(stat) if stat.st_ino == staged => Ok(()),
            Some(_) => self.swap(path, slot),
            None => Err(Errno::NOENT.into()),
        }
    }

    fn put_back(&self, path: &RelPath, slot: &str) -> io::Result<()> {
        match self.slot_stat(slot)? {
            Some(_) => self.put(path, slot),
            None => Ok(()),
        }
    }

    fn slot_stat(&self, slot: &str) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(self.staging, slot, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn is_empty(dir: BorrowedFd<'_>) -> io::Result<bool> {
    let mut empty = true;
    beneath::each_name(dir, io::Error::from, |_| {
        empty = false;
        Ok(())
    })?;
    Ok(empty)
}
