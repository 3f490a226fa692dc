//! Where a sandbox that lasts is kept: one directory named after it, and a lock that says whether anybody keeps it.
//!
//! Invariants: a directory gets its name with its first event, its document and a held lock in it, all at once; a name that
//! was ever given is never given again, because the directory stays when the sandbox is gone, with its events in it.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pond_sandbox::record::JobName;
use pond_sandbox::state::StateDir;
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock};
use rustix::io::Errno;

use super::journal::{self, Journal, JournalFault};

const DOCUMENT: &str = "box.json";
const LOCK: &str = "lock";
const MOST_DOCUMENT: u64 = 4 << 20;
/// Removing a large disk is the longest that anybody does who keeps nothing.
const LONGEST_LOOK: Duration = Duration::from_secs(5);
const BETWEEN_TRIES: Duration = Duration::from_millis(1);

#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceFault {
    #[error("there is no sandbox {0}; `pond sandbox ls` lists them")]
    NoSuch(String),
    #[error("the id {0} was given to a sandbox before, and is never given again; choose another")]
    Taken(String),
    #[error("{0:?} is no id: 1 to 63 of a-z, 0-9 and -, no dash at either end")]
    Id(String),
    #[error("sandbox {id}: {path}")]
    Io { id: String, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Journal(#[from] JournalFault),
}

impl PlaceFault {
    /// Stable; the documents list it.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::NoSuch(_) => "sandbox_unknown",
            Self::Taken(_) => "sandbox_id_taken",
            Self::Id(_) => "id_invalid",
            Self::Io { .. } | Self::Journal(_) => "sandbox_state_broken",
        }
    }
}

/// One sandbox's directory.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    id: String,
    directory: PathBuf,
}

