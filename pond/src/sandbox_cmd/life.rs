//! `pond sandbox stop`, `resume`, `rm` and `cancel`: asked of the keeper where there is one, and done here where there is none.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use pond_policy::life::{Operation, State};
use serde::Serialize;

use super::{Early, SandboxFault, Target, create, find};
use crate::keeper::Order;
use crate::keeper::client::{Call, lost};
use crate::keeper::converge::{self, Seen};
use crate::keeper::journal::{Detail, Journal};
use crate::keeper::protocol::{Answer, Request};
use crate::output;

/// Taking a sandbox down, with a disk that is full of what was not written back yet.
const PATIENCE: Duration = Duration::from_secs(120);

/// End everything in a sandbox, and keep its disk.
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    pub(crate) target: Target,
}

/// Start a stopped sandbox again, on the disk it had.
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(crate) target: Target,
}

/// Remove sandboxes; their names are never given again.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// End a program that runs in a sandbox.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The program's number.
    exec: u64,
}

#[derive(Debug, Serialize)]
struct Moved<'a> {
    id: &'a str,
    state: &'static str,
    sequence: u64,
}

pub(super) fn stop(args: &StopArgs) -> Result<ExitCode, SandboxFault> {
    let id = &args.target.id;
    let seen = find(id)?;
    converge::permit(&seen, Operation::Stop)?;
    ask(&seen, &Request::Stop)?;
    let now = settled(id, &[State::Stopped])?;
    Ok(told(&[now], args.target.json))
}

pub(super) fn resume(args: &ResumeArgs, early: Early) -> Result<ExitCode, SandboxFault> {
    let id = &args.target.id;
    let seen = find(id)?;
    converge::permit(&seen, Operation::Resume)?;
    create::start(early, &Order::Resume { id: id.clone() }, false, args.target.json)
}

pub(super) fn rm(args: &RmArgs) -> Result<ExitCode, SandboxFault> {
    let removed = args.ids.iter().map(|id| remove(id)).collect::<Result<Vec<_>, _>>()?;
    Ok(told(&removed, args.json))
}

fn remove(id: &str) -> Result<Seen, SandboxFault> {
    let seen = find(id)?;
    converge::permit(&seen, Operation::Delete)?;
    let lock = match seen.state {
        State::Stopped | State::Failed => seen.place.lock_soon()?,
        State::Pending | State::Ready | State::Deleting | State::Deleted => seen.place.lock()?,
    };
    if let Some(lock) = lock {
        let mut journal = Journal::open(seen.place.directory()).map_err(anyhow::Error::from)?;
        let why = Detail::because("asked", "somebody removed it");
        converge::delete(&seen.place, &lock, &mut journal, why)?;
    } else if let Err(fault) = ask(&seen, &Request::Delete) {
        // Its keeper may have ended meanwhile; then the next look says what is left to do.
        if find(id)?.is_kept {
            return Err(fault);
        }
        return remove(id);
    }
    settled(id, &[State::Deleted])
}

pub(super) fn cancel(args: &CancelArgs) -> Result<ExitCode, SandboxFault> {
    let seen = find(&args.target.id)?;
    converge::permit(&seen, Operation::Exec)?;
    ask(&seen, &Request::Cancel { exec: args.exec })?;
    Ok(match args.target.json {
        true => output::json(&serde_json::json!({ "exec": args.exec, "cancelled": true })),
        false => ExitCode::SUCCESS,
    })
}

fn ask(seen: &Seen, request: &Request) -> Result<(), SandboxFault> {
    let mut call = Call::open(seen.place.directory()).map_err(|_| lost())?;
    call.say(request)?;
    match call.answer()? {
        Answer::Done => Ok(()),
        Answer::Refused(refusal) => Err(refusal.into()),
        Answer::Status(_) | Answer::Began { .. } | Answer::Ended(_) | Answer::Copied { .. } => {
            Err(lost().into())
        }
    }
}

/// Looks until it is where it was asked to be.
fn settled(id: &str, wanted: &[State]) -> Result<Seen, SandboxFault> {
    let until = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(1);
    loop {
        let seen = find(id)?;
        // A keeper that still ends holds the lock; what it said is in the events by then.
        if wanted.contains(&seen.state) && !seen.is_kept || seen.state.is_terminal() {
            return Ok(seen);
        }
        if Instant::now() > until {
            return Err(late(id, seen.state).into());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn late(id: &str, state: State) -> anyhow::Error {
    let fault: anyhow::Result<()> =
        (|| bail!("sandbox {id} is still {state} after {} s; it goes on by itself", PATIENCE.as_secs()))();
    fault.err().unwrap_or_else(|| anyhow::anyhow!("sandbox {id} is late"))
}

fn told(seen: &[Seen], as_json: bool) -> ExitCode {
    let moved: Vec<Moved<'_>> = seen
        .iter()
        .map(|seen| Moved { id: seen.place.id(), state: seen.state.name(), sequence: seen.sequence })
        .collect();
    match (as_json, moved.as_slice()) {
        (true, [one]) => output::json(one),
        (true, all) => output::json(&all),
        (false, all) => {
            let lines: Vec<String> = all.iter().map(|one| format!("{}  {}", one.id, one.state)).collect();
            output::lines(&lines.join("\n"))
        }
    }
}
