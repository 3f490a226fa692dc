//! The audit log of this machine: one JSON line per command, whether it ran, was denied or could not be started.
//!
//! A line is appended in one write under a lock, so lines never mix. It holds the first three words of a command and never the
//! rest, which may carry secrets. The file is private to its owner and bounded: a full one becomes `audit.jsonl.1`.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use pond_policy::command::audit_form;
use pond_sandbox::state::StateDir;
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};

const MOST_BYTES: u64 = 16 << 20;
/// Three words of a command and a few figures.
const LONGEST_LINE: u64 = 64 << 10;
/// Every turn but the last means that somebody else put the log aside.
const TURNS: usize = 1000;

/// What is known about one command.
#[derive(Debug)]
pub(crate) struct Command<'a> {
    pub(crate) argv: &'a [String],
    pub(crate) profile: &'static str,
    pub(crate) backend: &'static str,
}

/// How it went.
#[derive(Debug)]
pub(crate) enum Fate<'a> {
    Ran {
        id: &'a str,
        returncode: u8,
        elapsed: Duration,
        timed_out: bool,
    },
    /// The command allowlist refused it, with this code.
    Denied(&'static str),
    /// The job was started and pond failed; what became of it is not known.
    Broke {
        id: &'a str,
    },
    /// pond refused, or failed before the job was started.
    DidNotRun,
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    time: String,
    id: Option<&'a str>,
    command: String,
    returncode: Option<u8>,
    elapsed_seconds: f64,
    timed_out: bool,
    profile: &'static str,
    backend: &'static str,
    denied: Option<&'static str>,
}

/// The log, known to be writable.
#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
}

impl Audit {
    /// Before anything runs, so that nothing runs that could not be written down.
    pub(crate) fn open(state: &StateDir) -> anyhow::Result<Self> {
        let path = state.audit();
        open(&path)?;
        Ok(Self { path })
    }

    pub(crate) fn append(&self, command: &Command<'_>, fate: &Fate<'_>) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec(&line(command, fate))?;
        text.push(b'\n');
        append(&self.path, &text, MOST_BYTES)
    }
}

fn line<'a>(command: &Command<'_>, fate: &Fate<'a>) -> Line<'a> {
    let (id, returncode, elapsed, timed_out, denied) = match *fate {
        Fate::Ran { id, returncode, elapsed, timed_out } => {
            (Some(id), Some(returncode), elapsed, timed_out, None)
        }
        Fate::Denied(code) => (None, None, Duration::ZERO, false, Some(code)),
        Fate::Broke { id } => (Some(id), None, Duration::ZERO, false, None),
        Fate::DidNotRun => (None, None, Duration::ZERO, false, None),
    };
    Line {
        time: crate::runs::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        id,
        command: audit_form(command.argv),
        returncode,
        elapsed_seconds: elapsed.as_secs_f64(),
        timed_out,
        profile: command.profile,
        backend: command.backend,
        denied,
    }
}

/// A command that was denied before it ran.
#[derive(Debug, Deserialize)]
pub(crate) struct Denied {
    /// Its first three words.
    pub(crate) command: String,
    pub(crate) profile: String,
    /// The code of the denial; lines of other commands have none.
    #[serde(rename = "denied")]
    pub(crate) code: String,
}

/// The newest line of the log, if it is about a denied command.
pub(crate) fn denied_last(state: &StateDir) -> anyhow::Result<Option<Denied>> {
    let mut file = match File::open(state.audit()) {
        Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.context("opening the audit log")?,
    };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LONGEST_LINE)))?;
    let mut text = Vec::new();
    file.take(LONGEST_LINE).read_to_end(&mut text)?;
    let newest = text.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty());
    // A line about a command that ran has no code, and so is none of these.
    Ok(newest.and_then(|line| serde_json::from_slice(line).ok()))
}

fn open(path: &Path) -> anyhow::Result<File> {
    let flags = i32::try_from(OFlags::NOFOLLOW.bits())?;
    let opened = File::options().append(true).create(true).mode(0o600).custom_flags(flags).open(path);
    opened.with_context(|| {
        format!(
            "opening the audit log {}; set POND_STATE_DIR to a directory you can write to",
            path.display()
        )
    })
}

fn append(path: &Path, text: &[u8], most: u64) -> anyhow::Result<()> {
    for _ in 0..TURNS {
        let mut file = open(path)?;
        flock(&file, FlockOperation::LockExclusive).context("locking the audit log")?;
        // Somebody may have put it aside between the opening and the lock.
        let current = std::fs::symlink_metadata(path).map(|now| now.ino());
        if current.ok() != Some(file.metadata()?.ino()) {
            continue;
        }
        if file.metadata()?.len() >= most {
            std::fs::rename(path, path.with_extension("jsonl.1")).context("rotating the audit log")?;
            continue;
        }
        let written = file.write(text).context("writing the audit log")?;
        anyhow::ensure!(written == text.len(), "the audit log took only part of a line");
        return Ok(());
    }
    anyhow::bail!("the audit log {} does not stay in its place", path.display())
}

#[cfg(test)]
mod tests {
    //! Lines stay whole and the log stays bounded, whoever writes at the same time.
    use super::*;

    #[test]
    fn a_full_log_is_put_aside_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        for number in 0..7 {
            append(&path, format!("{number}\n").as_bytes(), 6).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert_eq!((read("audit.jsonl.1").as_str(), read("audit.jsonl").as_str()), ("3\n4\n5\n", "6\n"));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn concurrent_writers_lose_nothing_while_the_log_turns_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    for number in 0..50 {
                        append(path, format!("{writer:02}-{number:02}\n").as_bytes(), 900).unwrap();
                    }
                });
            }
        });
        let text = ["audit.jsonl.1", "audit.jsonl"]
            .map(|name| std::fs::read_to_string(directory.path().join(name)).unwrap())
            .concat();
        let mut lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.len() == 5), "{text}");
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 200);
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        std::os::unix::fs::symlink(directory.path().join("elsewhere"), &path).unwrap();
        assert!(append(&path, b"x\n", 10).is_err_and(|fault| fault.to_string().contains("opening")));
        assert!(!directory.path().join("elsewhere").exists());
    }
}
