//! Where a worker keeps what is its own: keys, who it joined, and the jobs it has. Everything below is private to its owner.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use pond_sandbox::record::{JobName, RecordFault, recorded};
use pond_sandbox::state::{StateDir, StateFault};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

#[derive(Debug, thiserror::Error)]
pub enum PlaceFault {
    #[error("making {path}")]
    Make { path: PathBuf, source: io::Error },
    #[error("another daemon of this worker is running")]
    Taken,
    #[error("locking {path}")]
    Lock { path: PathBuf, source: io::Error },
    #[error("removing what an earlier daemon left in {path}")]
    Remove { path: PathBuf, source: io::Error },
    #[error(transparent)]
    State(#[from] StateFault),
    #[error(transparent)]
    Record(#[from] RecordFault),
}

/// The worker's directory.
#[derive(Debug, Clone)]
pub struct Place {
    root: PathBuf,
}

/// This worker's only daemon, as long as it lives.
#[derive(Debug)]
pub struct Alone {
    _lock: File,
}

/// A job's own directory; it goes with this value.
#[derive(Debug)]
pub(super) struct Desk {
    path: PathBuf,
}

/// The directory of a job that a daemon had which is gone.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Left {
    path: PathBuf,
    pub(super) job: String,
    pub(super) epoch: u64,
}

impl Place {
    /// The directory `worker` in pond's state.
    pub fn open(state: &Path) -> Result<Self, PlaceFault> {
        let place = Self { root: state.join("worker") };
        private(&place.root)?;
        private(&place.jobs())?;
        Ok(place)
    }

    pub fn signing_key(&self) -> PathBuf {
        self.root.join("signing-key.pem")
    }

    pub fn seal_key(&self) -> PathBuf {
        self.root.join("seal-key.pem")
    }

    /// Keys that are to take the place of those two, until it is known that they have.
    pub fn next_keys(&self) -> PathBuf {
        self.root.join("next-keys.pem")
    }

    /// Who this worker is and whom it joined.
    pub fn membership(&self) -> PathBuf {
        self.root.join("worker.json")
    }

    /// Records and results of jobs; apart from those of people who use pond on the same machine.
    pub fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    /// An empty directory for jobs that only show that they can run.
    pub fn canary(&self) -> PathBuf {
        self.root.join("canary")
    }

    fn jobs(&self) -> PathBuf {
        self.root.join("jobs")
    }

    /// Takes the place for one daemon, and removes what killed ones left but for their jobs, which the next one hands in. Sandboxes
    /// are swept by whoever looks at the host's capabilities.
    pub fn take(&self) -> Result<Alone, PlaceFault> {
        let path = self.root.join("lock");
        let failed = |source| PlaceFault::Lock { path: path.clone(), source };
        let lock = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(PlaceFault::Taken),
            Err(errno) => return Err(failed(errno.into())),
        }
        self.tidy()?;
        Ok(Alone { _lock: lock })
    }

    /// Runs that ended and were never told, and what is no job's in the room of jobs; those say which leases there were.
    fn tidy(&self) -> Result<(), PlaceFault> {
        for path in entries(&self.jobs())? {
            if Left::of(&path).is_none() {
                remove(&path)?;
            }
        }
        self.forget(&entries(&StateDir::open(&self.state())?.runs())?)
    }

    /// Removes those of these runs that are over.
    pub(super) fn forget(&self, runs: &[PathBuf]) -> Result<(), PlaceFault> {
        let live = recorded(&StateDir::open(&self.state())?)?;
        for path in runs.iter().filter(|path| path.exists()) {
            let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
            let name = name.and_then(|name| JobName::try_from(name).ok());
            if name.is_none_or(|name| !live.iter().any(|other| other.as_str() == name.as_str())) {
                remove(path)?;
            }
        }
        Ok(())
    }

    /// What daemons before this one had. A room that cannot be read is found unreadable by the next job.
    pub(super) fn left(&self) -> Vec<Left> {
        let paths = entries(&self.jobs()).unwrap_or_default();
        paths.iter().filter_map(|path| Left::of(path)).collect()
    }

    /// Runs of daemons before this one that were not over when it took the place.
    pub(super) fn unfinished(&self) -> Vec<PathBuf> {
        entries(&self.state().join("runs")).unwrap_or_default()
    }

    pub(super) fn desk(&self, job: &str, epoch: u64) -> Result<Desk, PlaceFault> {
        let path = self.jobs().join(format!("{job}.{epoch}"));
        let failed = |source| PlaceFault::Make { path: path.clone(), source };
        DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        let desk = Desk { path: path.clone() };
        DirBuilder::new().mode(0o755).create(desk.source()).map_err(failed)?;
        Ok(desk)
    }

    pub(super) fn run(&self, name: &str) -> Option<PathBuf> {
        let name = JobName::try_from(name.to_owned()).ok()?;
        Some(self.state().join("runs").join(name.as_str()))
    }
}

impl Desk {
    pub(super) fn source(&self) -> PathBuf {
        self.path.join("source")
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Err(_swept_at_the_next_start) = std::fs::remove_dir_all(&self.path) {}
    }
}

impl Left {
    fn of(path: &Path) -> Option<Self> {
        let (job, epoch) = path.file_name()?.to_str()?.rsplit_once('.')?;
        Some(Self { path: path.to_owned(), job: job.to_owned(), epoch: epoch.parse().ok()? })
    }

    /// Whoever runs a job holds its source.
    pub(super) fn is_in_use(&self) -> bool {
        let Ok(source) = File::open(self.path.join("source")) else { return false };
        flock(&source, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
    }

    pub(super) fn remove(&self) -> Result<(), PlaceFault> {
        remove(&self.path)
    }
}

fn private(path: &Path) -> Result<(), PlaceFault> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| PlaceFault::Make { path: path.to_owned(), source })
}

fn entries(path: &Path) -> Result<Vec<PathBuf>, PlaceFault> {
    let listed = std::fs::read_dir(path).and_then(|entries| {
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()
    });
    listed.map_err(|source| PlaceFault::Remove { path: path.to_owned(), source })
}

fn remove(path: &Path) -> Result<(), PlaceFault> {
    std::fs::remove_dir_all(path).map_err(|source| PlaceFault::Remove { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_daemons_had_is_known_and_what_is_no_job_s_goes() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::open(directory.path()).unwrap();
        for job in ["job_1.3", "rubbish"] {
            std::fs::create_dir_all(place.jobs().join(job).join("source/a")).unwrap();
        }
        let state = StateDir::open(&place.state()).unwrap();
        std::fs::create_dir_all(state.runs().join("20260101-000000-000000000/x")).unwrap();
        let alone = place.take().unwrap();
        assert_eq!(entries(&place.jobs()).unwrap(), [place.jobs().join("job_1.3")]);
        assert_eq!(entries(&state.runs()).unwrap(), Vec::<PathBuf>::new());
        assert!(matches!(place.take(), Err(PlaceFault::Taken)), "one daemon at a time");
        drop(alone);
        let left = place.left();
        let path = place.jobs().join("job_1.3");
        assert_eq!(left, [Left { path: path.clone(), job: "job_1".to_owned(), epoch: 3 }]);
        let used = File::open(path.join("source")).unwrap();
        flock(&used, FlockOperation::LockShared).unwrap();
        assert!(left[0].is_in_use());
        drop(used);
        assert!(!left[0].is_in_use());
        left[0].remove().unwrap();
        assert_eq!(place.left(), []);
    }
}
