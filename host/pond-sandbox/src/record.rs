//! The record of a live job: written before anything is made for it, locked while its owner lives, removed when all is gone.
//!
//! Whoever finds a record whose lock is free knows that the owner died, and has in the record everything needed to clean up.
//! Invariant: a record gets its name and its lock while nobody looks, so that one just being written is not taken for dead.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use crate::state::StateDir;

const MAX_RECORD_BYTES: u64 = 64 << 10;
/// The file names of records that are no job's yet begin with this, which no job's name does.
const SPARE: &str = "spare.";

#[derive(Debug, thiserror::Error)]
pub enum RecordFault {
    #[error("writing the record {path}")]
    Write { path: PathBuf, source: io::Error },
    #[error("reading the records in {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("a job named {0} is already running")]
    InUse(String),
}

/// A name that is also a file name and a control group name: short, lower case, digits and dashes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobName(String);

impl JobName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for JobName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if (1..=80).contains(&text.len()) && !text.starts_with('-') && text.bytes().all(plain) {
            Ok(Self(text))
        } else {
            Err(format!("{text:?} is not a job name: 1 to 80 of a-z, 0-9 and -"))
        }
    }
}

impl From<JobName> for String {
    fn from(name: JobName) -> Self {
        name.0
    }
}

/// What nobody else on this machine is called with.
pub(crate) fn nonce() -> io::Result<String> {
    let mut random = [0; 16];
    getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What a sweep needs to know of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub job: JobName,
    pub made: Made,
}

/// What a backend is about to make for a job that could outlive its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Made {
    Native {
        cgroups: Vec<PathBuf>,
    },
    /// A container of this name, with the engine at this socket.
    Container {
        engine: PathBuf,
        name: String,
    },
    /// A container whose job is over and told of; only its removal is left.
    Remainder {
        engine: PathBuf,
        name: String,
        of: JobName,
    },
}

/// A record held by a living process.
#[derive(Debug)]
pub struct Live {
    record: Record,
    path: PathBuf,
    _lock: File,
}

impl Live {
    /// Writes and locks a record, while no sweep looks.
    pub fn write(state: &StateDir, record: Record) -> Result<Self, RecordFault> {
        let path = state.live().join(record.job.as_str());
        Self::write_at(state, path, record)
    }

    /// The record of what is made for a job that has no name yet. Until it is [renamed](Self::rename) only a sweep sees it.
    pub(crate) fn spare(state: &StateDir, record: Record) -> Result<Self, RecordFault> {
        let path = state.live().join(format!("{SPARE}{}", record.job.as_str()));
        Self::write_at(state, path, record)
    }

    /// From here on it is the record of this job, which has what it says was made. One that cannot be stays as it is.
    pub(crate) fn rename(&mut self, state: &StateDir, job: JobName) -> io::Result<()> {
        let path = state.live().join(job.as_str());
        let _nobody_looks = lock_room(state, FlockOperation::LockShared)?;
        renameat_with(CWD, &self.path, CWD, &path, RenameFlags::NOREPLACE)?;
        (self.record.job, self.path) = (job, path);
        Ok(())
    }

