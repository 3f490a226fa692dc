//! Reads what a dead job left, and says what became of it. A result that cannot be had costs the result, never the run: the
//! exit code and the logs stand.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use pond_sandbox::container::TransferFault;
use pond_sandbox::native::Leaving;
use pond_worker::because;
use pond_worker::collect::{
    Above, Artifacts, Caps, CollectFault, Collected, Ignored, LeftOut, Moved, OverlayXattrs, Rejected,
    Sources, Wanted, collect, discard,
};
use pond_worker::path::RelPath;
use pond_worker::supervise::Ended;
use serde::Serialize;

use super::base::Base;
use super::finding::{Finding, Kind};
use super::pace::Pace;
use super::verdict::Shortfall;

const EDIT_RESULT: &str = "edit_result.json";
const MAKE_ROOM: &str =
    "make room in the state directory (`pond gc` removes old runs), or set POND_STATE_DIR, and run it again";

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
    /// What the job committed in its copy, where it stays: HEAD and branches that name another commit than before.
    pub(crate) commits: Vec<Moved>,
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
    /// They are there, and were not taken.
    pub(crate) refused: Vec<Rejected>,
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
    /// The host's disk did not keep what the job wrote, so nothing of it can be trusted.
    Spoiled(io::Error, HostDisk),
}

/// The file system that the job's disk is a file on, as it is found afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostDisk {
    Full,
    HasRoom,
}

impl HostDisk {
    fn of(run: &File) -> Self {
        const LITTLE_BYTES: u64 = 1 << 20;
        match rustix::fs::fstatvfs(run) {
            Ok(disk) if disk.f_bavail.saturating_mul(disk.f_frsize) < LITTLE_BYTES => Self::Full,
            Ok(_) | Err(_) => Self::HasRoom,
        }
    }

    fn lost(self) -> &'static str {
        match self {
            Self::Full => "the host's disk is full, and what the job wrote could not be kept there",
            Self::HasRoom => {
                "the host's disk failed or was full while the job ran, and what the job wrote could not be kept there"
            }
        }
    }
}

/// Reads the result, now that nothing inside can change it any more. What it was read from goes away while the caller goes on.
pub(super) fn gather(
    ended: &mut Ended,
    base: &Base<'_>,
    above: Option<Above>,
    wanted: &Wanted<'_>,
    run: &Path,
    pace: &Pace<'_>,
) -> anyhow::Result<(Gathered, Option<Leaving>)> {
    if let Some(fault) = ended.over.lost.take() {
        return Ok((Gathered::Lost(fault), None));
    }
    let Some(written) = ended.over.upper.take() else { return Ok((Gathered::Nothing, None)) };
    let upper = written.as_fd().try_clone_to_owned()?;
    let lower = base.checkout().as_fd().try_clone_to_owned()?;
    let xattrs = OverlayXattrs::of_own_jobs();
    let directory = File::open(run).with_context(|| format!("opening {}", run.display()))?;
    let sources = Sources { upper, lower, xattrs, above, start: base.start() };
    let watch = |progress| pace.go_on(progress);
    let collected = collect(&sources, wanted, &Caps::default(), directory.as_fd(), &watch);
    // Last of all: whatever was lost before it was read is known now.
    if let Err(fault) = written.check() {
        discard(directory.as_fd())?;
        return Ok((Gathered::Spoiled(fault, HostDisk::of(&directory)), None));
    }
    drop(sources);
    let leaving = written.leave();
    let gathered = match collected.and_then(|collected| with_edit_result(collected, run, directory.as_fd())) {
        Ok(collected) => Gathered::Collected(Box::new(collected)),
        Err(fault) => Gathered::Failed(fault, wanted.ignored),
    };
    Ok((gathered, Some(leaving)))
}

fn with_edit_result(
    collected: Collected,
    run: &Path,
    directory: BorrowedFd<'_>,
) -> Result<Collected, CollectFault> {
    match save_edit_result(&collected, run) {
        Ok(()) => Ok(collected),
        Err(source) => {
            discard(directory)?;
            Err(CollectFault::Store { source })
        }
    }
}

