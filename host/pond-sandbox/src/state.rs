//! Where a host keeps what outlives a process: templates, records of live jobs, results of finished ones.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::record::JobName;

#[derive(Debug, thiserror::Error)]
#[error("making the state directory {path}; set POND_STATE_DIR to a directory you can write to")]
pub struct StateFault {
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

/// A directory nobody but its owner can look into.
#[derive(Debug, Clone)]
pub struct StateDir {
    root: PathBuf,
}

impl StateDir {
    const ROOMS: [&'static str; 3] = ["scratch", "live", "runs"];
    /// What a run's gateway said, in the run's directory.
    pub const EGRESS: &'static str = "egress.jsonl";

    pub fn open(root: &Path) -> Result<Self, StateFault> {
        let state = Self { root: root.to_owned() };
        // The rooms are made together, so the last one standing means all do; the common case costs one look.
        if !state.runs().is_dir() {
            for room in Self::ROOMS {
                let path = root.join(room);
                std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(&path)
                    .map_err(|source| StateFault { path, source })?;
            }
        }
        Ok(state)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Templates of formatted images, and the filesystem on which images are made.
    pub fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    /// In a run's directory while it fills an output directory elsewhere: a link that says where.
    pub fn output_mark(&self, job: &JobName) -> PathBuf {
        self.runs().join(job.as_str()).join("output")
    }

    /// The name of an output directory until it is complete; a sweep removes no other.
    pub fn output_name(job: &JobName) -> String {
        format!(".pond-{}", job.as_str())
    }

    /// Where a job's disk is prepared as long as it needs names; gone before the job runs.
    pub(crate) fn workshop(&self, job: &JobName) -> PathBuf {
        self.scratch().join(format!(".{}", job.as_str()))
    }

    /// Where a container's storage hangs until the container holds it.
    pub(crate) fn stage(&self, job: &JobName) -> PathBuf {
        self.scratch().join(format!(".{}.stage", job.as_str()))
    }

    /// One locked record per job that may still have something to clean up.
    pub fn live(&self) -> PathBuf {
        self.root.join("live")
    }

    /// What this machine signs its runs with.
    pub fn signing_key(&self) -> PathBuf {
        self.root.join("signing-key.pem")
    }

    /// One line per command that was asked for.
    pub fn audit(&self) -> PathBuf {
        self.root.join("audit.jsonl")
    }

    /// What the gateways of runs without a result said, one file per run. Made when there is something to put into it.
    pub fn unfinished(&self) -> PathBuf {
        self.root.join("unfinished")
    }

    /// Sandboxes that last, one directory each; made with the first of them.
    pub fn sandboxes(&self) -> PathBuf {
        self.root.join("sandboxes")
    }

    /// Locked by whoever waits for stopped sandboxes to be due.
    pub fn waiter(&self) -> PathBuf {
        self.root.join("waiter")
    }

    /// Results, one directory per run.
    pub fn runs(&self) -> PathBuf {
        self.root.join("runs")
    }
}