    fn write_at(state: &StateDir, path: PathBuf, record: Record) -> Result<Self, RecordFault> {
        let failed = |source| RecordFault::Write { path: path.clone(), source };
        let _nobody_looks = lock_room(state, FlockOperation::LockShared).map_err(failed)?;
        let mut file = match File::options().write(true).create_new(true).open(&path) {
            Err(fault) if fault.kind() == io::ErrorKind::AlreadyExists => {
                return Err(RecordFault::InUse(record.job.as_str().to_owned()));
            }
            other => other.map_err(failed)?,
        };
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| failed(errno.into()))?;
        let text = serde_json::to_vec(&record).map_err(|fault| failed(fault.into()))?;
        if let Err(source) = file.write_all(&text) {
            // Nothing was made yet.
            std::fs::remove_file(&path).map_err(failed)?;
            return Err(failed(source));
        }
        Ok(Self { record, path, _lock: file })
    }

    pub fn job(&self) -> &JobName {
        &self.record.job
    }

    pub fn made(&self) -> &Made {
        &self.record.made
    }

    /// Leaves the removal of the job's container to the next sweep, which must not take the finished run for a dead one.
    pub fn bequeath(&self, state: &StateDir) -> Result<(), RecordFault> {
        let Record { job: of, made } = &self.record;
        match made {
            Made::Container { engine, name } => {
                let job = JobName(format!("{}-remainder", of.as_str()));
                let (engine, name, of) = (engine.clone(), name.clone(), of.clone());
                Live::write(state, Record { job, made: Made::Remainder { engine, name, of } }).map(drop)
            }
            Made::Native { .. } | Made::Remainder { .. } => Ok(()),
        }
    }

    /// Forgets the job: everything made for it is gone.
    pub fn close(self) -> Result<(), RecordFault> {
        std::fs::remove_file(&self.path).map_err(|source| RecordFault::Write { path: self.path, source })
    }
}

/// A job whose owner died, held so that two sweeps do not meet.
#[derive(Debug)]
pub struct Dead {
    pub job: JobName,
    /// No job ever had it.
    pub is_spare: bool,
    /// Nothing when the owner died before it wrote what it was going to make, hence before it made any of it.
    pub made: Option<Made>,
    path: PathBuf,
    _lock: File,
}

impl Dead {
    pub fn close(self) -> Result<(), RecordFault> {
        std::fs::remove_file(&self.path).map_err(|source| RecordFault::Write { path: self.path, source })
    }
}

/// Every job that has a record, its owner alive or not.
pub fn recorded(state: &StateDir) -> Result<Vec<JobName>, RecordFault> {
    let path = state.live();
    let listed = std::fs::read_dir(&path).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    let entries = listed.map_err(|source| RecordFault::Read { path, source })?;
    let name = |entry: std::fs::DirEntry| JobName::try_from(entry.file_name().into_string().ok()?).ok();
    Ok(entries.into_iter().filter_map(name).collect())
}

/// Every job whose owner is alive.
pub fn living(state: &StateDir) -> Result<Vec<JobName>, RecordFault> {
    let gone: Vec<JobName> = dead(state)?.into_iter().map(|dead| dead.job).collect();
    Ok(recorded(state)?.into_iter().filter(|job| !gone.contains(job)).collect())
}

/// Every record whose owner is gone.
pub fn dead(state: &StateDir) -> Result<Vec<Dead>, RecordFault> {
    let directory = state.live();
    let failed = |source| RecordFault::Read { path: directory.clone(), source };
    let _nobody_writes = lock_room(state, FlockOperation::LockExclusive).map_err(failed)?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let (is_spare, name) = name.strip_prefix(SPARE).map_or((false, name), |name| (true, name));
        let Ok(job) = JobName::try_from(name.to_owned()) else { continue };
        // The owner may have finished and removed it meanwhile.
        let Ok(mut file) = File::open(&path) else { continue };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if path.exists() => {
                let made =
                    read(&mut file).map_err(|source| RecordFault::Read { path: path.clone(), source })?;
                found.push(Dead { job, is_spare, made, path, _lock: file });
            }
            Ok(()) | Err(Errno::WOULDBLOCK) => {}
            Err(errno) => return Err(RecordFault::Read { path, source: errno.into() }),
        }
    }
    Ok(found)
}

