//! Turns what a job left in its overlay into a result: changes, patch, manifest, stored contents, flags.
//!
//! HOSTILE INPUT, read only after everything inside is dead. Everything is opened by descriptor beneath a root, links
//! are data, special files are never opened, caps come first, and the cost follows what changed.
//! Written into the run directory: `objects/`, `changes.json`, `changes.patch`, `manifest.json`.

mod above;
mod artifact;
mod change;
mod commits;
mod compare;
mod flag;
mod head;
mod ignored;
mod manifest;
mod meanwhile;
mod overlay;
mod pace;
mod patch;
mod tracked;
mod walk;

pub(crate) mod base;
pub(crate) mod caps;
pub(crate) mod link;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

pub use above::Above;
pub use artifact::{ArtifactFault, Artifacts, copy_artifacts};
pub use caps::{Cap, Caps};
pub use change::{Change, Delta, Leaf, Mode, Reason, Rejected};
pub use commits::Moved;
pub use compare::{Side, differing, digest_before, empty_manifest, not_stored};
pub use flag::{Category, Flag};
pub use head::head_commit;
pub use ignored::{Ignored, LeftOut};
pub use meanwhile::{Start, changed_since};
pub use overlay::OverlayXattrs;
pub(crate) use overlay::same_file;
pub use pace::{PATIENT, Progress, Watch};

use crate::beneath;
use crate::digest::Digest;
use crate::object::Store;
use crate::path::{PathFault, RelPath, quoted};

const CHANGES: &str = "changes.json";
const PATCH: &str = "changes.patch";
const MANIFEST: &str = "manifest.json";

/// The two trees of a dead job.
#[derive(Debug)]
pub struct Sources {
    /// Root of the overlay's upper layer.
    pub upper: OwnedFd,
    /// Root of the lower layer: the checkout as the job saw it.
    pub lower: OwnedFd,
    pub xattrs: OverlayXattrs,
    /// The repository that the checkout is a part of, if it has none of its own.
    pub above: Option<Above>,
    /// When the job began to look at a lower layer that others write to as well; none for a copy of our own.
    pub start: Option<Start>,
}

/// What of a job's view becomes its result.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub ignored: Ignored,
    /// Files to keep whatever the ignore rules say, or directories of them.
    pub artifacts: &'a [RelPath],
}

impl Wanted<'_> {
    /// True when `path` is an artifact or lies below one.
    fn has(&self, path: &[u8]) -> bool {
        RelPath::from_bytes(path).is_ok_and(|path| self.artifacts.iter().any(|wanted| path.is_within(wanted)))
    }

    /// True when an artifact is, or lies above or below, the directory `path`.
    fn leads_through(&self, path: &[u8]) -> bool {
        let beyond = |dir: &RelPath| self.artifacts.iter().any(|wanted| wanted.is_within(dir));
        self.has(path) || RelPath::from_bytes(path).is_ok_and(|dir| beyond(&dir))
    }
}

/// A collected result.
#[derive(Debug)]
pub struct Collected {
    pub record: Record,
    /// The job's own report, as it wrote it: nobody has parsed it.
    pub edit_result: Option<Vec<u8>>,
}

/// What `changes.json` says, and all `apply` needs beside the stored contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub format: Format,
    /// Sorted by path.
    pub changes: Vec<Change>,
    pub rejected: Vec<Rejected>,
    pub flagged: Vec<Flag>,
    /// Entries changed under `.git`; they are never part of the result.
    pub git_metadata_changes: u64,
    /// The output hash.
    pub manifest_sha256: Digest,
    pub patch_bytes: u64,
    /// Changes that did not fit into the patch. They are complete in the store.
    pub patch_omitted: Vec<RelPath>,
    /// New paths that the base's own ignore rules keep out of the changes, by rule file.
    pub left_out: Vec<LeftOut>,
    /// Ignored files that were declared as artifacts: stored, in the manifest, and never applied.
    pub artifacts: Vec<Change>,
    /// Paths of the base that changed while the job ran, where the job changed something, too. What the record says of their
    /// base is not what the job began with, so the result cannot be applied.
    #[serde(default)]
    pub changed_meanwhile: Vec<RelPath>,
    /// Declared artifacts that are there and are no files: the ignore rules leave them out of everything else that is told.
    #[serde(default)]
    pub artifacts_refused: Vec<Rejected>,
    /// Where the job's own commits are, in the repository of its copy: HEAD and branches. They are never part of the result.
    #[serde(default)]
    pub commits: Vec<Moved>,
}

/// The version of [`Record`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    #[serde(rename = "pond-changes-1")]
    V1,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum CollectFault {
    #[error("the result has more than the allowed {cap}: {limit}")]
    Exceeded { cap: Cap, limit: u64 },
    #[error("read {path}")]
    Read { path: String, source: io::Error },
    #[error("{path} changed while it was read, so something is still running")]
    Changed { path: String },
    #[error("{path} of the checkout was changed, moved or replaced while the result was read")]
    Moved { path: String },
    #[error("name {path}")]
    Name { path: String, source: PathFault },
    #[error("write into the run directory")]
    Store { source: io::Error },
    #[error("reading it was interrupted")]
    Stopped,
}

