//! `pond allow` and `pond deny`: other rules for a job that runs. The pond that runs it judges and answers; this side only finds
//! it and asks.

use std::io;
use std::process::ExitCode;

use clap::Args;
use pond_sandbox::record::{self, JobName, RecordFault};
use pond_sandbox::state::StateDir;
use pond_wire::change::{Answer, Change};
use serde::Serialize;

use crate::run::desk;
use crate::{output, runs};

/// Let the job of a running `pond run` reach more hosts, from now on.
#[derive(Debug, Args)]
#[command(
    after_help = "A host that was closed with `pond deny` is open again. What pond.toml denies stays denied."
)]
pub(crate) struct AllowArgs {
    #[command(flatten)]
    common: Common,
}

/// Close hosts to the job of a running `pond run`, from now on; open connections to them end.
#[derive(Debug, Args)]
#[command(after_help = "Deny wins over every other rule; `pond allow` with the same words takes it back.")]
pub(crate) struct DenyArgs {
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Common {
    /// Hosts: a name, or *.name for the names below it, with :PORT for another than 443.
    #[arg(required = true, value_name = "HOST")]
    hosts: Vec<String>,
    /// The run, where more than one is going on.
    #[arg(long)]
    run: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, thiserror::Error)]
enum ChangeFault {
    #[error("{text:?} is not the name of a run")]
    Name { text: String },
    #[error("there is no run {0}; `pond runs` lists those that ended")]
    Unknown(String),
    #[error("run {0} is over")]
    Over(String),
    #[error("run {0} has no list of hosts to change: its profile reaches none, or its gateway is gone")]
    NoAllowlist(String),
    #[error("nothing runs")]
    NothingRuns,
    #[error("more than one run is going on; name one with --run: {}", .0.join(", "))]
    Several(Vec<String>),
    #[error("asking run {run}")]
    Ask { run: String, source: io::Error },
    #[error("looking for runs")]
    Look(#[source] RecordFault),
    #[error(transparent)]
    State(anyhow::Error),
    #[error("{message}")]
    Refused { code: String, message: String },
}

impl ChangeFault {
    /// Stable.
    fn code(&self) -> &str {
        match self {
            Self::Name { .. } | Self::Unknown(_) => "run_unknown",
            Self::Over(_) => "run_over",
            Self::NoAllowlist(_) => "no_allowlist",
            Self::NothingRuns => "nothing_runs",
            Self::Several(_) => "run_not_named",
            Self::Ask { .. } => "run_does_not_answer",
            Self::Look(_) | Self::State(_) => "state",
            Self::Refused { code, .. } => code,
        }
    }
}

#[derive(Debug, Serialize)]
struct Done {
    run: String,
    #[serde(flatten)]
    change: Change,
    notes: Vec<String>,
}

pub(crate) fn allow(args: AllowArgs) -> ExitCode {
    let Common { hosts, run, json } = args.common;
    tell(change(run, Change { allow: hosts, deny: Vec::new() }), json)
}

pub(crate) fn deny(args: DenyArgs) -> ExitCode {
    let Common { hosts, run, json } = args.common;
    tell(change(run, Change { allow: Vec::new(), deny: hosts }), json)
}

fn tell(done: Result<Done, ChangeFault>, json: bool) -> ExitCode {
    match done {
        Ok(done) if json => output::json(&done),
        Ok(done) => output::lines(&done.text()),
        Err(fault) => {
            let code = fault.code().to_owned();
            output::failed_with(&code, &fault.into(), json)
        }
    }
}

fn change(run: Option<String>, change: Change) -> Result<Done, ChangeFault> {
    let state = runs::state().map_err(ChangeFault::State)?;
    let run = match run {
        Some(text) => JobName::try_from(text.clone()).map_err(|_| ChangeFault::Name { text })?,
        None => only_one(&state)?,
    };
    let name = run.as_str().to_owned();
    let answer = match desk::ask(&state.runs().join(&name), &change) {
        Ok(answer) => answer,
        Err(fault) => return Err(why_not(&state, &run, fault)),
    };
    match answer {
        Answer::Changed { notes } => Ok(Done { run: name, change, notes }),
        Answer::Refused { code, message } => Err(ChangeFault::Refused { code, message }),
    }
}

/// The run that is going on, if no other is.
fn only_one(state: &StateDir) -> Result<JobName, ChangeFault> {
    let mut live = record::living(state).map_err(ChangeFault::Look)?;
    match (live.pop(), live.len()) {
        (None, _) => Err(ChangeFault::NothingRuns),
        (Some(only), 0) => Ok(only),
        (Some(last), _) => {
            live.push(last);
            let mut names: Vec<String> = live.into_iter().map(String::from).collect();
            names.sort();
            Err(ChangeFault::Several(names))
        }
    }
}

/// Nobody was at the desk; what that means depends on the run.
fn why_not(state: &StateDir, run: &JobName, fault: io::Error) -> ChangeFault {
    let name = run.as_str().to_owned();
    let directory = state.runs().join(&name);
    let runs = match record::living(state) {
        Err(fault) => return ChangeFault::Look(fault),
        Ok(living) => living.contains(run),
    };
    match (runs, fault.kind()) {
        (true, io::ErrorKind::NotFound) => ChangeFault::NoAllowlist(name),
        (true, _) => ChangeFault::Ask { run: name, source: fault },
        (false, _) if directory.is_dir() => ChangeFault::Over(name),
        (false, _) => ChangeFault::Unknown(name),
    }
}

impl Done {
    fn text(&self) -> String {
        let verb = if self.change.allow.is_empty() { "denied" } else { "allowed" };
        let hosts = [&self.change.allow[..], &self.change.deny[..]].concat().join(", ");
        let mut lines = vec![format!("{verb} in {}: {hosts}", self.run)];
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines.join("\n")
    }
}
