//! The record of one run's network, `egress.jsonl`: one JSON object per line, written as it happens, bounded.
//!
//! Invariant: what a job does in bulk cannot crowd out what it was refused. Tunnels and model calls may fill the first part of
//! the room, refusals a part that is theirs, and the last part is for the sums; what finds no room is counted.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use jiff::Timestamp;
use pond_sandbox::state::StateDir;
use pond_wire::gateway::{Event, ModelOutcome, Totals};
use serde::Serialize;
use serde_json::{Map, Value};

use super::counter::Line;
use crate::runs;

/// More than any honest job fills.
const BULK: usize = 6 << 20;
const REFUSALS: usize = BULK + (1 << 20);
/// A gateway names at most 512 hosts, each with a few reasons.
const SUMS: usize = REFUSALS + (1 << 20);
/// What people change; no job can fill it.
const CHANGES: usize = SUMS + (256 << 10);

#[derive(Debug)]
pub(super) struct Record {
    file: File,
    written: usize,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Good,
    /// A line could not be written, and may be there in part.
    Broken,
}

/// What became of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    Written,
    /// Its part of the room is full.
    NoRoom,
    /// It could not be written, and no later one will be.
    Lost,
}

impl Record {
    pub(super) fn create(run: &Path) -> anyhow::Result<Self> {
        let path = run.join(StateDir::EGRESS);
        let file = File::options().write(true).create_new(true).mode(0o600).open(path);
        let file = file.context("making the record of the network")?;
        Ok(Self { file, written: 0, state: State::Good })
    }

    /// What is about no verdict is not written, nor are sums of nothing: the record of a network nobody used is empty.
    pub(super) fn event(&mut self, event: &Event) -> anyhow::Result<Kept> {
        match room(event) {
            Some(room) if *event != Event::Summary(Totals::default()) => self.line(event, room),
            Some(_) | None => Ok(Kept::Written),
        }
    }

    /// What a person changed.
    pub(super) fn change(&mut self, line: &Line<'_>) -> anyhow::Result<Kept> {
        self.line(line, CHANGES)
    }

    fn line(&mut self, line: &impl Serialize, room: usize) -> anyhow::Result<Kept> {
        let line = [serde_json::to_vec(&dated(line, runs::now())?)?, b"\n".to_vec()].concat();
        let written = self.written.saturating_add(line.len());
        if self.state == State::Broken {
            return Ok(Kept::Lost);
        }
        if written > room {
            return Ok(Kept::NoRoom);
        }
        if let Err(_no_disk) = self.file.write_all(&line) {
            self.state = State::Broken;
            return Ok(Kept::Lost);
        }
        self.written = written;
        Ok(Kept::Written)
    }
}

/// A line with its time beside what it says; an event that is only a name gets a field for it.
fn dated(line: &impl Serialize, now: Timestamp) -> serde_json::Result<Map<String, Value>> {
    let mut dated = Map::from_iter([("at".to_owned(), Value::String(format!("{now:.3}")))]);
    match serde_json::to_value(line)? {
        Value::Object(fields) => dated.extend(fields),
        name @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            dated.insert("event".to_owned(), name);
        }
    }
    Ok(dated)
}

/// How full the record may be for this event to be still written; nothing for one that is no part of it.
fn room(event: &Event) -> Option<usize> {
    match event {
        Event::Serving | Event::Failed { .. } | Event::Short { .. } | Event::ShortBytes { .. } => None,
        Event::Looked(_) | Event::Opened(_) | Event::Closed(_) => Some(BULK),
        Event::Model(call) => match call.outcome {
            ModelOutcome::Served | ModelOutcome::ClientLeft => Some(BULK),
            ModelOutcome::Refused(_) | ModelOutcome::Failed(_) | ModelOutcome::Cut => Some(REFUSALS),
        },
        Event::Refused(_) | Event::Flood { .. } => Some(REFUSALS),
        Event::RulesReplaced | Event::RulesRefused { .. } => Some(REFUSALS),
        Event::Host(_) | Event::ModelTotals(_) | Event::Summary(_) => Some(SUMS),
    }
}

#[cfg(test)]
mod tests {
    //! Bulk, refusals and sums each have their room, and a disk without any ends the record.
    use super::*;
    use pond_wire::gateway::{Approval, Door, Refused};

    fn opened() -> Event {
        let (job, host, rule) = ("j".repeat(2000), "h".repeat(200), Some("r".repeat(200)));
        let address = [1, 2, 3, 4].into();
        Event::Opened(Approval { job, door: Door::Proxy, tunnel: 1, host, port: 443, rule, address })
    }

    fn refused() -> Event {
        let (job, target, code) = ("j".repeat(2000), "t".repeat(200), "c".to_owned());
        let (rule, address) = (None, None);
        Event::Refused(Refused { job, door: Door::Proxy, target, code, rule, address, hint: "h".repeat(300) })
    }

    #[test]
    fn c92_every_line_has_its_time() {
        let now: Timestamp = "2026-11-16T12:00:00.25Z".parse().unwrap();
        let line = |event: &Event| serde_json::to_string(&dated(event, now).unwrap()).unwrap();
        let at = "\"at\":\"2026-11-16T12:00:00.250Z\"";
        assert_eq!(line(&Event::RulesReplaced), format!("{{{at},\"event\":\"rules_replaced\"}}"));
        assert_eq!(line(&Event::Flood { refusals: 2 }), format!("{{{at},\"flood\":{{\"refusals\":2}}}}"));
    }

    /// Until nothing of this kind is taken any more; how many were.
    fn fill(record: &mut Record, event: &Event) -> usize {
        (0..100_000).take_while(|_| record.event(event).unwrap() == Kept::Written).count()
    }

    #[test]
    fn tunnels_leave_room_for_refusals_and_both_for_the_sums() {
        let directory = tempfile::tempdir().unwrap();
        let mut record = Record::create(directory.path()).unwrap();
        for nothing in [Event::Failed { reason: "x".to_owned() }, Event::Summary(Totals::default())] {
            assert_eq!((record.event(&nothing).unwrap(), record.written), (Kept::Written, 0));
        }
        assert!(fill(&mut record, &opened()) > 1000);
        assert!(fill(&mut record, &refused()) > 100);
        assert_eq!(record.event(&opened()).unwrap(), Kept::NoRoom);
        let totals = Totals { refused: 1, ..Totals::default() };
        assert_eq!(record.event(&Event::Summary(totals)).unwrap(), Kept::Written);
        let text = std::fs::read(directory.path().join(StateDir::EGRESS)).unwrap();
        assert!(text.len() <= 8 << 20 && text.ends_with(b"}\n"));
        assert_eq!(text.len(), record.written);
    }

    #[test]
    fn a_line_that_cannot_be_written_is_the_last() {
        let mut record = Record { file: File::open("/dev/null").unwrap(), written: 0, state: State::Good };
        assert_eq!(record.event(&refused()).unwrap(), Kept::Lost);
        record.file = File::options().write(true).open("/dev/null").unwrap();
        assert_eq!(record.event(&refused()).unwrap(), Kept::Lost);
    }
}
