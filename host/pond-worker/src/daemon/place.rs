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

    /// Takes the place for one daemon, and removes what killed ones left and nobody works on any more. Sandboxes are swept by
    /// whoever looks at the host's capabilities.
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

    /// Sources nobody works on, and runs that ended and were never told.
    pub fn tidy(&self) -> Result<(), PlaceFault> {
        for path in entries(&self.jobs())? {
            if !is_in_use(&path) {
                remove(&path)?;
            }
        }
        let state = StateDir::open(&self.state())?;
        let live = recorded(&state)?;
        for path in entries(&state.runs())? {
            let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
            let name = name.and_then(|name| JobName::try_from(name).ok());
            if name.is_none_or(|name| !live.iter().any(|other| other.as_str() == name.as_str())) {
                remove(&path)?;
            }
        }
        Ok(())
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

/// Whoever runs a job holds its source.
fn is_in_use(path: &Path) -> bool {
    let Ok(source) = File::open(path.join("source")) else { return false };
    flock(&source, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
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
    fn what_killed_daemons_left_goes_and_what_is_in_use_stays() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::open(directory.path()).unwrap();
        for job in ["left", "used"] {
            std::fs::create_dir_all(place.jobs().join(job).join("source/a")).unwrap();
        }
        let state = StateDir::open(&place.state()).unwrap();
        std::fs::create_dir_all(state.runs().join("20260101-000000-000000000/x")).unwrap();
        let used = File::open(place.jobs().join("used/source")).unwrap();
        flock(&used, FlockOperation::LockShared).unwrap();
        let alone = place.take().unwrap();
        assert_eq!(entries(&place.jobs()).unwrap(), [place.jobs().join("used")]);
        assert_eq!(entries(&state.runs()).unwrap(), Vec::<PathBuf>::new());
        assert!(matches!(place.take(), Err(PlaceFault::Taken)), "one daemon at a time");
        drop((alone, used));
        drop(place.take().unwrap());
        assert_eq!(entries(&place.jobs()).unwrap(), Vec::<PathBuf>::new());
    }
}
