//! What stays of a program: what it was, what it wrote up to a bound, and how it ended, in the sandbox's directory.
//!
//! Making a file is the dearest thing that happens between a call and its program, a millisecond where much was deleted lately. So
//! there is one, `N.json`, before the program starts, and one for a stream with its first byte; a stream without a file was silent.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use pond_policy::command::audit_form;
use serde::{Deserialize, Serialize};

use crate::keeper::protocol::{Exec, ExecEnd};

/// So much of each stream stays; the caller gets all of it.
pub(crate) const MOST_BYTES: u64 = 16 << 20;

/// What `N.json` says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Summary {
    pub(crate) exec: u64,
    /// The first words; the rest may carry secrets.
    pub(crate) command: String,
    pub(crate) terminal: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<ExecEnd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<String>,
}

#[derive(Debug)]
pub(super) struct Kept {
    file: File,
    summary: Summary,
    stdout: Bounded,
    stderr: Bounded,
}

#[derive(Debug)]
struct Bounded {
    path: PathBuf,
    file: Option<File>,
    written: u64,
    dropped: u64,
}

impl Bounded {
    fn new(path: PathBuf) -> Self {
        Self { path, file: None, written: 0, dropped: 0 }
    }

    /// A disk that is full keeps no program from running; what is missing is counted.
    fn take(&mut self, bytes: &[u8]) {
        let room = usize::try_from(MOST_BYTES.saturating_sub(self.written)).unwrap_or(usize::MAX);
        let kept = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        if self.dropped == 0 && self.write(kept).is_ok() {
            self.written += kept.len() as u64;
            self.dropped += (bytes.len() - kept.len()) as u64;
        } else {
            self.dropped += bytes.len() as u64;
        }
    }

    fn finish(&mut self) {
        if self.dropped > 0 {
            let marker = format!("\n[pond: {} more bytes were not kept]\n", self.dropped);
            if let Err(_full) = self.write(marker.as_bytes()) {}
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => create(&self.path)?,
        };
        self.file.insert(file).write_all(bytes)
    }
}

fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

fn name(number: u64, ending: &str) -> String {
    format!("{number}.{ending}")
}

/// What a program wrote to a stream, nothing if it was silent until now; `NotFound` if there never was such a program.
pub(crate) fn open(directory: &Path, number: u64, stream: &str) -> io::Result<Option<File>> {
    match File::open(directory.join(name(number, stream))) {
        Err(fault) if fault.kind() == ErrorKind::NotFound => {
            std::fs::metadata(directory.join(name(number, "json"))).map(|_| None)
        }
        opened => opened.map(Some),
    }
}

/// What is known of a program; `InvalidData` while just that is being written.
pub(crate) fn summary(directory: &Path, number: u64) -> io::Result<Summary> {
    let text = std::fs::read(directory.join(name(number, "json")))?;
    serde_json::from_slice(&text).map_err(|fault| io::Error::new(ErrorKind::InvalidData, fault))
}

impl Kept {
    pub(super) fn create(directory: &Path, number: u64, wanted: &Exec) -> io::Result<Self> {
        let at = |ending: &str| directory.join(name(number, ending));
        let summary = Summary {
            exec: number,
            command: audit_form(&wanted.argv),
            terminal: wanted.terminal.is_some(),
            end: None,
            failed: None,
        };
        let kept = Self {
            file: create(&at("json"))?,
            summary,
            stdout: Bounded::new(at("stdout")),
            stderr: Bounded::new(at("stderr")),
        };
        kept.save()?;
        Ok(kept)
    }

    /// Over what was there, which is shorter: its end is all that is ever added. A file that was emptied first would be written to
    /// the disk as it is closed.
    fn save(&self) -> io::Result<()> {
        self.file.write_all_at(&serde_json::to_vec(&self.summary)?, 0)
    }

    pub(super) fn stdout(&mut self, bytes: &[u8]) {
        self.stdout.take(bytes);
    }

    pub(super) fn stderr(&mut self, bytes: &[u8]) {
        self.stderr.take(bytes);
    }

    /// Streams of which only the beginning stays.
    pub(super) fn truncated(&self) -> Vec<String> {
        let cut = [("stdout", &self.stdout), ("stderr", &self.stderr)];
        cut.into_iter().filter(|(_, kept)| kept.dropped > 0).map(|(name, _)| name.to_owned()).collect()
    }

    pub(super) fn finish(mut self, end: Result<ExecEnd, String>) {
        self.stdout.finish();
        self.stderr.finish();
        match end {
            Ok(end) => self.summary.end = Some(end),
            Err(failed) => self.summary.failed = Some(failed),
        }
        if let Err(_full) = self.save() {}
    }
}

#[cfg(test)]
mod tests {
    //! Only so much stays, and the file says so.
    use super::*;

    #[test]
    fn what_is_over_the_bound_is_counted_and_told() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("1.stdout");
        let mut kept = Bounded::new(path.clone());
        assert!(!path.exists(), "nothing was written yet");
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..17 {
            kept.take(&piece);
        }
        kept.finish();
        let text = std::fs::read(&path).unwrap();
        let marker = b"\n[pond: 1048576 more bytes were not kept]\n";
        assert_eq!(text.len() as u64, MOST_BYTES + marker.len() as u64);
        assert!(text.ends_with(marker));
    }
}
