//! What a result may cost: fixed limits, and the counters that spend them while a tree is walked.
//!
//! A limit on one entry refuses that entry; a limit on the whole refuses the result, because a part of it must not
//! pass for all of it.

use std::fmt;
use std::ops::ControlFlow;

use super::CollectFault;
use super::pace::{PATIENT, Paced, Progress, Watch};

/// The limits of one collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Directory entries looked at in either tree.
    pub entries: u64,
    /// Bytes of path text held in memory.
    pub path_text: u64,
    /// File bytes read from either tree.
    pub total_bytes: u64,
    /// Logical size of one file.
    pub file_bytes: u64,
    /// Components in one path.
    pub depth: usize,
    /// Bytes in one name.
    pub name: usize,
    /// Bytes written to the patch.
    pub patch_bytes: u64,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            entries: 200_000,
            path_text: 64 << 20,
            total_bytes: 4 << 30,
            file_bytes: 1 << 30,
            depth: 64,
            name: 255,
            patch_bytes: 64 << 20,
        }
    }
}

/// A limit on the whole result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cap {
    Entries,
    PathText,
    TotalBytes,
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Entries => "number of entries",
            Self::PathText => "bytes of path names",
            Self::TotalBytes => "bytes of content",
        })
    }
}

/// Longer paths cannot be named to the kernel, so no tool on the host could use them either.
pub(super) const PATH_BYTES: usize = 4095;

/// What is left of the whole-result limits, and who watches it being spent.
pub(crate) struct Budget<'a> {
    caps: Caps,
    entries: u64,
    path_text: u64,
    bytes: u64,
    watch: Watch<'a>,
}

impl<'a> Budget<'a> {
    pub(super) fn new(caps: &Caps, watch: Watch<'a>) -> Self {
        let Caps { entries, path_text, total_bytes: bytes, .. } = *caps;
        Self { caps: *caps, entries, path_text, bytes, watch }
    }

    /// For a tree that is only compared with a record, whose sizes were checked when it was made.
    pub(crate) fn unlimited() -> Self {
        let (entries, path_text, total_bytes, file_bytes) = (u64::MAX, u64::MAX, u64::MAX, u64::MAX);
        Self::new(&Caps { entries, path_text, total_bytes, file_bytes, ..Caps::default() }, PATIENT)
    }

    pub(super) fn caps(&self) -> &Caps {
        &self.caps
    }

    pub(super) fn spend_entry(&mut self) -> Result<(), CollectFault> {
        spend(&mut self.entries, 1, Cap::Entries, self.caps.entries)?;
        match (self.watch)(self.progress()) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(CollectFault::Stopped),
        }
    }

    fn progress(&self) -> Progress {
        Progress::Reading {
            entries: self.caps.entries.saturating_sub(self.entries),
            bytes: self.caps.total_bytes.saturating_sub(self.bytes),
        }
    }

    /// A file to be read under the eyes of whoever watches.
    pub(super) fn paced<R>(&self, inner: R) -> Paced<'a, R> {
        Paced { inner, watch: self.watch, progress: self.progress() }
    }

    pub(super) fn spend_path(&mut self, path: &[u8]) -> Result<(), CollectFault> {
        let bytes = u64::try_from(path.len()).unwrap_or(u64::MAX);
        spend(&mut self.path_text, bytes, Cap::PathText, self.caps.path_text)
    }

    pub(super) fn spend_bytes(&mut self, bytes: u64) -> Result<(), CollectFault> {
        spend(&mut self.bytes, bytes, Cap::TotalBytes, self.caps.total_bytes)
    }
}

fn spend(left: &mut u64, amount: u64, cap: Cap, limit: u64) -> Result<(), CollectFault> {
    *left = left.checked_sub(amount).ok_or(CollectFault::Exceeded { cap, limit })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use pond_wire::tree::{MAX_DEPTH, MAX_FILE};

    use super::*;

    /// What comes out of a container as a stream is refused for the same reasons as what is read where it lies.
    #[test]
    fn a_tree_that_travelled_has_as_much_as_a_result_may_and_one_step_more() {
        let Caps { file_bytes, depth, .. } = Caps::default();
        assert_eq!((file_bytes, depth + 1), (MAX_FILE, MAX_DEPTH));
    }
}
