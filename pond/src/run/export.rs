//! What a run hands over beside its changes: declared artifacts, and with `--out` a directory of everything worth keeping.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use pond_sandbox::record::JobName;
use pond_sandbox::state::StateDir;
use pond_seal::result::Stream;
use pond_worker::collect::{Record, copy_artifacts};
use pond_worker::pack::pack_result;
use pond_worker::path::{RelPath, quoted};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::gather::ArtifactSummary;
use super::summary::Summary;
use crate::failure::Failure;
use crate::output;
use crate::proof::{CHANGES, EGRESS, MANIFEST, PATCH, POLICY, STATEMENT};

const ARTIFACTS: &str = "artifacts";
const OBJECTS: &str = "objects";
/// Half of what a control plane takes of one result.
const HANDED_ON_BYTES: u64 = 128 << 20;
const HANDED_ON_FILES: usize = 50_000;
/// What came of a job, besides its artifacts.
const RESULT: [&str; 6] = [CHANGES, PATCH, MANIFEST, POLICY, EGRESS, "edit_result.json"];
/// What is said about it, and what it said.
const ACCOUNT: [&str; 4] = [STATEMENT, "stdout.log", "stderr.log", "terminal.log"];

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

/// A directory that was not there before. It is filled under another name beside its place and gets its own when it is complete;
/// until then the run's directory says where it is, so that a sweep finds it.
#[derive(Debug)]
pub(super) struct Out {
    place: PathBuf,
    building: PathBuf,
    mark: PathBuf,
    is_complete: bool,
}

impl Out {
    pub(super) fn create(path: &Path, state: &StateDir, job: &JobName) -> anyhow::Result<Self> {
        let refused = || format!("--out {} must be a new directory", path.display());
        let place = std::path::absolute(path).with_context(refused)?;
        if place.symlink_metadata().is_ok() {
            return Err(Failure::Usage.because(format!("{}: it is there already", refused())));
        }
        let building = place.with_file_name(StateDir::output_name(job));
        let mark = state.output_mark(job);
        std::os::unix::fs::symlink(&building, &mark)?;
        DirBuilder::new().mode(0o700).create(&building).with_context(refused)?;
        Ok(Self { place, building, mark, is_complete: false })
    }

    /// Says what became of it; what there is of it goes.
    pub(super) fn failed(self, fault: &anyhow::Error) -> String {
        format!("{}: {fault:#}", quoted("", self.place.as_os_str().as_bytes()))
    }

    /// Copies what the run's directory holds, and the summary.
    pub(super) fn fill(&mut self, run: &Path, summary: &Summary) -> anyhow::Result<()> {
        for name in RESULT.into_iter().chain(ACCOUNT) {
            let source = match File::open(run.join(name)) {
                Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            self.write(name, source)?;
        }
        let mut text = serde_json::to_vec_pretty(summary)?;
        text.push(b'\n');
        self.write("summary.json", text.as_slice())?;
        renameat_with(CWD, &self.building, CWD, &self.place, RenameFlags::NOREPLACE)
            .with_context(|| format!("naming the output directory {}", self.place.display()))?;
        self.is_complete = true;
        Ok(std::fs::remove_file(&self.mark)?)
    }

    fn write(&self, name: &str, mut source: impl std::io::Read) -> anyhow::Result<()> {
        let path = self.building.join(name);
        let mut target = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        std::io::copy(&mut source, &mut target).with_context(|| format!("writing {}", path.display()))?;
        Ok(target.flush()?)
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        if self.is_complete {
            return;
        }
        let removed = match std::fs::remove_dir_all(&self.building) {
            Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        // Where it is not gone a sweep will look, if this run is not kept.
        let unmarked = removed.and_then(|()| std::fs::remove_file(&self.mark));
        if let Err(fault) = unmarked {
            output::say(&format!(
                "pond: warning: removing the unfinished {}: {fault}",
                self.building.display()
            ));
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
    let (building, place) = out.map_or((run, run), |out| (&out.building, &out.place));
    let directory = building.join(ARTIFACTS);
    DirBuilder::new().mode(0o700).create(&directory)?;
    let (source, target) = (File::open(run)?, File::open(&directory)?);
    let copied = copy_artifacts(source.as_fd(), record, declared, target.as_fd())?;
    if copied.copied.is_empty() {
        std::fs::remove_dir(&directory)?;
    }
    Ok(ArtifactSummary::of(copied, place.join(ARTIFACTS)))
}

/// The contents of changed files, under their digests: a stage that needs this one works on them. More than is handed on is left out
/// altogether: whatever a job builds, its patch arrives.
fn contents(run: &Path, directory: &Path) -> anyhow::Result<()> {
    let entries = match std::fs::read_dir(run.join(OBJECTS)) {
        Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?.collect::<Result<Vec<_>, _>>()?,
    };
    let mut bytes = 0_u64;
    for entry in &entries {
        bytes = bytes.saturating_add(entry.metadata()?.len());
    }
    if entries.len() > HANDED_ON_FILES || bytes > HANDED_ON_BYTES {
        return Ok(());
    }
    DirBuilder::new().mode(0o700).create(directory.join(OBJECTS))?;
    for entry in entries {
        std::fs::hard_link(entry.path(), directory.join(OBJECTS).join(entry.file_name()))?;
    }
    Ok(())
}

/// What came of a job, as the one stream a control plane takes.
pub(super) fn result_tree(run: &Path) -> anyhow::Result<()> {
    let directory = run.join("result");
    DirBuilder::new().mode(0o700).create(&directory)?;
    for name in RESULT {
        match std::fs::hard_link(run.join(name), directory.join(name)) {
            Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => {}
            linked => linked.with_context(|| format!("putting {name} into the result"))?,
        }
    }
    contents(run, &directory)?;
    if run.join(ARTIFACTS).exists() {
        std::fs::rename(run.join(ARTIFACTS), directory.join(ARTIFACTS))?;
    }
    let path = run.join(Stream::Result.file());
    let target = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
    pack_result(File::open(&directory)?.as_fd(), target).context("packing the result")?;
    Ok(std::fs::remove_dir_all(&directory)?)
}
