//! The input hash: one digest over a whole tree as a job will see it, made where a bundle is packed and again where it was unpacked.
//!
//! HOSTILE input on both sides. Entries come sorted by the bytes of their paths, so equal trees give equal digests; a path that
//! leads out, comes twice or lies in something that is not a directory is refused, so that no two trees are told as one. Owner
//! and times are not part of a tree: a job sees neither as they were.

use std::collections::{BTreeMap, BTreeSet};

use sha2::Digest as _;

use crate::digest::Digest;
use crate::transcript::Transcript;

const MOST_PATH_BYTES: usize = 4096;

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    Directory,
    File { executable: bool, size: u64, sha256: Digest },
    Link { target: Vec<u8> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TreeFault {
    #[error("entry {0} has a path that is not a plain one below the tree's root")]
    Path(u64),
    #[error("entry {0} is not sorted behind the one before")]
    Order(u64),
    #[error("entry {0} lies in something that is not a directory")]
    Parent(u64),
    #[error("entry {0} is a link to nothing")]
    Link(u64),
}

impl TreeFault {
    /// Stable; the documents list it.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Path(_) => "tree_path",
            Self::Order(_) => "tree_order",
            Self::Parent(_) => "tree_parent",
            Self::Link(_) => "tree_link",
        }
    }
}

/// A tree that is being told, entry by entry.
#[derive(Debug)]
pub struct Tree {
    state: sha2::Sha256,
    last: Vec<u8>,
    directories: BTreeSet<Vec<u8>>,
    entries: u64,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    #[must_use]
    pub fn new() -> Self {
        let mut state = sha2::Sha256::new();
        state.update(Transcript::new("pond/tree/v1").finish());
        Self { state, last: Vec::new(), directories: BTreeSet::new(), entries: 0 }
    }

    /// The next entry. The root itself is none.
    pub fn add(&mut self, path: &[u8], entry: &Entry) -> Result<(), TreeFault> {
        let number = self.entries;
        if !is_plain(path) {
            return Err(TreeFault::Path(number));
        }
        if path <= self.last.as_slice() {
            return Err(TreeFault::Order(number));
        }
        let parent = path.rsplitn(2, |byte| *byte == b'/').nth(1);
        if parent.is_some_and(|parent| !self.directories.contains(parent)) {
            return Err(TreeFault::Parent(number));
        }
        let fields = match entry {
            Entry::Directory => {
                self.directories.insert(path.to_vec());
                Transcript::new("directory").bytes(path)
            }
            Entry::File { executable, size, sha256 } => Transcript::new("file")
                .bytes(path)
                .text(if *executable { "executable" } else { "plain" })
                .number(*size)
                .digest(sha256),
            Entry::Link { target } if target.is_empty() || target.contains(&0) => {
                return Err(TreeFault::Link(number));
            }
            Entry::Link { target } => Transcript::new("link").bytes(path).bytes(target),
        };
        self.state.update(fields.finish());
        self.last = path.to_vec();
        self.entries += 1;
        Ok(())
    }

    #[must_use]
    pub fn finish(mut self) -> Digest {
        self.state.update(Transcript::new("end").number(self.entries).finish());
        let digest: [u8; 32] = self.state.finalize().into();
        Digest::from(digest)
    }
}

/// A tree that is told in any order: whoever walks directories meets `a/b` before `a-b`, which sorts before it.
#[derive(Debug, Default)]
pub struct Listing(BTreeMap<Vec<u8>, Entry>);

impl Listing {
    /// One more entry. Whoever tells it sees to it that no path comes twice.
    pub fn add(&mut self, path: Vec<u8>, entry: Entry) {
        self.0.insert(path, entry);
    }

    pub fn finish(self) -> Result<Digest, TreeFault> {
        let mut tree = Tree::new();
        for (path, entry) in &self.0 {
            tree.add(path, entry)?;
        }
        Ok(tree.finish())
    }
}

fn is_plain(path: &[u8]) -> bool {
    let part = |part: &[u8]| !part.is_empty() && part != b"." && part != b".." && !part.contains(&0);
    path.len() <= MOST_PATH_BYTES && path.split(|byte| *byte == b'/').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(contents: &[u8]) -> Entry {
        let size = u64::try_from(contents.len()).unwrap();
        Entry::File { executable: false, size, sha256: Digest::of(contents) }
    }

    fn link(target: &str) -> Entry {
        Entry::Link { target: target.as_bytes().to_vec() }
    }

    fn hash(entries: &[(&str, Entry)]) -> Result<Digest, &'static str> {
        let mut tree = Tree::new();
        for (path, entry) in entries {
            tree.add(path.as_bytes(), entry).map_err(TreeFault::code)?;
        }
        Ok(tree.finish())
    }

    #[test]
    fn trees_that_differ_in_anything_have_another_hash() {
        let Entry::File { size, sha256, .. } = file(b"x") else { panic!("a file") };
        let all = [
            vec![],
            vec![("a", file(b"x"))],
            vec![("a", file(b"y"))],
            vec![("b", file(b"x"))],
            vec![("a", Entry::File { executable: true, size, sha256 })],
            vec![("a", Entry::File { executable: false, size: 2, sha256 })],
            vec![("a", Entry::Directory)],
            vec![("a", link("x"))],
            vec![("a", link("y"))],
            vec![("a", file(b"x")), ("b", file(b"x"))],
            vec![("a", Entry::Directory), ("a/b", file(b"x"))],
            vec![("a", Entry::Directory), ("ab", file(b"x"))],
        ];
        let hashes: Vec<Digest> = all.iter().map(|entries| hash(entries).unwrap()).collect();
        for (at, one) in hashes.iter().enumerate() {
            assert!(!hashes[at + 1..].contains(one), "{:?}", all[at]);
        }
        assert_eq!(hash(&all[10]), Ok(hashes[10]), "the same tree again");
    }

    #[test]
    fn a_listing_in_any_order_is_the_same_tree() {
        let sorted = [("a", Entry::Directory), ("a-b", file(b"y")), ("a/b", file(b"x"))];
        let mut listing = Listing::default();
        for (path, entry) in [&sorted[0], &sorted[2], &sorted[1]] {
            listing.add(path.as_bytes().to_vec(), entry.clone());
        }
        assert_eq!(listing.finish().map_err(TreeFault::code), hash(&sorted));
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        for (path, expected) in [
            ("", "tree_path"),
            ("/a", "tree_path"),
            ("a/", "tree_path"),
            ("a//b", "tree_path"),
            ("../a", "tree_path"),
            ("a/..", "tree_path"),
            ("./a", "tree_path"),
            ("a\0", "tree_path"),
            ("a/b", "tree_parent"),
        ] {
            assert_eq!(hash(&[(path, file(b""))]), Err(expected), "{path:?}");
        }
        let long = "a".repeat(MOST_PATH_BYTES + 1);
        assert_eq!(hash(&[(&long, file(b""))]), Err("tree_path"));
        assert_eq!(hash(&[("b", file(b"")), ("a", file(b""))]), Err("tree_order"));
        assert_eq!(hash(&[("a", file(b"")), ("a", Entry::Directory)]), Err("tree_order"), "one path twice");
        for occupied in [file(b""), link("/etc")] {
            assert_eq!(
                hash(&[("a", occupied), ("a/b", file(b""))]),
                Err("tree_parent"),
                "through a file or link"
            );
        }
        for target in ["", "a\0b"] {
            assert_eq!(hash(&[("a", link(target))]), Err("tree_link"));
        }
    }
}
