//! Reads what a dead job left, and says what became of it. A result that cannot be had costs the result, never the run: the
//! exit code and the logs stand.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use pond_sandbox::container::TransferFault;
use pond_worker::because;
use pond_worker::collect::{
    Above, Artifacts, Caps, CollectFault, Collected, Ignored, LeftOut, OverlayXattrs, Sources, Wanted,
    collect,
};
use pond_worker::path::RelPath;
use pond_worker::supervise::Ended;
use serde::Serialize;

use super::base::Base;

const EDIT_RESULT: &str = "edit_result.json";

/// What became of the job's files.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub(crate) enum Output {
    /// The job had no writable view to leave anything in.
    Nothing,
    Collected(Box<ResultSummary>),
    NotCollected {
        reason: String,
        advice: &'static str,
    },
}

#[derive(Debug, Serialize)]
pub(crate) struct ResultSummary {
    pub(crate) changed: usize,
    pub(crate) rejected: usize,
    /// New paths that the checkout's ignore rules match, by rule file; a directory counts once.
    pub(crate) left_out: Vec<LeftOut>,
    /// Files that tools on this machine act on by themselves; look at them before applying.
    pub(crate) flagged: Vec<String>,
    pub(crate) git_metadata_changes: u64,
    /// Where both the job and somebody else changed something while it ran; `pond apply` refuses them.
    pub(crate) changed_meanwhile: Vec<RelPath>,
    pub(crate) output_sha256: String,
    pub(crate) patch: PathBuf,
    /// Changes too large for the patch: it does not show them.
    pub(crate) patch_omitted: Vec<RelPath>,
    /// The job's own report, as it wrote it.
    pub(crate) edit_result: Option<PathBuf>,
    pub(crate) artifacts: ArtifactSummary,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct ArtifactSummary {
    pub(crate) directory: Option<PathBuf>,
    pub(crate) copied: Vec<RelPath>,
    pub(crate) missing: Vec<RelPath>,
}

/// A collected result, or why there is none.
#[derive(Debug)]
pub(super) enum Gathered {
    Nothing,
    Collected(Box<Collected>),
    Failed(CollectFault, Ignored),
    /// It did not come out of the container.
    Lost(TransferFault),
}

/// Reads the result, now that nothing inside can change it any more.
pub(super) fn gather(
    ended: &mut Ended,
    base: &Base<'_>,
    above: Option<Above>,
    wanted: &Wanted<'_>,
    run: &Path,
) -> anyhow::Result<Gathered> {
    if let Some(fault) = ended.over.lost.take() {
        return Ok(Gathered::Lost(fault));
    }
    let Some(written) = ended.over.upper.take() else { return Ok(Gathered::Nothing) };
    let upper = written.as_fd().try_clone_to_owned()?;
    let lower = base.checkout().as_fd().try_clone_to_owned()?;
    let xattrs = OverlayXattrs::of_own_jobs();
    let directory = File::open(run).with_context(|| format!("opening {}", run.display()))?;
    let sources = Sources { upper, lower, xattrs, above, start: base.start() };
    match collect(&sources, wanted, &Caps::default(), directory.as_fd()) {
        Ok(collected) => {
            save_edit_result(&collected, run)?;
            Ok(Gathered::Collected(Box::new(collected)))
        }
        Err(fault) => Ok(Gathered::Failed(fault, wanted.ignored)),
    }
}

fn save_edit_result(collected: &Collected, run: &Path) -> anyhow::Result<()> {
    let Some(bytes) = &collected.edit_result else { return Ok(()) };
    let path = run.join(EDIT_RESULT);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(bytes).with_context(|| format!("writing {}", path.display()))
}

impl Gathered {
    pub(super) fn record(&self) -> Option<&pond_worker::collect::Record> {
        match self {
            Self::Collected(collected) => Some(&collected.record),
            Self::Nothing | Self::Failed(..) | Self::Lost(_) => None,
        }
    }

    pub(super) fn summary(&self, run: &Path, artifacts: ArtifactSummary) -> Output {
        match self {
            Self::Nothing => Output::Nothing,
            Self::Collected(collected) => Output::Collected(Box::new(summary(collected, run, artifacts))),
            Self::Failed(fault, ignored) => {
                Output::NotCollected { reason: because(fault), advice: advice(fault, *ignored) }
            }
            Self::Lost(fault) => Output::NotCollected {
                reason: because(fault),
                advice: "the logs are complete; on a backend that binds the copy it would have been kept",
            },
        }
    }
}

impl ArtifactSummary {
    pub(super) fn of(artifacts: Artifacts, directory: PathBuf) -> Self {
        let directory = (!artifacts.copied.is_empty()).then_some(directory);
        Self { directory, copied: artifacts.copied, missing: artifacts.missing }
    }
}

fn summary(collected: &Collected, run: &Path, artifacts: ArtifactSummary) -> ResultSummary {
    let record = &collected.record;
    let flagged = record.flagged.iter().map(|flag| format!("{}: {}", flag.path, flag.category.why()));
    ResultSummary {
        changed: record.changes.len(),
        rejected: record.rejected.len(),
        left_out: record.left_out.clone(),
        flagged: flagged.collect(),
        git_metadata_changes: record.git_metadata_changes,
        changed_meanwhile: record.changed_meanwhile.clone(),
        output_sha256: record.manifest_sha256.to_string(),
        patch: run.join("changes.patch"),
        patch_omitted: record.patch_omitted.clone(),
        edit_result: collected.edit_result.as_ref().map(|_| run.join(EDIT_RESULT)),
        artifacts,
    }
}

fn advice(fault: &CollectFault, ignored: Ignored) -> &'static str {
    match (fault, ignored) {
        (CollectFault::Exceeded { .. }, Ignored::LeaveOut) => {
            "name build output in .gitignore before the run, and ask for what you need of it with --artifact"
        }
        (CollectFault::Exceeded { .. }, Ignored::Keep) => {
            "run without --keep-ignored, and ask for what you need of it with --artifact"
        }
        (CollectFault::Changed { .. }, _) => "run again with --snapshot, or without editing the checkout",
        (CollectFault::Store { .. }, _) => "make room in the state directory, or set POND_STATE_DIR",
        (CollectFault::Read { .. } | CollectFault::Name { .. }, _) => "the logs are complete",
    }
}
