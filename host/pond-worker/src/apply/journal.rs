//! What an apply is about to do, on disk before it does it, in the run directory. Every checkout that a run is applied to has a
//! journal of its own there, so that one of them that is gone, or half done, stands in nobody else's way.
//!
//! The journal names the staging directory, the steps and the phase; which steps were taken is read from the file
//! system itself, so no write is needed between two steps.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{ApplyRefused, STAGING_PREFIX};
use crate::path::RelPath;
use crate::{beneath, fault};

const PREFIX: &str = "apply-";
const SUFFIX: &str = ".journal";

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Journal {
    pub(super) staging: String,
    /// Where the staging directory is.
    pub(super) tree: Tree,
    /// What that was called then, if anybody can write it down.
    #[serde(default)]
    pub(super) place: Option<String>,
    pub(super) phase: Phase,
    pub(super) steps: Vec<Step>,
    /// Directories to make, parents first.
    pub(super) made: Vec<RelPath>,
    /// Directories that may become empty and then leave, children first.
    pub(super) gone: Vec<RelPath>,
}

/// The root of the checkout that an apply changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tree {
    device: u64,
    inode: u64,
}

impl Tree {
    pub(super) fn of(root: BorrowedFd<'_>) -> Result<Self, ApplyRefused> {
        let stat = rustix::fs::fstat(root).map_err(|errno| ApplyRefused::Open { source: errno.into() })?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino })
    }

    /// A device may get another number when it is mounted again, so it is no part of the name.
    fn journal(self) -> String {
        format!("{PREFIX}{:x}{SUFFIX}", self.inode)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// The checkout is untouched.
    Staging,
    /// Any number of steps may have been taken.
    Committing,
    /// All steps were taken; the staging directory is rubbish.
    Applied,
    /// All steps were undone; the staging directory is rubbish.
    Undone,
}

/// One change of one path; its slot in the staging directory is its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    pub(super) path: RelPath,
    pub(super) action: Action,
}

/// The inode tells a staged file from the one it changed places with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Action {
    Remove,
    Replace { staged: u64 },
    Create { staged: u64 },
}

impl Journal {
    /// Chooses a staging name and writes it down before it exists.
    pub(super) fn begin(run: BorrowedFd<'_>, root: BorrowedFd<'_>) -> Result<Self, ApplyRefused> {
        let tree = Tree::of(root)?;
        let named = std::fs::read_link(format!("/proc/self/fd/{}", root.as_raw_fd())).ok();
        let place = named.and_then(|path| path.into_os_string().into_string().ok());
        let failed = |errno: Errno| ApplyRefused::Journal { source: errno.into() };
        let mut random = [0_u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).map_err(failed)?;
        let suffix: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let staging = format!("{STAGING_PREFIX}{suffix}");
        let (steps, made, gone) = (Vec::new(), Vec::new(), Vec::new());
        let mut journal = Self { staging, tree, place, phase: Phase::Staging, steps, made, gone };
        journal.advance(run, Phase::Staging)?;
        Ok(journal)
    }

    /// Writes the journal with its new phase; the old one stays until the new one is complete.
    pub(super) fn advance(&mut self, run: BorrowedFd<'_>, phase: Phase) -> Result<(), ApplyRefused> {
        let before = std::mem::replace(&mut self.phase, phase);
        let written = self.write(run);
        if written.is_err() {
            self.phase = before;
        }
        fault::point();
        written.map_err(|source| ApplyRefused::Journal { source })
    }

    fn write(&self, run: BorrowedFd<'_>) -> io::Result<()> {
        let name = self.tree.journal();
        let next = format!("{name}.next");
        remove_if_there(run, &next)?;
        let mut file = File::from(beneath::create_file(run, next.as_bytes(), Mode::RUSR | Mode::WUSR)?);
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_data()?;
        Ok(rustix::fs::renameat(run, next, run, name)?)
    }

    /// The journal of an apply to the tree at `root`, if there is one.
    pub(super) fn load(run: BorrowedFd<'_>, root: BorrowedFd<'_>) -> Result<Option<Self>, ApplyRefused> {
        Self::read(run, Tree::of(root)?.journal().as_bytes())
    }

    /// Every journal of a run.
    pub(super) fn all(run: BorrowedFd<'_>) -> Result<Vec<Self>, ApplyRefused> {
        let failed = |errno: Errno| ApplyRefused::Journal { source: errno.into() };
        let listed = beneath::open_dir(run, b"").map_err(failed)?;
        let mut names = Vec::new();
        beneath::each_name(listed.as_fd(), failed, |name| {
            let name = name.to_bytes();
            if name.starts_with(PREFIX.as_bytes()) && name.ends_with(SUFFIX.as_bytes()) {
                names.push(name.to_vec());
            }
            Ok(())
        })?;
        let journals = names.iter().map(|name| Self::read(run, name));
        Ok(journals.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    fn read(run: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Self>, ApplyRefused> {
        let file = match beneath::open_file(run, name) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(ApplyRefused::Journal { source: errno.into() }),
        };
        let journal = serde_json::from_reader(io::BufReader::new(file));
        journal.map(Some).map_err(|error| ApplyRefused::Journal { source: error.into() })
    }

    /// True when this is about the tree at `root`. A device may get another number when it is mounted again, so the staging
    /// directory, whose name nobody could guess, speaks for it as well.
    pub(super) fn is_about(&self, root: BorrowedFd<'_>) -> Result<bool, ApplyRefused> {
        let tree = Tree::of(root)?;
        Ok(self.tree == tree
            || (self.tree.inode == tree.inode && beneath::open_dir(root, self.staging.as_bytes()).is_ok()))
    }

    pub(super) fn remove(&self, run: BorrowedFd<'_>) -> Result<(), ApplyRefused> {
        let removed = remove_if_there(run, &self.tree.journal());
        fault::point();
        removed.map_err(|source| ApplyRefused::Journal { source })
    }
}

fn remove_if_there(run: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    match rustix::fs::unlinkat(run, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
