//! Directories that git takes for a repository though they are not called `.git`. Whoever enters one, with a prompt that asks
//! git for its state, runs what its `config` names.

use std::collections::{HashMap, HashSet};

use super::fold;
use crate::collect::change::Change;
use crate::path::RelPath;

/// What is in the checkout once a result is applied, as far as repositories go. Nothing that may be there counts as gone.
pub(super) struct Repositories<F> {
    /// Everything the result brings and the directories above, in lower case.
    brought: HashSet<Vec<u8>>,
    in_base: F,
    known: HashMap<Vec<u8>, bool>,
}

impl<F: FnMut(&[u8]) -> bool> Repositories<F> {
    pub(super) fn new(changes: &[Change], in_base: F) -> Self {
        let mut brought = HashSet::new();
        for change in changes.iter().filter(|change| change.delta.result().is_some()) {
            brought.extend(change.path.ancestors().map(|above| fold(&above)));
            brought.insert(fold(&change.path));
        }
        Self { brought, in_base, known: HashMap::new() }
    }

    /// True when one of the directories above `path`, the root among them, is or becomes a repository.
    pub(super) fn has(&mut self, path: &RelPath) -> bool {
        self.is_repository(b"") || path.ancestors().any(|above| self.is_repository(above.as_bytes()))
    }

    /// By the marks git goes by; a linked worktree's directory has `commondir` in place of the other two.
    fn is_repository(&mut self, dir: &[u8]) -> bool {
        if let Some(known) = self.known.get(dir) {
            return *known;
        }
        let is = self.has_entry(dir, b"HEAD")
            && [&b"objects"[..], b"refs", b"commondir"].iter().any(|name| self.has_entry(dir, name));
        self.known.insert(dir.to_vec(), is);
        is
    }

    fn has_entry(&mut self, dir: &[u8], name: &[u8]) -> bool {
        let path = if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() };
        self.brought.contains(&path.to_ascii_lowercase()) || (self.in_base)(&path)
    }
}
