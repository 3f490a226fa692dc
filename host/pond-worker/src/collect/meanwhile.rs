//! Whether the base moved under a job's feet. A live checkout is read after the job has ended, so what its owner did to it
//! meanwhile would pass for what the job began with; change times tell the two apart.
//!
//! The start is a change time of the tree's own file system, never the clock: kernels stamp some changes more finely than
//! others, and a file server has a clock of its own. Every doubt counts as a change.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::time::{ClockId, clock_gettime};

use super::change::Change;
use super::{CollectFault, Record};
use crate::beneath;
use crate::path::RelPath;

/// A stamp changes at least every hundredth of a second on anything but the file systems of floppy disks.
const STEP: Duration = Duration::from_millis(1);
const MOST_STEPS: u32 = 50;

/// The moment from which on changes to a tree count: whatever was changed before has an earlier change time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Start {
    seconds: i64,
    nanos: i64,
}

impl Start {
    /// Now, as the file system of `tree` stamps it.
    pub fn of(tree: BorrowedFd<'_>) -> io::Result<Self> {
        match unnamed_file(tree) {
            Ok(file) => later(|| {
                // Any change of an inode takes a new stamp, and one that was looked at takes a fine one where there are such.
                rustix::fs::fchmod(&file, Mode::RUSR)?;
                Ok(Self::changed(&rustix::fs::fstat(&file)?))
            }),
            // A tree that takes no file of ours: the clock that coarse stamps are taken from is the next best.
            Err(_) => later(|| {
                let now = clock_gettime(ClockId::RealtimeCoarse);
                Ok(Self { seconds: now.tv_sec, nanos: now.tv_nsec })
            }),
        }
    }

    fn changed(stat: &Stat) -> Self {
        Self { seconds: stat.st_ctime, nanos: i64::try_from(stat.st_ctime_nsec).unwrap_or_default() }
    }

    fn modified(stat: &Stat) -> Self {
        Self { seconds: stat.st_mtime, nanos: i64::try_from(stat.st_mtime_nsec).unwrap_or_default() }
    }

    /// True when what `stat` describes was changed, moved or made since.
    pub(super) fn precedes(self, stat: &Stat) -> bool {
        Self::changed(stat) >= self
    }
}

/// Waits for the stamp to move on, so that no earlier change bears the same one. Where it stands still for long, changes just
/// before the start count as well.
fn later(stamp: impl Fn() -> io::Result<Start>) -> io::Result<Start> {
    let first = stamp()?;
    for _ in 0..MOST_STEPS {
        let next = stamp()?;
        if next > first {
            return Ok(next);
        }
        std::thread::sleep(STEP);
    }
    Ok(first)
}

fn unnamed_file(tree: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::openat(tree, ".", flags, mode) {
        return Ok(file);
    }
    // Network file systems know no file without a name; the name is gone again before the first stamp is taken.
    let mut random = [0_u8; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let name = format!(".pond-start-{:016x}", u64::from_le_bytes(random));
    let file = beneath::create_file(tree, name.as_bytes(), mode)?;
    rustix::fs::unlinkat(tree, &name, AtFlags::empty())?;
    Ok(file)
}

/// True when the root, a changed path or a directory above one was changed since the start. Edits elsewhere go unseen: finding
/// them would cost a walk of the whole tree, and `apply` compares what matters.
pub fn changed_since(lower: BorrowedFd<'_>, record: &Record, start: Start) -> Result<bool, CollectFault> {
    let mut paths: BTreeSet<Vec<u8>> = BTreeSet::from([Vec::new()]);
    for change in &record.changes {
        paths.insert(change.path.as_bytes().to_vec());
        paths.extend(change.path.ancestors().map(|above| above.as_bytes().to_vec()));
    }
    for path in paths {
        if look(lower, &path)?.is_some_and(|stat| start.precedes(&stat)) {
            return Ok(true);
        }
    }
    Ok(!record.changed_meanwhile.is_empty())
}

/// Directories above changes that were themselves moved here, or changed in another way than by what lies in them. Files below
/// one keep their old change times, though the job never saw them.
pub(super) fn moved_above(
    lower: BorrowedFd<'_>,
    changes: &[Change],
    start: Start,
) -> Result<Vec<RelPath>, CollectFault> {
    let above: BTreeSet<RelPath> = changes.iter().flat_map(|change| change.path.ancestors()).collect();
    let mut moved = Vec::new();
    for path in above {
        let stat = look(lower, path.as_bytes())?;
        let is_moved = |stat: &Stat| {
            beneath::kind(stat) == FileType::Directory
                && start.precedes(stat)
                && Start::modified(stat) < start
        };
        if stat.as_ref().is_some_and(is_moved) {
            moved.push(path);
        }
    }
    Ok(moved)
}

/// True when something may have been taken away at `path`, where nothing is: the nearest directory above it that is there was
/// changed since the start.
pub(super) fn taken_away_since(
    lower: BorrowedFd<'_>,
    path: &[u8],
    start: Start,
) -> Result<bool, CollectFault> {
    let mut path = path;
    while let Some(end) = path.iter().rposition(|byte| *byte == b'/') {
        path = path.get(..end).unwrap_or_default();
        if let Some(stat) = look(lower, path)? {
            return Ok(start.precedes(&stat));
        }
    }
    Ok(look(lower, b"")?.is_some_and(|root| start.precedes(&root)))
}

fn look(lower: BorrowedFd<'_>, path: &[u8]) -> Result<Option<Stat>, CollectFault> {
    let handle = match beneath::open_handle(lower, path) {
        Ok(handle) => handle,
        Err(errno) if beneath::is_absent(errno) => return Ok(None),
        Err(errno) => return Err(CollectFault::read(path, errno)),
    };
    rustix::fs::fstat(handle.as_fd()).map(Some).map_err(|errno| CollectFault::read(path, errno))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    /// Often enough to meet every mixture of coarse and fine stamps.
    #[test]
    fn a_start_lies_between_what_was_before_and_what_comes_after() {
        let tree = tempfile::tempdir().unwrap();
        let root = File::open(tree.path()).unwrap();
        let stat = |path: &[u8]| look(root.as_fd(), path).unwrap().unwrap();
        for round in 0..100 {
            fs::create_dir(tree.path().join(format!("d{round}"))).unwrap();
            fs::write(tree.path().join("f"), "before").unwrap();
            // What was looked at is stamped finely by its next change.
            stat(b"");
            stat(b"f");
            fs::write(tree.path().join("f"), "still before").unwrap();
            fs::write(tree.path().join(format!("f{round}")), "").unwrap();
            let start = Start::of(root.as_fd()).unwrap();
            assert!(!start.precedes(&stat(b"f")) && !start.precedes(&stat(b"")), "round {round}");
            fs::write(tree.path().join("f"), "after").unwrap();
            assert!(start.precedes(&stat(b"f")) && !start.precedes(&stat(b"")), "round {round}");
        }
    }
}