fn save_edit_result(collected: &Collected, run: &Path) -> io::Result<()> {
    let Some(bytes) = &collected.edit_result else { return Ok(()) };
    let path = run.join(EDIT_RESULT);
    let written = File::options().write(true).create_new(true).mode(0o600).open(&path);
    let written = written.and_then(|mut file| file.write_all(bytes));
    if written.is_err() {
        // Half of it would pass for all of it.
        let removed = std::fs::remove_file(&path);
        removed.or_else(|fault| if fault.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(fault) })?;
    }
    written
}

impl Gathered {
    pub(super) fn record(&self) -> Option<&pond_worker::collect::Record> {
        match self {
            Self::Collected(collected) => Some(&collected.record),
            Self::Nothing | Self::Failed(..) | Self::Lost(_) | Self::Spoiled(..) => None,
        }
    }

    /// Whether pond failed, or was kept from finishing, where the job had a result. One that is too large is the job's doing.
    pub(super) fn shortfall(&self) -> Option<Shortfall> {
        match self {
            Self::Spoiled(..) | Self::Failed(CollectFault::Store { .. }, _) => Some(Shortfall::Failed),
            Self::Failed(CollectFault::Stopped, _) => Some(Shortfall::Interrupted),
            Self::Nothing | Self::Collected(_) | Self::Lost(_) => None,
            Self::Failed(
                CollectFault::Exceeded { .. }
                | CollectFault::Read { .. }
                | CollectFault::Changed { .. }
                | CollectFault::Moved { .. }
                | CollectFault::Name { .. },
                _,
            ) => None,
        }
    }

    /// What the job did not get of the host's disk.
    pub(super) fn finding(&self) -> Option<Finding> {
        let Self::Spoiled(..) = self else { return None };
        Some(Finding {
            kind: Kind::Disk,
            code: "host_disk".to_owned(),
            what: "the host's disk had no room for the job's, or failed".to_owned(),
            count: 1,
            rule: "a result is kept only if everything the job wrote was".to_owned(),
            advice: MAKE_ROOM.to_owned(),
        })
    }

    pub(super) fn summary(&self, run: &Path, artifacts: ArtifactSummary) -> Output {
        match self {
            Self::Nothing => Output::Nothing,
            Self::Collected(collected) => Output::Collected(Box::new(summary(collected, run, artifacts))),
            Self::Failed(fault, ignored) => {
                Output::NotCollected { reason: because(fault), advice: advice(fault, *ignored) }
            }
            Self::Spoiled(fault, disk) => {
                Output::NotCollected { reason: format!("{}: {fault}", disk.lost()), advice: MAKE_ROOM }
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
        let Artifacts { copied, refused, missing } = artifacts;
        Self { directory, copied, refused, missing }
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
        commits: record.commits.clone(),
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
        (CollectFault::Changed { .. } | CollectFault::Moved { .. }, _) => {
            "run again with --snapshot, or without editing the checkout"
        }
        (CollectFault::Store { .. }, _) => MAKE_ROOM,
        (CollectFault::Stopped, _) => "run it again, and let pond read the result to its end",
        (CollectFault::Read { .. } | CollectFault::Name { .. }, _) => "the logs are complete",
    }
}

#[cfg(test)]
mod tests {
    //! Whoever has no result is told how to get one.
    use super::*;

    #[test]
    fn a_checkout_that_moved_is_answered_by_a_snapshot() {
        let fault = CollectFault::Moved { path: "d/f".to_owned() };
        let said =
            Gathered::Failed(fault, Ignored::LeaveOut).summary(Path::new("/run"), ArtifactSummary::default());
        let Output::NotCollected { reason, advice } = said else { panic!("{said:?}") };
        assert!(
            reason.contains("d/f of the checkout") && advice.contains("--snapshot"),
            "{reason}: {advice}"
        );
    }
}
