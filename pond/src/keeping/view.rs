//! A sandbox and its programs as the API shows them, from what lies in the sandbox's directory: its document, its events, what its
//! programs left.
//!
//! HOSTILE BYTES in the output of programs: read by length, never looked at.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};

use pond_control::keeper::{KeepFault, Output};
use pond_policy::life;
use pond_policy::sandboxes::Spec;
use pond_policy::settings::Settings;
use pond_wire::api::{
    CompanionView, ExecState, ExecView, OutputStream, PortView, SandboxEvent, SandboxState, SandboxView,
};
use serde_json::Value;

use super::{broken, failed};
use crate::keeper::converge::{self, Seen};
use crate::keeper::exec::kept::{self, Summary};
use crate::keeper::journal::{self, Entry};
use crate::keeper::place::PlaceFault;
use crate::run::request;

pub(super) fn sandbox(seen: &Seen, settings: &Settings) -> Result<SandboxView, KeepFault> {
    let spec = converge::read(&seen.place.document()?, settings).map_err(broken)?;
    let entries = entries(seen, 0)?;
    let since = entries.iter().rev().take_while(|entry| entry.state == seen.state.name()).last();
    let last_word =
        entries.iter().rev().find(|entry| entry.state == seen.state.name() && entry.detail.reason.is_some());
    Ok(SandboxView {
        id: seen.place.id().to_owned(),
        project: None,
        state: told(seen.state),
        reason: last_word.and_then(|entry| entry.detail.reason.clone()).unwrap_or_default(),
        profile: spec.policy.profile().name().to_owned(),
        backend: request::backend(&spec.policy).name().to_owned(),
        labels: spec.labels.iter().cloned().collect(),
        ports: spec.ports.iter().map(|port| PortView { host: port.host, sandbox: port.sandbox }).collect(),
        companions: companions(&spec, &entries),
        created_at: entries.first().map_or(0, |entry| millis(&entry.at)),
        changed_at: since.map_or(0, |entry| millis(&entry.at)),
        idle_ttl_seconds: spec.idle_ttl.duration().map(|time| time.as_secs()),
        cleanup_ttl_seconds: spec.cleanup_ttl.duration().map(|time| time.as_secs()),
        sequence: seen.sequence,
    })
}

/// Each as its last event tells of it.
fn companions(spec: &Spec, entries: &[Entry]) -> Vec<CompanionView> {
    let mut last: BTreeMap<&str, &Entry> = BTreeMap::new();
    for entry in entries {
        last.extend(entry.detail.companion.as_deref().map(|alias| (alias, entry)));
    }
    let view = |alias: &str| {
        let detail = last.get(alias).map(|entry| &entry.detail);
        let word = |text: Option<&String>| text.cloned().unwrap_or_default();
        CompanionView {
            alias: alias.to_owned(),
            state: detail.map_or_else(|| "starting".to_owned(), |detail| word(detail.code.as_ref())),
            reason: word(detail.and_then(|detail| detail.reason.as_ref())),
        }
    };
    spec.companions.iter().map(|companion| view(companion.alias.as_str())).collect()
}

pub(super) fn events(seen: &Seen, after: u64, most: usize) -> Result<Vec<SandboxEvent>, KeepFault> {
    let event = |entry: Entry| SandboxEvent {
        sequence: entry.sequence,
        at: millis(&entry.at),
        state: SandboxState::from_name(&entry.state).unwrap_or(told(seen.state)),
        detail: serde_json::to_value(&entry.detail).unwrap_or(Value::Null),
        event: entry.event,
    };
    Ok(entries(seen, after)?.into_iter().take(most).map(event).collect())
}

fn entries(seen: &Seen, after: u64) -> Result<Vec<Entry>, KeepFault> {
    let read = journal::since(seen.place.directory(), after);
    Ok(read.map_err(PlaceFault::from)?)
}

pub(super) fn exec(seen: &Seen, number: u64) -> Result<ExecView, KeepFault> {
    let summary = known(kept::summary(&seen.place.execs(), number))?;
    let entries = entries(seen, 0)?;
    let mut own =
        entries.iter().filter(|entry| entry.detail.exec == Some(number)).map(|entry| millis(&entry.at));
    let started_at = own.next().unwrap_or(0);
    // One whose keeper was lost has no end of its own: it ended with the sandbox.
    let over = summary.end.is_some() || summary.failed.is_some() || !seen.is_kept;
    let ended_at = own
        .next_back()
        .or_else(|| over.then(|| entries.last().map_or(started_at, |entry| millis(&entry.at))));
    let size = |stream| -> Result<u64, KeepFault> {
        let file = known(kept::open(&seen.place.execs(), number, stream))?;
        Ok(file.map(|file| file.metadata()).transpose().map_err(failed)?.map_or(0, |found| found.len()))
    };
    Ok(ExecView {
        id: number,
        state: if over { ExecState::Ended } else { ExecState::Running },
        exit_code: own_exit(&summary),
        ended_by: over.then(|| ended_by(&summary)).flatten(),
        started_at,
        ended_at: ended_at.filter(|_| over),
        stdout_bytes: size("stdout")?,
        stderr_bytes: size("stderr")?,
        truncated: summary.end.as_ref().is_some_and(|end| !end.truncated.is_empty()),
        command: summary.command,
    })
}

/// The code of a program that ended by itself.
fn own_exit(summary: &Summary) -> Option<i32> {
    let end = summary.end.as_ref()?;
    let by_itself = end.signal.is_none() && !end.timed_out && !end.cancelled;
    by_itself.then(|| i32::from(end.exit_code))
}

fn ended_by(summary: &Summary) -> Option<String> {
    let word = match (&summary.end, &summary.failed) {
        (Some(end), _) if end.timed_out => "timed_out",
        (Some(end), _) if end.cancelled => "cancelled",
        (Some(end), _) if end.signal.is_some() => "signal",
        (Some(_), _) => return None,
        (None, Some(_)) => "not_started",
        (None, None) => "sandbox_stopped",
    };
    Some(word.to_owned())
}

pub(super) fn output(seen: &Seen, from: Output, most: usize) -> Result<Vec<u8>, KeepFault> {
    let stream = match from.stream {
        OutputStream::Stdout => "stdout",
        OutputStream::Stderr => "stderr",
    };
    let Some(mut file) = known(kept::open(&seen.place.execs(), from.exec, stream))? else {
        return Ok(Vec::new());
    };
    file.seek(SeekFrom::Start(from.offset)).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(u64::try_from(most).unwrap_or(u64::MAX)).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn known<T>(read: io::Result<T>) -> Result<T, KeepFault> {
    read.map_err(|fault| if fault.kind() == ErrorKind::NotFound { KeepFault::Unknown } else { failed(fault) })
}

fn told(state: life::State) -> SandboxState {
    match state {
        life::State::Pending => SandboxState::Pending,
        life::State::Ready => SandboxState::Ready,
        life::State::Stopped => SandboxState::Stopped,
        life::State::Failed => SandboxState::Failed,
        life::State::Deleting => SandboxState::Deleting,
        life::State::Deleted => SandboxState::Deleted,
    }
}

fn millis(at: &str) -> u64 {
    let at = at.parse::<jiff::Timestamp>().map_or(0, |at| at.as_millisecond());
    u64::try_from(at).unwrap_or(0)
}
