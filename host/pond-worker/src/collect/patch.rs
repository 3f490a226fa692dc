//! The reviewable patch: git's own format, so `git apply` takes it, with binary files as complete literals.
//!
//! Contents are hostile: text diffs are bounded in bytes, lines and work; everything else streams.
//! A file that would push the patch over its cap is left out whole and named, never cut in half; where not all may fit, the
//! smallest come first, so no large file hides a small one. Literals carry no reverse part, so a patch with binary files
//! applies forward only.

mod binary;
mod source;
mod text;

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};

use super::CollectFault;
use super::change::{Change, Delta, Leaf};
use super::pace::{Progress, Watch};
use crate::path::{RelPath, quoted};
pub(super) use source::Contents;
use source::Side;

/// What became of the patch file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) bytes: u64,
    pub(super) omitted: Vec<RelPath>,
}

/// Writes the patch of all changes to `file`, which must be empty.
pub(super) fn write(
    changes: &[Change],
    contents: &Contents<'_>,
    cap: u64,
    file: File,
    watch: Watch<'_>,
) -> Result<Written, CollectFault> {
    let mut out = Capped { inner: BufWriter::new(file), kept: 0, room: 0, is_over: false };
    // Undone attempts cost time as well: twice the cap in all, kept or not.
    let mut attempts = cap.saturating_mul(2);
    let mut effort = text::Effort::new();
    let mut omitted = Vec::new();
    for (done, change) in in_order(changes, cap).into_iter().enumerate() {
        if watch(Progress::WritingPatch { done, of: changes.len() }).is_break() {
            return Err(CollectFault::Stopped);
        }
        out.room = cap.saturating_sub(out.kept).min(attempts);
        let start = out.kept;
        let rendered = render(change, contents, &mut effort, &mut out);
        attempts = attempts.saturating_sub(out.kept - start);
        match rendered {
            Ok(()) => {}
            Err(_) if out.is_over => {
                out.rewind(start).map_err(|source| CollectFault::Store { source })?;
                omitted.push(change.path.clone());
            }
            Err(Unrendered::Write(source)) => return Err(CollectFault::Store { source }),
            Err(Unrendered::Read(fault)) => return Err(fault),
        }
    }
    out.inner.flush().map_err(|source| CollectFault::Store { source })?;
    omitted.sort_unstable();
    Ok(Written { bytes: out.kept, omitted })
}

/// By path as long as all of it surely fits, otherwise by size.
fn in_order(changes: &[Change], cap: u64) -> Vec<&Change> {
    let mut ordered: Vec<&Change> = changes.iter().collect();
    if changes.iter().map(at_most).fold(0, u64::saturating_add) > cap {
        ordered.sort_by_key(|change| at_most(change));
    }
    ordered
}

/// About the most bytes a change can take: short lines with their marks, names escaped, literals that do not compress.
fn at_most(change: &Change) -> u64 {
    let content = |leaf: Option<Leaf>| leaf.map_or(0, |leaf| leaf.size);
    let names = u64::try_from(change.path.as_bytes().len()).unwrap_or(u64::MAX).saturating_mul(16);
    let contents = content(change.delta.base()).saturating_add(content(change.delta.result()));
    contents.saturating_mul(2).saturating_add(names).saturating_add(1024)
}

/// Why a file's part of the patch was not finished.
#[derive(Debug)]
enum Unrendered {
    Write(io::Error),
    Read(CollectFault),
}

impl From<CollectFault> for Unrendered {
    fn from(fault: CollectFault) -> Self {
        Self::Read(fault)
    }
}

impl From<io::Error> for Unrendered {
    fn from(source: io::Error) -> Self {
        Self::Write(source)
    }
}

fn render(
    change: &Change,
    contents: &Contents<'_>,
    effort: &mut text::Effort,
    out: &mut impl Write,
) -> Result<(), Unrendered> {
    let path = &change.path;
    match change.delta {
        // Git spells a change of type as a removal and a creation.
        Delta::TypeChanged { base, new } => {
            one(path, (Some(base), None), contents, effort, out)?;
            one(path, (None, Some(new)), contents, effort, out)
        }
        Delta::Added { .. } | Delta::Deleted { .. } | Delta::Modified { .. } | Delta::ModeChanged { .. } => {
            one(path, (change.delta.base(), change.delta.result()), contents, effort, out)
        }
    }
}

fn one(
    path: &RelPath,
    (base, new): (Option<Leaf>, Option<Leaf>),
    contents: &Contents<'_>,
    effort: &mut text::Effort,
    out: &mut impl Write,
) -> Result<(), Unrendered> {
    let (old_name, new_name) = (quoted("a/", path.as_bytes()), quoted("b/", path.as_bytes()));
    writeln!(out, "diff --git {old_name} {new_name}")?;
    write_modes(base, new, out)?;
    if base.map(|leaf| leaf.sha256) == new.map(|leaf| leaf.sha256) {
        return Ok(());
    }
    let before = contents.base(path, base)?;
    let after = contents.result(new)?;
    write!(out, "index {}..{}", before.git_id()?, after.git_id()?)?;
    match (base, new) {
        (Some(base), Some(new)) if base.mode == new.mode => writeln!(out, " {}", base.mode.as_str())?,
        _ => writeln!(out)?,
    }
    let (Some(before_text), Some(after_text)) = (before.text(), after.text()) else {
        return Ok(binary::literal(&after, out)?);
    };
    if before_text.is_empty() && after_text.is_empty() {
        return Ok(());
    }
    writeln!(out, "--- {}", header_name(&before, &old_name))?;
    writeln!(out, "+++ {}", header_name(&after, &new_name))?;
    Ok(text::hunks(before_text, after_text, effort, out)?)
}

fn write_modes(base: Option<Leaf>, new: Option<Leaf>, out: &mut impl Write) -> io::Result<()> {
    match (base, new) {
        (None, Some(new)) => writeln!(out, "new file mode {}", new.mode.as_str()),
        (Some(base), None) => writeln!(out, "deleted file mode {}", base.mode.as_str()),
        (Some(base), Some(new)) if base.mode != new.mode => {
            writeln!(out, "old mode {}\nnew mode {}", base.mode.as_str(), new.mode.as_str())
        }
        (Some(_), Some(_)) | (None, None) => Ok(()),
    }
}

/// A tab ends an unquoted name that contains blanks, as git and `patch` expect.
fn header_name(side: &Side, name: &str) -> String {
    match side {
        Side::Absent => "/dev/null".to_owned(),
        Side::Text(_) | Side::Opaque(_) if name.contains(' ') && !name.starts_with('"') => {
            format!("{name}\t")
        }
        Side::Text(_) | Side::Opaque(_) => name.to_owned(),
    }
}

/// Counts what is written and refuses what does not fit.
#[derive(Debug)]
struct Capped {
    inner: BufWriter<File>,
    kept: u64,
    room: u64,
    is_over: bool,
}

impl Capped {
    fn rewind(&mut self, to: u64) -> io::Result<()> {
        self.inner.flush()?;
        self.inner.get_ref().set_len(to)?;
        self.inner.seek(SeekFrom::Start(to))?;
        self.kept = to;
        self.is_over = false;
        Ok(())
    }
}

impl Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let Some(room) = self.room.checked_sub(length) else {
            self.is_over = true;
            return Err(io::ErrorKind::QuotaExceeded.into());
        };
        self.room = room;
        self.inner.write_all(bytes)?;
        self.kept += length;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
