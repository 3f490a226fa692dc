//! `pond sandbox ls`, `events` and `logs`: what is on disk, which needs no keeper.

use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use pond_policy::life::State;
use pond_worker::neutral::Neutraliser;
use serde::Serialize;

use super::{SandboxFault, Target, find, state};
use crate::keeper::converge::{self, Seen};
use crate::keeper::exec::kept;
use crate::keeper::journal::{self, Entry};
use crate::keeper::protocol::Refusal;
use crate::keeper::waiter;
use crate::output;

const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// List sandboxes.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Those that are gone as well.
    #[arg(short, long)]
    all: bool,
    /// Only those with this label.
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What happened to a sandbox, in order and without a gap.
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Begin after this number.
    #[arg(long, value_name = "N", default_value_t = 0)]
    from_sequence: u64,
    /// Wait for more, until it is deleted.
    #[arg(short, long)]
    follow: bool,
}

/// What a program in a sandbox wrote; the last one's without a number.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    #[arg(value_name = "ID")]
    id: String,
    /// The program's number.
    #[arg(value_name = "EXEC")]
    exec: Option<u64>,
    /// Standard error instead of standard output.
    #[arg(long)]
    stderr: bool,
    /// Wait for more, until the program has ended.
    #[arg(short, long, conflicts_with = "json")]
    follow: bool,
    /// Print JSON: how it ended, and both streams.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    id: String,
    state: &'static str,
    profile: Option<String>,
    sequence: u64,
    labels: Vec<(String, String)>,
    ports: Vec<(u16, u16)>,
}

pub(super) fn ls(args: &LsArgs) -> Result<ExitCode, SandboxFault> {
    let (state, settings) = state()?;
    let seen = converge::all(&state, &settings)?;
    waiter::ensure_for(&state, &seen);
    let wanted: Vec<(&str, &str)> = args.labels.iter().filter_map(|label| label.split_once('=')).collect();
    let row = |seen: &Seen| {
        let spec = seen.place.document().ok().and_then(|text| converge::read(&text, &settings).ok());
        Row {
            id: seen.place.id().to_owned(),
            state: seen.state.name(),
            profile: spec.as_ref().map(|spec| spec.policy.profile().name().to_owned()),
            sequence: seen.sequence,
            labels: spec.as_ref().map(|spec| spec.labels.clone()).unwrap_or_default(),
            ports: spec.iter().flat_map(|spec| &spec.ports).map(|port| (port.host, port.sandbox)).collect(),
        }
    };
    let has = |row: &Row, (key, value): &(&str, &str)| {
        row.labels.iter().any(|(own, of)| (own.as_str(), of.as_str()) == (*key, *value))
    };
    let rows: Vec<Row> = seen
        .iter()
        .filter(|seen| args.all || seen.state != State::Deleted)
        .map(row)
        .filter(|row| wanted.iter().all(|label| has(row, label)))
        .collect();
    if args.json {
        return Ok(output::json(&rows));
    }
    let cells = rows.into_iter().map(|row| {
        let ports: Vec<String> =
            row.ports.iter().map(|(host, inside)| format!("127.0.0.1:{host}->{inside}")).collect();
        [row.id, row.state.to_owned(), row.profile.unwrap_or_default(), ports.join(" ")]
    });
    Ok(output::lines(&output::table(["SANDBOX", "STATE", "PROFILE", "PORTS"], cells)))
}

