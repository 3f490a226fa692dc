//! What a run hands over beside its changes: declared artifacts, and with `--out` a directory of everything worth keeping.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use pond_worker::collect::{Record, copy_artifacts};
use pond_worker::path::RelPath;

use super::gather::ArtifactSummary;
use super::summary::Summary;

const ARTIFACTS: &str = "artifacts";
const KEPT: [&str; 5] = ["changes.patch", "manifest.json", "edit_result.json", "stdout.log", "stderr.log"];

/// Paths below the checkout, as a person writes them.
pub(super) fn declared(paths: &[OsString]) -> anyhow::Result<Vec<RelPath>> {
    paths
        .iter()
        .map(|text| {
            let bytes = text.as_bytes();
            let bytes = bytes.strip_prefix(b"./").unwrap_or(bytes);
            RelPath::from_bytes(bytes.strip_suffix(b"/").unwrap_or(bytes))
                .with_context(|| format!("--artifact {text:?}: name a path below the checkout"))
        })
        .collect()
}

/// A directory that was not there before; removed again unless it gets its content.
#[derive(Debug)]
pub(super) struct Out {
    path: PathBuf,
    is_complete: bool,
}

impl Out {
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let made = DirBuilder::new().mode(0o700).create(path);
        made.with_context(|| format!("--out {} must be a new directory", path.display()))?;
        Ok(Self { path: path.to_owned(), is_complete: false })
    }

    /// Copies what the run's directory holds, and the summary.
    pub(super) fn fill(&mut self, run: &Path, summary: &Summary) -> anyhow::Result<()> {
        for name in KEPT {
            let source = match File::open(run.join(name)) {
                Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            self.write(name, source)?;
        }
        let mut text = serde_json::to_vec_pretty(summary)?;
        text.push(b'\n');
        self.write("summary.json", text.as_slice())?;
        self.is_complete = true;
        Ok(())
    }

    fn write(&self, name: &str, mut source: impl std::io::Read) -> anyhow::Result<()> {
        let path = self.path.join(name);
        let mut target = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        std::io::copy(&mut source, &mut target).with_context(|| format!("writing {}", path.display()))?;
        Ok(target.flush()?)
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        if !self.is_complete
            && let Err(fault) = std::fs::remove_dir_all(&self.path)
        {
            eprintln!("pond: warning: removing the unfinished {}: {fault}", self.path.display());
        }
    }
}

/// Copies declared artifacts to `--out`, or into the run's own directory.
pub(super) fn artifacts(
    run: &Path,
    record: Option<&Record>,
    declared: &[RelPath],
    out: Option<&Out>,
) -> anyhow::Result<ArtifactSummary> {
    let Some(record) = record.filter(|_| !declared.is_empty()) else {
        return Ok(ArtifactSummary { missing: declared.to_vec(), ..ArtifactSummary::default() });
    };
    let directory = out.map_or(run, |out| &out.path).join(ARTIFACTS);
    DirBuilder::new().mode(0o700).create(&directory)?;
    let (source, target) = (File::open(run)?, File::open(&directory)?);
    let copied = copy_artifacts(source.as_fd(), record, declared, target.as_fd())?;
    if copied.copied.is_empty() {
        std::fs::remove_dir(&directory)?;
    }
    Ok(ArtifactSummary::of(copied, directory))
}
