//! What stages before one changed, put together: for each path what stands there in the end, and whose doing that is.
//!
//! HOSTILE: paths and facts are what workers signed. A path that leads out or into git's own files is refused when it is read
//! (`RelPath`). A stage may change again what one before it changed; two that know nothing of each other must agree.

use std::collections::{BTreeMap, BTreeSet};

use pond_seal::Digest;
use pond_wire::path::{RelPath, quoted};

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stands {
    Nothing,
    File {
        executable: bool,
        size: u64,
        sha256: Digest,
    },
    /// Its target has this digest.
    Link {
        size: u64,
        sha256: Digest,
    },
}

/// Two stages changed a path, each in its own way; or one has a file where the other has a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conflict {
    /// Printable.
    pub(super) path: String,
    /// Places of the stages among those that came before.
    pub(super) between: Option<(usize, usize)>,
}

#[derive(Debug, Default)]
pub(super) struct Overlay(BTreeMap<Vec<u8>, (Stands, usize)>);

impl Overlay {
    /// What the stage at place `author` made of a path. `knew` says which stages came before it.
    pub(super) fn lay(
        &mut self,
        author: usize,
        path: &RelPath,
        stands: Stands,
        knew: impl Fn(usize) -> bool,
    ) -> Result<(), Conflict> {
        if let Some((there, other)) = self.0.get(path.as_bytes())
            && *there != stands
            && !knew(*other)
        {
            return Err(Conflict { path: path.to_string(), between: Some((*other, author)) });
        }
        self.0.insert(path.as_bytes().to_vec(), (stands, author));
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn at(&self, path: &[u8]) -> Option<Stands> {
        self.0.get(path).map(|(stands, _)| *stands)
    }

    /// The contents it takes, and from whom.
    pub(super) fn contents(&self) -> impl Iterator<Item = (Digest, usize)> {
        self.0.values().filter_map(|(stands, author)| match stands {
            Stands::Nothing => None,
            Stands::File { sha256, .. } | Stands::Link { sha256, .. } => Some((*sha256, *author)),
        })
    }

    /// The names that have to be in each directory. No directory may be something else at the same time.
    pub(super) fn directories(&self) -> Result<BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>, Conflict> {
        let mut directories: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>> = BTreeMap::new();
        for (path, (stands, _)) in &self.0 {
            if *stands == Stands::Nothing {
                continue;
            }
            let mut rest = path.as_slice();
            loop {
                let (parent, name) = split(rest);
                directories.entry(parent.to_vec()).or_default().insert(name.to_vec());
                if parent.is_empty() {
                    break;
                }
                if self.at(parent).is_some_and(|stands| stands != Stands::Nothing) {
                    return Err(conflict(parent));
                }
                rest = parent;
            }
        }
        Ok(directories)
    }
}

/// Something stands where something else must lie below.
pub(super) fn conflict(path: &[u8]) -> Conflict {
    Conflict { path: quoted("", path), between: None }
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        None => (&[], path),
        Some(at) => (path.get(..at).unwrap_or_default(), path.get(at + 1..).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::from_bytes(text.as_bytes()).unwrap()
    }

    fn file(content: &str) -> Stands {
        let size = u64::try_from(content.len()).unwrap();
        Stands::File { executable: false, size, sha256: Digest::of(content.as_bytes()) }
    }

    #[test]
    fn who_knew_of_a_change_may_change_it_again_and_who_did_not_must_agree() {
        let mut overlay = Overlay::default();
        let (known, unknown) = (|_| true, |_| false);
        overlay.lay(0, &path("a"), file("one"), unknown).unwrap();
        overlay.lay(1, &path("a"), file("two"), known).unwrap();
        overlay.lay(2, &path("a"), file("two"), unknown).unwrap();
        assert_eq!(overlay.at(b"a"), Some(file("two")));
        let refused = overlay.lay(3, &path("a"), Stands::Nothing, unknown).unwrap_err();
        assert_eq!(refused, Conflict { path: "a".to_owned(), between: Some((2, 3)) });
        let refused =
            overlay.lay(3, &path("a"), Stands::Link { size: 3, sha256: Digest::of(b"two") }, unknown);
        assert!(refused.is_err(), "a link is no file");
    }

    #[test]
    fn nothing_lies_below_a_file_or_a_link() {
        for stands in [file("x"), Stands::Link { size: 4, sha256: Digest::of(b"/etc") }] {
            let mut overlay = Overlay::default();
            overlay.lay(0, &path("d"), stands, |_| true).unwrap();
            overlay.lay(0, &path("d/e/passwd"), file("x"), |_| true).unwrap();
            assert_eq!(overlay.directories(), Err(conflict(b"d")));
            overlay.lay(1, &path("d"), Stands::Nothing, |_| true).unwrap();
            let names = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect();
            let expected = [("", names(&["d"])), ("d", names(&["e"])), ("d/e", names(&["passwd"]))];
            let expected = expected.map(|(path, names): (&str, BTreeSet<Vec<u8>>)| (path.into(), names));
            assert_eq!(overlay.directories(), Ok(BTreeMap::from(expected)));
        }
    }
}
