//! What a job's copy lies on: the live checkout, or a snapshot of it in the run's own directory.

use std::fs::{DirBuilder, File};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use pond_sandbox::checkout::Checkout;
use pond_seal::Digest;
use pond_worker::collect::{Record, Start, changed_since};
use pond_worker::pack::pack;
use pond_worker::snapshot::{Copied, snapshot};
use serde::Serialize;

/// What the summary says about it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub(crate) enum BaseSummary {
    Live {
        changed_meanwhile: bool,
    },
    Snapshot {
        skipped: u64,
        skipped_names: Vec<String>,
        /// Over all of it; none where a tree cannot be named so, as one with a file of more than a GiB.
        tree_sha256: Option<Digest>,
    },
}

#[derive(Debug)]
pub(super) enum Base<'a> {
    /// The tree itself, and when the job began to look at it.
    Live(&'a Checkout, Start),
    Snapshot {
        place: PathBuf,
        copy: Checkout,
        copied: Copied,
    },
}

impl<'a> Base<'a> {
    pub(super) fn live(checkout: &'a Checkout) -> anyhow::Result<Self> {
        let start = Start::of(checkout.as_fd()).context("noting the time of the checkout's file system")?;
        Ok(Self::Live(checkout, start))
    }

    /// Copies the checkout into the run's directory, which a sweep removes if we do not.
    pub(super) fn snapshot(checkout: &Checkout, run: &Path) -> anyhow::Result<Self> {
        let place = run.join("snapshot");
        DirBuilder::new().mode(0o700).create(&place)?;
        let target = File::open(&place)?;
        let copied = snapshot(checkout.as_fd(), target.as_fd()).context("making the snapshot")?;
        let copy = Checkout::open(&place)?;
        Ok(Self::Snapshot { place, copy, copied })
    }

    pub(super) fn checkout(&self) -> &Checkout {
        match self {
            Self::Live(checkout, _) => checkout,
            Self::Snapshot { copy, .. } => copy,
        }
    }

    /// From when on the base may change; a snapshot is ours alone.
    pub(super) fn start(&self) -> Option<Start> {
        match self {
            Self::Live(_, start) => Some(*start),
            Self::Snapshot { .. } => None,
        }
    }

    /// Removes the snapshot, and says what there is to say.
    pub(super) fn finish(self, record: Option<&Record>) -> anyhow::Result<BaseSummary> {
        match self {
            Self::Live(checkout, start) => {
                let changed =
                    record.map(|record| changed_since(checkout.as_fd(), record, start)).transpose()?;
                Ok(BaseSummary::Live { changed_meanwhile: changed.unwrap_or(false) })
            }
            Self::Snapshot { place, copy, copied } => {
                // A copy of ours that only the job saw, read-only: it is what the job began with.
                let tree_sha256 = pack(&copy, std::io::sink()).ok().map(|packed| packed.input);
                drop(copy);
                std::fs::remove_dir_all(&place).with_context(|| format!("removing {}", place.display()))?;
                let Copied { skipped, skipped_names, .. } = copied;
                Ok(BaseSummary::Snapshot { skipped, skipped_names, tree_sha256 })
            }
        }
    }
}