/// Held by whoever may append to the events: its keeper, or who looks after a sandbox that has none.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Place {
    /// Takes the name, with everything in it that says so. What is left of an attempt that was killed before is removed by
    /// [`Place::list`].
    pub(crate) fn create(
        state: &StateDir,
        id: &str,
        document: &str,
    ) -> Result<(Self, Lock, Journal), PlaceFault> {
        check(id)?;
        let room = state.sandboxes();
        let own = Self { id: id.to_owned(), directory: room.join(format!(".{id}.{}", std::process::id())) };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&own.directory);
        made.map_err(|source| own.fault("", source))?;
        let lock = own.new_lock()?;
        for name in ["execs", "nothing"] {
            let made = DirBuilder::new().mode(0o700).create(own.directory.join(name));
            made.map_err(|source| own.fault(name, source))?;
        }
        std::fs::write(own.path(DOCUMENT), document).map_err(|source| own.fault(DOCUMENT, source))?;
        let journal = Journal::create(&own.directory)?;
        let named = Self { id: own.id.clone(), directory: room.join(id) };
        match rustix::fs::renameat_with(CWD, &own.directory, CWD, &named.directory, RenameFlags::NOREPLACE) {
            Ok(()) => Ok((named, lock, journal)),
            Err(errno) => {
                remove(&own.directory).map_err(|source| own.fault("", source))?;
                Err(match errno {
                    Errno::EXIST | Errno::NOTEMPTY => PlaceFault::Taken(id.to_owned()),
                    errno => own.fault("", errno.into()),
                })
            }
        }
    }

    pub(crate) fn find(state: &StateDir, id: &str) -> Result<Self, PlaceFault> {
        check(id)?;
        let directory = state.sandboxes().join(id);
        if directory.join(journal::NAME).exists() {
            Ok(Self { id: id.to_owned(), directory })
        } else {
            Err(PlaceFault::NoSuch(id.to_owned()))
        }
    }

    /// Every sandbox there ever was, by name.
    pub(crate) fn list(state: &StateDir) -> Result<Vec<Self>, PlaceFault> {
        let room = state.sandboxes();
        let failed = |source| PlaceFault::Io { id: String::new(), path: room.clone(), source };
        let entries = match std::fs::read_dir(&room) {
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read.map_err(failed)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let place = Self { id: name, directory: entry.path() };
            if place.id.starts_with('.') {
                place.clear_attempt()?;
            } else if check(&place.id).is_ok() {
                found.push(place);
            }
        }
        found.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(found)
    }

    /// What an attempt left that was killed before it had a name.
    fn clear_attempt(&self) -> Result<(), PlaceFault> {
        match self.lock() {
            Ok(None) => Ok(()),
            // Killed before its lock was there, or dead with it.
            Ok(Some(_)) | Err(_) => {
                let old = std::fs::metadata(&self.directory).and_then(|found| found.modified());
                let is_old = old.ok().and_then(|at| at.elapsed().ok()).is_some_and(|age| age.as_secs() > 60);
                if is_old || self.path(LOCK).exists() {
                    remove(&self.directory).map_err(|source| self.fault("", source))?;
                }
                Ok(())
            }
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.path("disk.image")
    }

    pub(crate) fn execs(&self) -> PathBuf {
        self.path("execs")
    }

    /// An empty directory, for where a sandbox without a workspace must name one.
    pub(crate) fn nothing(&self) -> PathBuf {
        self.path("nothing")
    }

    /// The name of what is made for it while it runs, another at each start: control groups are the whole machine's, and
    /// sandboxes of other state directories may have the same id.
    pub(crate) fn job(&self) -> Result<JobName, PlaceFault> {
        let mut random = [0; 4];
        let drawn = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
        drawn.map_err(|errno| self.fault("", errno.into()))?;
        let name = format!("box-{}-{:08x}", self.id, u32::from_le_bytes(random));
        JobName::try_from(name).map_err(|_| PlaceFault::Id(self.id.clone()))
    }

    pub(crate) fn document(&self) -> Result<Vec<u8>, PlaceFault> {
        let read = File::open(self.path(DOCUMENT)).and_then(|file| {
            let mut text = Vec::new();
            io::Read::read_to_end(&mut io::Read::take(file, MOST_DOCUMENT), &mut text)?;
            Ok(text)
        });
        read.map_err(|source| self.fault(DOCUMENT, source))
    }

    /// The lock, unless somebody has it.
    pub(crate) fn lock(&self) -> Result<Option<Lock>, PlaceFault> {
        let file = File::open(self.path(LOCK)).map_err(|source| self.fault(LOCK, source))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(self.fault(LOCK, errno.into())),
        }
    }

    /// The lock of a sandbox that nobody keeps: whoever else looks at it has it for a moment only.
    pub(crate) fn lock_soon(&self) -> Result<Option<Lock>, PlaceFault> {
        let until = Instant::now() + LONGEST_LOOK;
        loop {
            match self.lock()? {
                None if Instant::now() < until => std::thread::sleep(BETWEEN_TRIES),
                lock => return Ok(lock),
            }
        }
    }

    fn new_lock(&self) -> Result<Lock, PlaceFault> {
        let made = File::options().write(true).create_new(true).mode(0o600).open(self.path(LOCK));
        let file = made.map_err(|source| self.fault(LOCK, source))?;
        let taken = flock(&file, FlockOperation::NonBlockingLockExclusive);
        taken.map_err(|errno| self.fault(LOCK, errno.into()))?;
        Ok(Lock { _file: file })
    }

    /// Removes all but what says that it was there: its events, its document and its lock.
    pub(crate) fn clear(&self, _held: &Lock) -> Result<(), PlaceFault> {
        const STAYS: [&str; 3] = [journal::NAME, DOCUMENT, LOCK];
        let entries = std::fs::read_dir(&self.directory).map_err(|source| self.fault("", source))?;
        for entry in entries {
            let entry = entry.map_err(|source| self.fault("", source))?;
            if STAYS.iter().any(|name| *entry.file_name() == **name) {
                continue;
            }
            remove(&entry.path()).map_err(|source| self.fault("", source))?;
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn fault(&self, name: &str, source: io::Error) -> PlaceFault {
        PlaceFault::Io { id: self.id.clone(), path: self.path(name), source }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let kind = std::fs::symlink_metadata(path)?;
    let removed = if kind.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match removed {
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// One label that is also part of a control group's name.
fn check(id: &str) -> Result<(), PlaceFault> {
    const MOST: usize = 63;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let sound =
        (1..=MOST).contains(&id.len()) && id.bytes().all(plain) && !id.starts_with('-') && !id.ends_with('-');
    if sound { Ok(()) } else { Err(PlaceFault::Id(id.to_owned())) }
}

#[cfg(test)]
mod tests {
    //! A name is given once, whole, and stays.
    use super::*;

    #[test]
    fn who_wants_one_that_nobody_keeps_waits_until_others_have_looked() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDir::open(place.path()).unwrap();
        let (made, lock, _journal) = Place::create(&state, "one", "{}").unwrap();
        let looking = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(lock);
        });
        assert!(made.lock_soon().unwrap().is_some());
        looking.join().unwrap();
    }

    #[test]
    fn a_name_is_given_once_and_its_lock_says_who_keeps_it() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDir::open(place.path()).unwrap();
        assert!(matches!(Place::find(&state, "one"), Err(PlaceFault::NoSuch(_))));
        let (made, lock, journal) = Place::create(&state, "one", "{}").unwrap();
        assert!(made.lock().unwrap().is_none(), "somebody keeps it");
        assert!(matches!(Place::create(&state, "one", "{}"), Err(PlaceFault::Taken(_))));
        drop((lock, journal));
        let lock = made.lock().unwrap().unwrap();
        std::fs::write(made.image(), "x").unwrap();
        made.clear(&lock).unwrap();
        assert!(!made.image().exists());
        assert!(
            matches!(Place::create(&state, "one", "{}"), Err(PlaceFault::Taken(_))),
            "nor is it given again"
        );
        let names: Vec<String> = Place::list(&state).unwrap().into_iter().map(|place| place.id).collect();
        assert_eq!(names, ["one"]);
        assert_eq!(std::fs::read_dir(state.sandboxes()).unwrap().count(), 1, "no attempt is left");
    }

    #[test]
    fn an_id_is_one_plain_label() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDir::open(place.path()).unwrap();
        for id in ["", "..", "a/b", "-a", "a-", "A", "a_b", &"a".repeat(64)] {
            assert!(matches!(Place::create(&state, id, "{}"), Err(PlaceFault::Id(_))), "{id:?}");
            assert!(matches!(Place::find(&state, id), Err(PlaceFault::Id(_))), "{id:?}");
        }
    }
}