pub(super) fn events(args: &EventsArgs) -> Result<ExitCode, SandboxFault> {
    let seen = find(&args.target.id)?;
    let directory = seen.place.directory();
    let (mut after, mut length) = (args.from_sequence, None);
    loop {
        let now = journal::length(directory)?;
        if length != Some(now) {
            let entries = journal::since(directory, after).map_err(anyhow::Error::from)?;
            let mut is_over = false;
            for entry in &entries {
                after = entry.sequence;
                is_over |= entry.state == State::Deleted.name();
                let printed = print(entry, args.target.json)?;
                if printed != ExitCode::SUCCESS {
                    return Ok(printed);
                }
            }
            length = Some(now);
            if is_over {
                return Ok(ExitCode::SUCCESS);
            }
        }
        if !args.follow {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn print(entry: &Entry, as_json: bool) -> anyhow::Result<ExitCode> {
    if as_json {
        return Ok(output::lines(&serde_json::to_string(entry)?));
    }
    let detail = &entry.detail;
    let exec = detail.exec.map(|exec| format!("  exec {exec}")).unwrap_or_default();
    let code = detail.exit_code.map(|code| format!("  exit {code}")).unwrap_or_default();
    let why = detail.reason.as_ref().map(|reason| format!("  {reason}")).unwrap_or_default();
    let line = format!(
        "{:>4}  {}  {:<14}  {:<8}{exec}{code}{why}",
        entry.sequence, entry.at, entry.event, entry.state
    );
    Ok(output::lines(&output::plain(&line)))
}

pub(super) fn logs(args: &LogsArgs) -> Result<ExitCode, SandboxFault> {
    let seen = find(&args.id)?;
    let directory = seen.place.execs();
    let last = || {
        let names = std::fs::read_dir(&directory)
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter_map(|name| name.split('.').next()?.parse::<u64>().ok()).max()
    };
    let unknown = || Refusal::new("exec_unknown", format!("no such program ran in sandbox {}", args.id));
    let number = args.exec.or_else(last).ok_or_else(unknown)?;
    let known = |fault: io::Error| {
        if fault.kind() == ErrorKind::NotFound {
            return SandboxFault::from(unknown());
        }
        anyhow::Error::from(fault).context(format!("reading what program {number} left")).into()
    };
    let read = |stream: &str| {
        let mut bytes = Vec::new();
        if let Some(mut file) = kept::open(&directory, number, stream)? {
            file.read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    };
    if args.json {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let summary = kept::summary(&directory, number).map_err(known)?;
        let (stdout, stderr) = (read("stdout").map_err(known)?, read("stderr").map_err(known)?);
        let said = serde_json::json!({ "exec": summary, "stdout": text(stdout), "stderr": text(stderr) });
        return Ok(output::json(&said));
    }
    let stream = if args.stderr { "stderr" } else { "stdout" };
    if args.follow {
        kept::open(&directory, number, stream).map_err(known)?;
        return follow(&args.id, &directory, number, stream);
    }
    let bytes = read(stream).map_err(known)?;
    let mut out = std::io::stdout().lock();
    if std::io::IsTerminal::is_terminal(&out) {
        let (mut neutral, mut text) = (Neutraliser::default(), String::new());
        neutral.push(&bytes, &mut text);
        neutral.finish(&mut text);
        out.write_all(text.as_bytes())?;
    } else {
        out.write_all(&bytes)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// What a program writes, as it is kept, until it has ended or nobody keeps its sandbox any more.
fn follow(id: &str, directory: &Path, number: u64, stream: &str) -> Result<ExitCode, SandboxFault> {
    let reading = || format!("reading what program {number} left");
    let mut file = None;
    let mut out = std::io::stdout().lock();
    let mut neutral = std::io::IsTerminal::is_terminal(&out).then(Neutraliser::default);
    loop {
        // Looked at before the rest is read: what a program wrote is there before its end is.
        let is_over = has_ended(directory, number)? || !find(id)?.is_kept;
        let mut bytes = Vec::new();
        if file.is_none() {
            file = kept::open(directory, number, stream).with_context(reading)?;
        }
        if let Some(file) = &mut file {
            file.read_to_end(&mut bytes).with_context(reading)?;
        }
        match &mut neutral {
            None => out.write_all(&bytes)?,
            Some(neutral) => {
                let mut text = String::new();
                neutral.push(&bytes, &mut text);
                out.write_all(text.as_bytes())?;
            }
        }
        out.flush()?;
        if is_over {
            break;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    if let Some(neutral) = neutral {
        let mut text = String::new();
        neutral.finish(&mut text);
        out.write_all(text.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A summary that is being written is that of a program whose end is not known yet.
fn has_ended(directory: &Path, number: u64) -> anyhow::Result<bool> {
    match kept::summary(directory, number) {
        Err(fault) if fault.kind() == ErrorKind::InvalidData => Ok(false),
        Err(fault) => Err(anyhow::Error::from(fault).context(format!("reading how program {number} ended"))),
        Ok(summary) => Ok(summary.end.is_some() || summary.failed.is_some()),
    }
}
