//! Reads a checkout (the base the job saw, or the one a result is applied to) at single paths, and nowhere else.
//!
//! A checkout may itself come from a hostile repository, so it is opened with the same care as the upper layer, and
//! what is read of it is charged to the same budget.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::CollectFault;
use super::caps::Budget;
use super::change::{Leaf, Mode};
use super::overlay::same_file;
use super::pace::or_stopped;
use crate::digest::Digest;
use crate::path::quoted;
use crate::{beneath, object};

/// What the base holds at a path.
#[derive(Debug)]
pub(crate) enum Base {
    Absent,
    Leaf(Leaf, Stat),
    Directory(Stat),
    /// A special file, one too large, or one that cannot be read.
    Unusable,
}

pub(crate) fn look(
    lower: BorrowedFd<'_>,
    path: &[u8],
    budget: &mut Budget<'_>,
) -> Result<Base, CollectFault> {
    let handle = match beneath::open_handle(lower, path) {
        Ok(handle) => handle,
        Err(errno) if beneath::is_absent(errno) => return Ok(Base::Absent),
        Err(Errno::ACCESS | Errno::XDEV) => return Ok(Base::Unusable),
        Err(errno) => return Err(CollectFault::read(path, errno)),
    };
    let stat = rustix::fs::fstat(&handle).map_err(|errno| CollectFault::read(path, errno))?;
    match beneath::kind(&stat) {
        FileType::Directory => Ok(Base::Directory(stat)),
        FileType::Symlink => link(&handle, path, stat),
        FileType::RegularFile if beneath::size(&stat) > budget.caps().file_bytes => Ok(Base::Unusable),
        FileType::RegularFile => file(lower, path, &stat, budget),
        // The kernel reads a 0/0 device in a lower layer as a hole, too.
        FileType::CharacterDevice if stat.st_rdev == 0 => Ok(Base::Absent),
        FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Fifo
        | FileType::Socket
        | FileType::Unknown => Ok(Base::Unusable),
    }
}

/// True when the job's path is new: nothing of the base was there to see.
pub(super) fn is_absent(lower: BorrowedFd<'_>, path: &[u8]) -> Result<bool, CollectFault> {
    let failed = |errno| CollectFault::read(path, errno);
    match beneath::open_handle(lower, path) {
        Ok(handle) => {
            let stat = rustix::fs::fstat(&handle).map_err(failed)?;
            Ok(beneath::kind(&stat) == FileType::CharacterDevice && stat.st_rdev == 0)
        }
        Err(errno) if beneath::is_absent(errno) => Ok(true),
        Err(Errno::ACCESS | Errno::XDEV) => Ok(false),
        Err(errno) => Err(failed(errno)),
    }
}

fn link(handle: &OwnedFd, path: &[u8], stat: Stat) -> Result<Base, CollectFault> {
    let target = beneath::link_target(handle.as_fd()).map_err(|errno| CollectFault::read(path, errno))?;
    Ok(Base::Leaf(link_leaf(&target), stat))
}

pub(super) fn link_leaf(target: &[u8]) -> Leaf {
    let size = u64::try_from(target.len()).unwrap_or(u64::MAX);
    Leaf { mode: Mode::Link, size, sha256: Digest::of(target) }
}

fn file(
    lower: BorrowedFd<'_>,
    path: &[u8],
    seen: &Stat,
    budget: &mut Budget<'_>,
) -> Result<Base, CollectFault> {
    let fd = match beneath::open_file(lower, path) {
        Err(Errno::ACCESS | Errno::PERM) => return Ok(Base::Unusable),
        opened => opened.map_err(|errno| CollectFault::read_base(path, errno))?,
    };
    let stat = rustix::fs::fstat(&fd).map_err(|errno| CollectFault::read(path, errno))?;
    let size = beneath::size(&stat);
    budget.spend_bytes(size)?;
    let read = object::digest_of(&mut budget.paced(File::from(fd)), size).map_err(|source| {
        or_stopped(source, |source| CollectFault::Read { path: quoted("", path), source })
    })?;
    if !same_file(seen, &stat) || read.size != size {
        return Err(CollectFault::Moved { path: quoted("", path) });
    }
    Ok(Base::Leaf(Leaf { mode: Mode::of_file(stat.st_mode), size, sha256: read.digest }, stat))
}
