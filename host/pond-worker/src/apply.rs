//! Puts a collected result into a checkout: every change or none, and only onto the base it was made from.
//!
//! New contents are staged inside the checkout's file system, the base is verified, then entries change places by
//! descriptor, never through a symbolic link and never in git metadata. A journal lets the next [`apply`] or
//! [`recover`] undo an apply that was killed. The journal lives in the run directory, because a hostile repository
//! could ship a forged one inside the checkout; so before a result is applied, every run is asked whether it is [`unfinished`]
//! there. Covered: death of the process at any step; not: loss of power.

mod attributes;
mod commit;
mod journal;
mod plan;
mod stage;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::Serialize;

use crate::beneath;
use crate::collect::{CollectFault, Record};
use crate::object::Store;
use crate::path::RelPath;
use journal::{Journal, Phase};

const STAGING_PREFIX: &str = ".pond-apply-";

/// What the user accepts beyond the ordinary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApplyOptions {
    /// Symbolic links that lead out of the tree or into git metadata.
    pub escaping_links: Accept,
    /// A result from which entries were left out.
    pub incomplete: Accept,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accept {
    No,
    Yes,
}

/// A result that is now in the checkout.
#[derive(Debug, PartialEq, Eq)]
pub struct Applied {
    pub changed: usize,
    pub recovered: Recovered,
}

/// What was left of an earlier apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Recovered {
    Nothing,
    /// It had not finished: the checkout is as before it began.
    RolledBack,
    /// It had finished: only its traces were removed.
    Finished,
}

/// Why the checkout was left as it was.
#[derive(Debug, thiserror::Error)]
pub enum ApplyRefused {
    #[error("read the run's record of changes")]
    Record { source: io::Error },
    #[error("the record of changes is not in order at {path}")]
    Malformed { path: RelPath },
    #[error("{count} entries were left out of this result")]
    Incomplete { count: usize },
    #[error("{path} is a symbolic link that leads out of the tree or into git metadata")]
    EscapingLink { path: RelPath },
    #[error("the checkout is no longer what the job worked on ({} conflicts)", .0.len())]
    Conflicts(Vec<Conflict>),
    #[error("another apply is at work in this checkout")]
    Busy,
    #[error(
        "an apply of this run to another checkout, which looks like this one, was cut short; apply it there first, so that it is undone"
    )]
    UnfinishedElsewhere,
    #[error("examine the checkout")]
    Examine { source: CollectFault },
    #[error("open the checkout or the run directory")]
    Open { source: io::Error },
    #[error("stage {path}")]
    Stage { path: RelPath, source: io::Error },
    #[error("{path} changed while the result was being applied")]
    Moved { path: RelPath },
    #[error("change {path}")]
    Change { path: RelPath, source: io::Error },
    #[error("write the journal")]
    Journal { source: io::Error },
    #[error("undo a half-done apply at {path}; its parts are kept in the checkout's {staging}")]
    Undo { path: RelPath, staging: String, source: io::Error },
    #[error("the staging directory {staging} of a half-done apply is gone")]
    StagingLost { staging: String },
    #[error("remove the staging directory {staging}")]
    Clean { staging: String, source: io::Error },
}

/// One path that is not as the result needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conflict {
    pub path: RelPath,
    pub kind: ConflictKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConflictKind {
    /// Should be there and is not.
    Missing,
    /// Should not be there and is.
    Exists,
    /// Content, mode or type is not the recorded base.
    Differs,
    /// A parent is a file or a symbolic link.
    ParentNotADirectory,
    /// Changed while the job ran, so nobody knows what the job began with.
    ChangedMeanwhile,
}

