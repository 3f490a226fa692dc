//! A private range of host ids per running job, so that no two jobs, and no job and a person, are ever the same user.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use pond_wire::jail::RANGE_IDS;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The first id of the ranges. Above what distributions hand out to people, subordinate ids and systemd's containers.
const FIRST: u32 = 0x7000_0000;
/// Where the ranges are locked: one place for the whole host, whatever state directory a job is run from.
const DIRECTORY: &str = "/run/pond/ids";
/// How many jobs can run at once on a host.
const RANGES: u32 = 4096;

#[derive(Debug, thiserror::Error)]
pub enum IdsFault {
    #[error("making {path}, where id ranges are locked")]
    Directory { path: PathBuf, source: io::Error },
    #[error("opening the id lock {path}")]
    Open { path: PathBuf, source: io::Error },
    #[error("all {RANGES} id ranges are in use")]
    Exhausted,
}

/// A range held by a lock the kernel releases when the holder dies.
#[derive(Debug)]
pub(crate) struct IdRange {
    base: u32,
    _lock: File,
}

impl IdRange {
    pub(crate) fn base(&self) -> u32 {
        self.base
    }
}

/// Takes a free range of this host.
pub(crate) fn take_range() -> Result<IdRange, IdsFault> {
    take(Path::new(DIRECTORY), std::process::id())
}

/// Takes the range of whoever has this name, or the next free one: what lasts is spared a move from one range to another.
pub(crate) fn take_range_of(name: &OsStr) -> Result<IdRange, IdsFault> {
    let hint =
        name.as_bytes().iter().fold(0, |sum: u32, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
    take(Path::new(DIRECTORY), hint)
}

/// Starts the search at `hint`, so that concurrent callers rarely meet.
fn take(directory: &Path, hint: u32) -> Result<IdRange, IdsFault> {
    if !directory.is_dir() {
        let path = directory.to_owned();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|source| IdsFault::Directory { path, source })?;
    }
    for attempt in 0..RANGES {
        let slot = hint.wrapping_add(attempt) % RANGES;
        let path = directory.join(format!("{slot:04}"));
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|source| IdsFault::Open { path: path.clone(), source })?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(IdRange { base: FIRST + slot * RANGE_IDS, _lock: lock }),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(errno) => return Err(IdsFault::Open { path, source: errno.into() }),
        }
    }
    Err(IdsFault::Exhausted)
}

#[cfg(test)]
mod tests {
    //! Two holders never share a range, and a released one is free again.
    use super::*;

    #[test]
    fn ranges_are_distinct_while_held() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("made/here");
        let first = take(&place, 7).unwrap();
        let second = take(&place, 7).unwrap();
        assert_eq!(first.base(), FIRST + 7 * RANGE_IDS);
        assert_eq!(second.base(), FIRST + 8 * RANGE_IDS);
        drop(first);
        assert_eq!(take(&place, 7).unwrap().base(), FIRST + 7 * RANGE_IDS);
    }

    #[test]
    fn the_last_range_ends_below_the_largest_id() {
        assert_eq!(
            FIRST.checked_add((RANGES - 1) * RANGE_IDS).and_then(|base| base.checked_add(RANGE_IDS)),
            Some(0x8000_0000)
        );
    }
}
