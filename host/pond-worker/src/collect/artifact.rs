//! What a job hands over beside its changes: its report, and files it was asked to produce.
//!
//! Both are taken from the run's store, never from the job's tree, and are regular files only.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::Mode as Permissions;
use rustix::io::Errno;

use super::Record;
use super::change::{Change, Delta, Leaf, Mode, Reason, Rejected};
use super::walk::Findings;
use crate::beneath;
use crate::object::{Sparse, Store};
use crate::path::RelPath;

pub(super) const EDIT_RESULT: &[u8] = b"edit_result.json";
const EDIT_RESULT_BYTES: u64 = 1 << 20;

/// Takes the report out of the changes, unless the base had one, in which case it is an ordinary change as well.
pub(super) fn take_edit_result(found: &mut Findings, store: &Store) -> io::Result<Option<Vec<u8>>> {
    let Some(at) = found.changes.iter().position(|change| change.path.as_bytes() == EDIT_RESULT) else {
        return Ok(None);
    };
    let Some((change, new)) =
        found.changes.get(at).and_then(|change| Some((change.clone(), regular(change)?)))
    else {
        return Ok(None);
    };
    if matches!(change.delta, Delta::Added { .. }) {
        found.changes.remove(at);
    }
    if new.size > EDIT_RESULT_BYTES {
        found.rejected.push(Rejected { path: change.path.to_string(), reason: Reason::FileTooLarge });
        found.rejected.sort_unstable();
        return Ok(None);
    }
    store.bytes(new.sha256).map(Some)
}

fn regular(change: &Change) -> Option<Leaf> {
    change.delta.result().filter(|leaf| leaf.mode != Mode::Link)
}

/// What [`copy_artifacts`] did.
#[derive(Debug, PartialEq, Eq)]
pub struct Artifacts {
    pub copied: Vec<RelPath>,
    /// What is, or lies below, a declared path, and was not taken.
    pub refused: Vec<Rejected>,
    /// Declared paths below which the job produced no file, and nothing that was refused.
    pub missing: Vec<RelPath>,
}

/// Why artifacts were not all copied.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactFault {
    #[error("open the stored contents of the run")]
    Store { source: io::Error },
    #[error("make the directories for artifact {path}")]
    Directory { path: RelPath, source: io::Error },
    #[error("create artifact {path}; nothing already there is overwritten")]
    Create { path: RelPath, source: io::Error },
    #[error("copy artifact {path}")]
    Copy { path: RelPath, source: io::Error },
}

/// Copies new regular files that are, or lie below, a declared path into `out`, under their own relative paths. Ignored
/// ones are there only if they were declared to the collection, too.
pub fn copy_artifacts(
    run: BorrowedFd<'_>,
    record: &Record,
    declared: &[RelPath],
    out: BorrowedFd<'_>,
) -> Result<Artifacts, ArtifactFault> {
    let store = Store::open(run).map_err(|source| ArtifactFault::Store { source })?;
    let mut copied = Vec::new();
    for change in record.changes.iter().chain(&record.artifacts) {
        let Some(leaf) = regular(change) else { continue };
        if declared.iter().any(|wanted| change.path.is_within(wanted)) {
            copy_one(&store, &change.path, leaf, out)?;
            copied.push(change.path.clone());
        }
    }
    let refused = refused(record, declared);
    let produced = |wanted: &RelPath| {
        copied.iter().any(|path| path.is_within(wanted))
            || refused.iter().any(|entry| lies_within(&entry.path, wanted))
    };
    let missing = declared.iter().filter(|wanted| !produced(wanted)).cloned().collect();
    Ok(Artifacts { copied, refused, missing })
}

/// What was wanted and is no file that could be copied: a link only where it was named itself, since a directory may well hold some.
fn refused(record: &Record, declared: &[RelPath]) -> Vec<Rejected> {
    let links = record.changes.iter().filter(|change| declared.contains(&change.path));
    let links = links
        .filter(|change| change.delta.result().is_some_and(|leaf| leaf.mode == Mode::Link))
        .map(|change| Rejected { path: change.path.to_string(), reason: Reason::Link });
    let rejected = record.rejected.iter().chain(&record.artifacts_refused);
    let rejected = rejected.filter(|entry| declared.iter().any(|wanted| lies_within(&entry.path, wanted)));
    let mut refused: Vec<Rejected> = links.chain(rejected.cloned()).collect();
    refused.sort_unstable();
    refused
}

/// The same as `is_within`, of a path that is text because it need not be valid: quoted where it has unusual characters.
fn lies_within(path: &str, wanted: &RelPath) -> bool {
    fn plain(text: &str) -> &str {
        let text = text.strip_prefix('"').unwrap_or(text);
        text.strip_suffix('"').unwrap_or(text)
    }
    let wanted = wanted.to_string();
    let rest = plain(path).strip_prefix(plain(&wanted));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn copy_one(store: &Store, path: &RelPath, leaf: Leaf, out: BorrowedFd<'_>) -> Result<(), ArtifactFault> {
    let (_, name) = path.split();
    let parent =
        make_parents(out, path).map_err(|source| ArtifactFault::Directory { path: path.clone(), source })?;
    let mode = if leaf.mode == Mode::Executable { 0o755 } else { 0o644 };
    let fd = beneath::create_file(&parent, name, Permissions::from_raw_mode(mode))
        .map_err(|errno| ArtifactFault::Create { path: path.clone(), source: errno.into() })?;
    let target = Sparse { file: File::from(fd), end: 0 };
    store.copy_out(leaf.sha256, target).map_err(|source| ArtifactFault::Copy { path: path.clone(), source })
}

fn make_parents(root: BorrowedFd<'_>, path: &RelPath) -> io::Result<OwnedFd> {
    for ancestor in path.ancestors() {
        let (above, name) = ancestor.split();
        let dir = beneath::open_dir(root, above)?;
        match rustix::fs::mkdirat(dir.as_fd(), name, Permissions::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(beneath::open_dir(root, path.split().0)?)
}
