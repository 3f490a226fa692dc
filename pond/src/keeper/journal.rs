//! What happened to a sandbox, as a file of lines: numbered from 1 without a gap, each with the state it led to.
//!
//! Invariants: only whoever holds the sandbox's lock appends; a line that would be an illegal move is not written; a line is whole or
//! not there (what a stopped host left of one is cut off before the next); it is written before anybody is told, and the last one, after
//! which a name is never given again, is on the disk.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use pond_policy::life::{self, Event, IllegalMove, State};
use serde::{Deserialize, Serialize};

use crate::runs;

pub(crate) const NAME: &str = "events.jsonl";
/// A sandbox that is used for a year writes less.
const MOST_LINE: u64 = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalFault {
    #[error("reading the events in {path}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("writing the event {event}")]
    Write { event: Event, source: std::io::Error },
    #[error(transparent)]
    Move(#[from] IllegalMove),
    #[error("line {line} of {path} is no event that could follow the one before it")]
    Gap { path: PathBuf, line: u64 },
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) sequence: u64,
    /// In UTC, to the millisecond.
    pub(crate) at: String,
    pub(crate) event: String,
    /// The state it led to.
    pub(crate) state: String,
    #[serde(flatten)]
    pub(crate) detail: Detail,
}

/// What there is to say of an event besides its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Detail {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// A stable word for the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exec: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) companion: Option<String>,
}

impl Detail {
    pub(crate) fn because(code: &str, reason: impl Into<String>) -> Self {
        Self { code: Some(code.to_owned()), reason: Some(reason.into()), ..Self::default() }
    }
}

/// The journal of one sandbox, open for whoever holds its lock.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    sequence: u64,
    state: State,
    has_started: bool,
    since: String,
}

impl Journal {
    /// The first line of a new sandbox.
    pub(crate) fn create(directory: &Path) -> Result<Self, JournalFault> {
        let path = directory.join(NAME);
        let open = File::options().append(true).read(true).create_new(true).mode(0o600).open(&path);
        let file = open.map_err(|source| JournalFault::Read { path, source })?;
        let (state, event) = life::FIRST;
        let mut journal = Self { file, sequence: 0, state, has_started: false, since: String::new() };
        journal.write(event, state, Detail::default())?;
        Ok(journal)
    }

    /// Goes on with what is there, for whoever holds the lock.
    pub(crate) fn open(directory: &Path) -> Result<Self, JournalFault> {
        let path = directory.join(NAME);
        let failed = |source| JournalFault::Read { path: path.clone(), source };
        let journal = Self::open_to_read(directory)?;
        let (_, whole) = entries(&path)?;
        journal.file.set_len(whole).map_err(failed)?;
        Ok(journal)
    }