/// Held for moments: shared by those who write a record, alone by who looks for dead ones.
fn lock_room(state: &StateDir, how: FlockOperation) -> io::Result<File> {
    let room = File::open(state.live())?;
    loop {
        match flock(&room, how) {
            Ok(()) => return Ok(room),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Written in one call, a record is whole or empty; one that is neither was on a host that lost its power, and what it named went with
/// that. Whole and not understood is another matter: somebody newer wrote it.
fn read(file: &mut File) -> io::Result<Option<Made>> {
    let mut text = Vec::new();
    file.take(MAX_RECORD_BYTES).read_to_end(&mut text)?;
    match serde_json::from_slice::<Record>(&text) {
        Ok(record) => Ok(Some(record.made)),
        Err(fault) if fault.is_eof() || fault.is_syntax() => Ok(None),
        Err(fault) => Err(fault.into()),
    }
}

#[cfg(test)]
mod tests {
    //! A held record is alive, a released one is dead, and a closed one is forgotten.
    use super::*;

    #[test]
    fn only_a_record_without_an_owner_is_dead() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        let name = |text: &str| JobName::try_from(text.to_owned()).unwrap();
        let made = Made::Native { cgroups: vec![PathBuf::from("/groups/x")] };
        let record = |text: &str| Record { job: name(text), made: made.clone() };
        let held = Live::write(&state, record("held")).unwrap();
        drop(Live::write(&state, record("left")).unwrap());
        Live::write(&state, record("done")).unwrap().close().unwrap();
        let found: Vec<_> = dead(&state).unwrap().into_iter().map(|dead| (dead.job, dead.made)).collect();
        assert_eq!(found, [(name("left"), Some(made.clone()))]);
        assert_eq!(living(&state).unwrap(), [name("held")]);
        drop(held);
        assert_eq!(dead(&state).unwrap().len(), 2);
    }

    #[test]
    fn a_spare_record_is_nobodys_until_a_job_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        let name = |text: &str| JobName::try_from(text.to_owned()).unwrap();
        let made = Made::Native { cgroups: vec![PathBuf::from("/groups/spare")] };
        let spare = |text| Live::spare(&state, Record { job: name(text), made: made.clone() }).unwrap();
        let (mut live, mut unused) = (spare("a"), spare("b"));
        live.rename(&state, name("one")).unwrap();
        assert_eq!((live.job(), live.made()), (&name("one"), &made));
        assert_eq!(unused.rename(&state, name("one")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(
            recorded(&state).unwrap(),
            [name("one")],
            "a name is given once, and a spare one is no job's"
        );
        assert_eq!(living(&state).unwrap(), [name("one")]);
        drop((live, unused));
        let mut left: Vec<_> =
            dead(&state).unwrap().into_iter().map(|dead| (dead.is_spare, dead.made)).collect();
        left.sort_by_key(|(is_spare, _)| *is_spare);
        assert_eq!(left, [(false, Some(made.clone())), (true, Some(made))]);
    }

    #[test]
    fn half_a_record_names_nothing_and_a_strange_one_is_a_fault() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        let path = state.live().join("job");
        for text in ["", "{\"job\":\"jo", "\0\0\0\0"] {
            std::fs::write(&path, text).unwrap();
            let found: Vec<_> = dead(&state).unwrap().into_iter().map(|dead| dead.made).collect();
            assert_eq!(found, [None], "{text:?}");
        }
        std::fs::write(&path, "{\"job\":\"job\",\"made\":{\"newer\":{}}}").unwrap();
        assert!(matches!(dead(&state), Err(RecordFault::Read { .. })));
    }

    #[test]
    fn a_record_being_written_is_not_dead() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        let made = Made::Native { cgroups: Vec::new() };
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 0..2000 {
                    let job = JobName::try_from(format!("job-{number}")).unwrap();
                    Live::write(&state, Record { job, made: made.clone() }).unwrap().close().unwrap();
                }
            });
            while !writer.is_finished() {
                let found = dead(&state).unwrap().into_iter().map(|dead| dead.job);
                assert_eq!(found.collect::<Vec<_>>(), []);
            }
        });
    }

    #[test]
    fn a_job_name_cannot_leave_its_directory() {
        for text in ["", "..", "a/b", "-rf", "A", "a\n", &"x".repeat(81)] {
            assert_eq!(JobName::try_from(text.to_owned()).ok(), None, "{text:?}");
        }
    }
}
