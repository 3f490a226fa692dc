//! Compares what a record says with what is there: a tree before or after a job, and the contents kept of its result.
//!
//! The record is believed only as far as whoever calls has verified it; the trees are hostile and are read as a base is.

use std::io;
use std::os::fd::BorrowedFd;

use super::base::{Base, look};
use super::caps::Budget;
use super::change::{Change, Leaf};
use super::{CollectFault, Record, manifest};
use crate::digest::Digest;
use crate::object::Store;
use crate::path::RelPath;

/// Which of its two states a changed path is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// As the job found it.
    Before,
    /// As the job left it.
    After,
}

impl Side {
    fn of(self, change: &Change) -> Option<Leaf> {
        match self {
            Self::Before => change.delta.base(),
            Self::After => change.delta.result(),
        }
    }
}

/// The digest of the manifest of what stood at the changed paths before.
pub fn digest_before(changes: &[Change]) -> io::Result<Digest> {
    let before = changes.iter().map(|change| (&change.path, Side::Before.of(change)));
    manifest::write(before, io::sink())
}

/// The digest of the manifest of an output that holds nothing.
pub fn empty_manifest() -> io::Result<Digest> {
    manifest::write(std::iter::empty(), io::sink())
}

/// The changed paths at which `tree` holds something else than the record says for that side.
pub fn differing(tree: BorrowedFd<'_>, changes: &[Change], side: Side) -> Result<Vec<RelPath>, CollectFault> {
    let mut found = Vec::new();
    for change in changes {
        let there = match look(tree, change.path.as_bytes(), &mut Budget::unlimited())? {
            // A directory is no leaf; what lies in it has paths of its own.
            Base::Absent | Base::Directory(_) => None,
            Base::Leaf(leaf, _) => Some(leaf),
            Base::Unusable => {
                found.push(change.path.clone());
                continue;
            }
        };
        if there != side.of(change) {
            found.push(change.path.clone());
        }
    }
    Ok(found)
}

/// The paths whose new contents are not in the run's store as the record says.
pub fn not_stored(run: BorrowedFd<'_>, record: &Record) -> io::Result<Vec<RelPath>> {
    let store = Store::open(run)?;
    let mut missing = Vec::new();
    for change in record.changes.iter().chain(&record.artifacts) {
        let Some(leaf) = change.delta.result() else { continue };
        match store.copy_out(leaf.sha256, io::sink()) {
            Ok(()) => {}
            Err(fault) if matches!(fault.kind(), io::ErrorKind::InvalidData | io::ErrorKind::NotFound) => {
                missing.push(change.path.clone());
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;
    use crate::collect::change::{Delta, Mode};

    fn leaf(text: &[u8]) -> Leaf {
        let size = u64::try_from(text.len()).unwrap();
        Leaf { mode: Mode::Regular, size, sha256: Digest::of(text) }
    }

    #[test]
    fn each_side_is_compared_leaf_by_leaf() {
        let path = |text: &str| RelPath::from_bytes(text.as_bytes()).unwrap();
        let changes = [
            Change { path: path("added"), delta: Delta::Added { new: leaf(b"new") } },
            Change {
                path: path("changed"),
                delta: Delta::Modified { base: leaf(b"old"), new: leaf(b"new") },
            },
            Change { path: path("gone"), delta: Delta::Deleted { base: leaf(b"old") } },
        ];
        let tree = tempfile::tempdir().unwrap();
        let fd = File::open(tree.path()).unwrap();
        let differing = |side| differing(fd.as_fd(), &changes, side).unwrap();
        let put = |name: &str, text: &str| std::fs::write(tree.path().join(name), text).unwrap();
        put("changed", "old");
        put("gone", "old");
        assert_eq!(differing(Side::Before), []);
        assert_eq!(differing(Side::After), [path("added"), path("changed"), path("gone")]);
        put("changed", "new");
        put("added", "new");
        std::fs::remove_file(tree.path().join("gone")).unwrap();
        assert_eq!(differing(Side::After), []);
        std::fs::remove_file(tree.path().join("added")).unwrap();
        std::os::unix::fs::symlink("new", tree.path().join("added")).unwrap();
        assert_eq!(differing(Side::After), [path("added")]);
    }

    #[test]
    fn the_state_before_has_one_digest_and_nothing_has_one_too() {
        let path = RelPath::from_bytes(b"a").unwrap();
        let added = [Change { path, delta: Delta::Added { new: leaf(b"x") } }];
        let text = "{\"format\":\"pond-manifest-1\",\"entries\":[\n{\"path\":\"a\",\"deleted\":true}\n]}\n";
        assert_eq!(digest_before(&added).unwrap(), Digest::of(text.as_bytes()));
        let nothing = b"{\"format\":\"pond-manifest-1\",\"entries\":[\n]}\n";
        assert_eq!(empty_manifest().unwrap(), Digest::of(nothing));
    }
}