    /// What it says now.
    pub(crate) fn open_to_read(directory: &Path) -> Result<Self, JournalFault> {
        let path = directory.join(NAME);
        let failed = |source| JournalFault::Read { path: path.clone(), source };
        let file = File::options().append(true).read(true).open(&path).map_err(failed)?;
        let (entries, _) = entries(&path)?;
        let gap = |line| JournalFault::Gap { path: path.clone(), line };
        let (first, rest) = entries.split_first().ok_or_else(|| gap(1))?;
        let mut state = State::from_name(&first.state).ok_or_else(|| gap(1))?;
        let mut since = first.at.clone();
        let mut has_started = false;
        for entry in rest {
            let event = Event::from_name(&entry.event).ok_or_else(|| gap(entry.sequence))?;
            let moved = life::next(state, event)?;
            if moved != state {
                since.clone_from(&entry.at);
            }
            has_started |= event == Event::Started;
            state = moved;
        }
        let sequence = entries.last().map_or(0, |last| last.sequence);
        Ok(Self { file, sequence, state, has_started, since })
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether it ever took programs: if not, there is nothing on its disk that anybody would miss.
    pub(crate) fn has_started(&self) -> bool {
        self.has_started
    }

    /// When it came to the state it is in.
    pub(crate) fn since(&self) -> Option<jiff::Timestamp> {
        self.since.parse().ok()
    }

    pub(crate) fn append(&mut self, event: Event, detail: Detail) -> Result<State, JournalFault> {
        let state = life::next(self.state, event)?;
        self.write(event, state, detail)?;
        self.has_started |= event == Event::Started;
        Ok(state)
    }

    fn write(&mut self, event: Event, state: State, detail: Detail) -> Result<(), JournalFault> {
        let entry = Entry {
            sequence: self.sequence + 1,
            at: format!("{:.3}", runs::now()),
            event: event.name().to_owned(),
            state: state.name().to_owned(),
            detail,
        };
        let failed = |source| JournalFault::Write { event, source };
        let line = serde_json::to_vec(&entry).map_err(|fault| failed(fault.into()))?;
        self.file.write_all(&[line.as_slice(), b"\n"].concat()).map_err(failed)?;
        if state != self.state || self.sequence == 0 {
            self.since.clone_from(&entry.at);
        }
        if state.is_terminal() {
            // The name must never be given again, whatever happens to the host.
            self.file.sync_data().map_err(failed)?;
        }
        (self.sequence, self.state) = (entry.sequence, state);
        Ok(())
    }
}

/// Every whole line, in order and without a gap, and how many bytes they are.
fn entries(path: &Path) -> Result<(Vec<Entry>, u64), JournalFault> {
    let failed = |source| JournalFault::Read { path: path.to_owned(), source };
    let mut reader = BufReader::new(File::open(path).map_err(failed)?);
    let (mut found, mut whole) = (Vec::new(), 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length =
            std::io::Read::take(&mut reader, MOST_LINE).read_until(b'\n', &mut line).map_err(failed)?;
        if length == 0 || line.last() != Some(&b'\n') {
            return Ok((found, whole));
        }
        let expected = found.len() as u64 + 1;
        let entry: Option<Entry> = serde_json::from_slice(&line).ok();
        match entry.filter(|entry| entry.sequence == expected) {
            Some(entry) => found.push(entry),
            None => return Err(JournalFault::Gap { path: path.to_owned(), line: expected }),
        }
        whole += length as u64;
    }
}

/// What there is after a number, for whoever only reads.
pub(crate) fn since(directory: &Path, after: u64) -> Result<Vec<Entry>, JournalFault> {
    let (all, _) = entries(&directory.join(NAME))?;
    Ok(all.into_iter().filter(|entry| entry.sequence > after).collect())
}

/// How long the journal is now: a reader that waits for more looks at this.
pub(crate) fn length(directory: &Path) -> std::io::Result<u64> {
    let mut file = File::open(directory.join(NAME))?;
    file.seek(SeekFrom::End(0))
}

#[cfg(test)]
mod tests {
    //! Lines follow each other without a gap, illegal moves leave no trace, and half a line is no line.
    use super::*;

    #[test]
    fn a_journal_goes_on_where_it_was() {
        let place = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(place.path()).unwrap();
        assert_eq!((journal.state(), journal.sequence()), (State::Pending, 1));
        journal.append(Event::Started, Detail::default()).unwrap();
        assert!(matches!(
            journal.append(Event::Resuming, Detail::default()),
            Err(JournalFault::Move(IllegalMove { state: State::Ready, event: Event::Resuming }))
        ));
        journal.append(Event::Stopped, Detail::because("idle", "nobody used it")).unwrap();
        drop(journal);
        let path = place.path().join(NAME);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [whole.as_slice(), b"{\"sequence\": 4, \"at"].concat()).unwrap();
        let mut journal = Journal::open(place.path()).unwrap();
        assert_eq!((journal.state(), journal.sequence(), journal.has_started()), (State::Stopped, 3, true));
        assert_eq!(std::fs::read(&path).unwrap(), whole, "half a line was cut off");
        journal.append(Event::Deleting, Detail::default()).unwrap();
        let told: Vec<(u64, String)> =
            since(place.path(), 2).unwrap().into_iter().map(|entry| (entry.sequence, entry.event)).collect();
        assert_eq!(told, [(3, "stopped".to_owned()), (4, "deleting".to_owned())]);
    }

    #[test]
    fn a_gap_is_a_fault() {
        let place = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(place.path()).unwrap();
        journal.append(Event::Started, Detail::default()).unwrap();
        let path = place.path().join(NAME);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"sequence\":2", "\"sequence\":3")).unwrap();
        assert!(matches!(Journal::open(place.path()), Err(JournalFault::Gap { line: 2, .. })));
    }
}