/// Applies the result in `run` to the tree at `checkout`.
pub fn apply(
    run: BorrowedFd<'_>,
    checkout: BorrowedFd<'_>,
    options: ApplyOptions,
) -> Result<Applied, ApplyRefused> {
    let root = lock(checkout)?;
    let recovered = recover_locked(run, root.as_fd())?;
    let record = Record::load(run).map_err(|source| ApplyRefused::Record { source })?;
    if options.incomplete == Accept::No && !record.rejected.is_empty() {
        return Err(ApplyRefused::Incomplete { count: record.rejected.len() });
    }
    let store = Store::open(run).map_err(|source| ApplyRefused::Open { source })?;
    let plan = plan::survey(&record, root.as_fd())?;
    let mut journal = Journal::begin(run, root.as_fd())?;
    let attempt = stage::stage(&plan, &store, root.as_fd(), options, &mut journal).and_then(|staging| {
        journal.advance(run, Phase::Committing)?;
        commit::commit(&plan, &journal, root.as_fd(), staging.as_fd())?;
        journal.advance(run, Phase::Applied)
    });
    match attempt {
        Ok(()) => finish(run, root.as_fd(), &journal)?,
        Err(cause) => {
            undo(run, root.as_fd(), &mut journal)?;
            return Err(cause);
        }
    }
    Ok(Applied { changed: record.changes.len(), recovered })
}

/// True when an apply of this run to this checkout was killed, or is at work.
pub fn unfinished(run: BorrowedFd<'_>, checkout: BorrowedFd<'_>) -> Result<bool, ApplyRefused> {
    Journal::load(run, checkout)?.map_or(Ok(false), |journal| journal.is_about(checkout))
}

/// An apply that was killed, or is at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// What its checkout was called, if that was written down.
    pub place: Option<String>,
    /// The directory in it that holds what undoes the apply.
    pub staging: String,
}

/// Every apply of this run that has not ended, wherever its checkout is or was.
pub fn all_unfinished(run: BorrowedFd<'_>) -> Result<Vec<Unfinished>, ApplyRefused> {
    let journals = Journal::all(run)?.into_iter();
    Ok(journals.map(|Journal { place, staging, .. }| Unfinished { place, staging }).collect())
}

/// Ends an apply of this run that was killed: undone unless it had finished.
pub fn recover(run: BorrowedFd<'_>, checkout: BorrowedFd<'_>) -> Result<Recovered, ApplyRefused> {
    recover_locked(run, lock(checkout)?.as_fd())
}

/// Names at the root of a checkout that belong to an apply at work; a result may not contain them.
pub(crate) fn is_staging_name(name: &[u8]) -> bool {
    name.to_ascii_lowercase().starts_with(STAGING_PREFIX.as_bytes())
}

/// The checkout, held against any other apply.
#[derive(Debug)]
struct Locked(OwnedFd);

impl AsFd for Locked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing alone would not do: a child forked meanwhile shares the lock until it execs.
        rustix::fs::flock(&self.0, FlockOperation::Unlock).unwrap_or_default();
    }
}

fn lock(checkout: BorrowedFd<'_>) -> Result<Locked, ApplyRefused> {
    let root =
        beneath::open_dir(checkout, b"").map_err(|errno| ApplyRefused::Open { source: errno.into() })?;
    match rustix::fs::flock(&root, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Locked(root)),
        Err(Errno::WOULDBLOCK) => Err(ApplyRefused::Busy),
        Err(errno) => Err(ApplyRefused::Open { source: errno.into() }),
    }
}

fn recover_locked(run: BorrowedFd<'_>, root: BorrowedFd<'_>) -> Result<Recovered, ApplyRefused> {
    let Some(mut journal) = Journal::load(run, root)? else { return Ok(Recovered::Nothing) };
    if !journal.is_about(root)? {
        return Err(ApplyRefused::UnfinishedElsewhere);
    }
    match journal.phase {
        Phase::Staging | Phase::Committing => undo(run, root, &mut journal).map(|()| Recovered::RolledBack),
        Phase::Undone => finish(run, root, &journal).map(|()| Recovered::RolledBack),
        Phase::Applied => finish(run, root, &journal).map(|()| Recovered::Finished),
    }
}

fn undo(run: BorrowedFd<'_>, root: BorrowedFd<'_>, journal: &mut Journal) -> Result<(), ApplyRefused> {
    if journal.phase == Phase::Committing {
        let Some(staging) = stage::open(root, journal)? else {
            return Err(ApplyRefused::StagingLost { staging: journal.staging.clone() });
        };
        commit::roll_back(journal, root, staging.as_fd())?;
    }
    journal.advance(run, Phase::Undone)?;
    finish(run, root, journal)
}

fn finish(run: BorrowedFd<'_>, root: BorrowedFd<'_>, journal: &Journal) -> Result<(), ApplyRefused> {
    stage::remove(root, journal)?;
    journal.remove(run)
}

#[cfg(test)]
mod tests;