impl CollectFault {
    pub(crate) fn read(path: &[u8], errno: Errno) -> Self {
        Self::Read { path: quoted("", path), source: errno.into() }
    }

    /// Of something in the base that was there a moment ago. Links are not followed, so what lies behind one that took the place of
    /// a directory is not there either.
    pub(crate) fn read_base(path: &[u8], errno: Errno) -> Self {
        if beneath::is_absent(errno) || errno == Errno::STALE {
            Self::Moved { path: quoted("", path) }
        } else {
            Self::read(path, errno)
        }
    }
}

/// Collects a result into `run`, a directory of pond's own that holds none yet: all of it, or nothing.
pub fn collect(
    sources: &Sources,
    wanted: &Wanted<'_>,
    caps: &Caps,
    run: BorrowedFd<'_>,
    watch: Watch<'_>,
) -> Result<Collected, CollectFault> {
    let collected = collect_parts(sources, wanted, caps, run, watch);
    if collected.is_err() {
        discard(run)?;
    }
    collected
}

/// Removes a result, or what there is of one.
pub fn discard(run: BorrowedFd<'_>) -> Result<(), CollectFault> {
    remove_parts(run).map_err(|source| CollectFault::Store { source })
}

fn collect_parts(
    sources: &Sources,
    wanted: &Wanted<'_>,
    caps: &Caps,
    run: BorrowedFd<'_>,
    watch: Watch<'_>,
) -> Result<Collected, CollectFault> {
    let stored = |source| CollectFault::Store { source };
    let store = Store::create(run).map_err(stored)?;
    let mut found = walk::walk(sources, wanted, caps, &store, watch)?;
    let mut output: Vec<&Change> = found.changes.iter().chain(&found.artifacts).collect();
    output.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    let manifest_sha256 = create(run, MANIFEST)
        .and_then(|file| {
            let entries = output.iter().map(|change| (&change.path, change.delta.result()));
            manifest::write(entries, io::BufWriter::new(file))
        })
        .map_err(stored)?;
    let edit_result = artifact::take_edit_result(&mut found, &store).map_err(stored)?;
    // What cannot be looked at may be there.
    let in_base = |path: &[u8]| base::is_absent(sources.lower.as_fd(), path).map_or(true, |absent| !absent);
    let flagged = flag::flags(&found.changes, |change| leads(change, &store), in_base).map_err(stored)?;
    let contents = patch::Contents { lower: sources.lower.as_fd(), store: &store };
    let file = create(run, PATCH).map_err(stored)?;
    let patch = patch::write(&found.changes, &contents, caps.patch_bytes, file, watch)?;
    let record = Record {
        format: Format::V1,
        changes: found.changes,
        rejected: found.rejected,
        flagged,
        git_metadata_changes: found.git_metadata,
        manifest_sha256,
        patch_bytes: patch.bytes,
        patch_omitted: patch.omitted,
        left_out: found.left_out,
        artifacts: found.artifacts,
        changed_meanwhile: found.changed_meanwhile,
        artifacts_refused: found.artifacts_refused,
        commits: commits::made(sources),
    };
    save(&record, run).map_err(stored)?;
    Ok(Collected { record, edit_result })
}

fn remove_parts(run: BorrowedFd<'_>) -> io::Result<()> {
    Store::remove(run)?;
    for name in [CHANGES, PATCH, MANIFEST] {
        match rustix::fs::unlinkat(run, name, rustix::fs::AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn create(run: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    Ok(File::from(beneath::create_file(run, name.as_bytes(), mode)?))
}

fn save(record: &Record, run: BorrowedFd<'_>) -> io::Result<()> {
    let mut out = io::BufWriter::new(create(run, CHANGES)?);
    serde_json::to_writer_pretty(&mut out, record)?;
    out.flush()
}

impl Record {
    /// Reads back what [`collect`] wrote.
    pub fn load(run: BorrowedFd<'_>) -> io::Result<Self> {
        let file = File::from(beneath::open_file(run, CHANGES.as_bytes())?);
        Ok(serde_json::from_reader(io::BufReader::new(file))?)
    }
}

/// Where the link a change brings leads; anything that is not a link stays inside.
fn leads(change: &Change, store: &Store) -> io::Result<link::Leads> {
    match change.delta.result() {
        Some(Leaf { mode: Mode::Link, sha256, .. }) => Ok(link::leads(&change.path, &store.bytes(sha256)?)),
        Some(Leaf { mode: Mode::Regular | Mode::Executable, .. }) | None => Ok(link::Leads::Inside),
    }
}

#[cfg(test)]
mod tests;
