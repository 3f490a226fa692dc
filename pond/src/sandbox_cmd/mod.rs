//! `pond sandbox`: sandboxes that last, on this machine and without a server. Each has a keeper of its own (`keeper/`); this side
//! reads documents and flags, asks, and prints.

mod cp;
mod create;
mod exec;
mod life;
mod show;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use pond_policy::refusal::Refusals;
use pond_policy::settings::Settings;
use pond_sandbox::state::StateDir;

pub(crate) use exec::ExecArgs;

use crate::keeper::client::Starting;
use crate::keeper::converge::{self, Seen};
use crate::keeper::place::PlaceFault;
use crate::keeper::protocol::Refusal;
use crate::keeper::waiter;
use crate::{output, runs, settings};

/// A keeper that began before anything was read, for the commands that need one.
pub(crate) type Early = Option<anyhow::Result<Starting>>;

#[derive(Debug, Subcommand)]
pub(crate) enum Sandbox {
    Create(Box<create::CreateArgs>),
    Exec(ExecArgs),
    Cp(cp::CpArgs),
    Logs(show::LogsArgs),
    Stop(life::StopArgs),
    Resume(life::ResumeArgs),
    Rm(life::RmArgs),
    Ls(show::LsArgs),
    Events(show::EventsArgs),
    Cancel(life::CancelArgs),
}

/// A sandbox and how to answer.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The sandbox.
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxFault {
    #[error(transparent)]
    Place(#[from] PlaceFault),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the document is refused")]
    Document(Refusals),
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

impl SandboxFault {
    fn print(self, as_json: bool) -> ExitCode {
        match self {
            Self::Document(refusals) => output::refused(refusals, as_json),
            Self::Place(fault) => output::failed_with(fault.code(), &fault.into(), as_json),
            Self::Refused(refusal) => {
                let code = refusal.code.clone();
                output::failed_with(&code, &refusal.into(), as_json)
            }
            Self::Other(fault) => match fault.downcast::<Refusal>() {
                Ok(refusal) => Self::Refused(refusal).print(as_json),
                Err(fault) => output::failed(&fault, as_json),
            },
        }
    }
}

impl From<std::io::Error> for SandboxFault {
    fn from(fault: std::io::Error) -> Self {
        Self::Other(fault.into())
    }
}

/// Whether the command these words ask for needs a keeper of its own.
pub(crate) fn needs_keeper(command: &str) -> bool {
    ["create", "resume"].contains(&command)
}

pub(crate) fn main(command: &Sandbox, early: Early) -> ExitCode {
    let (done, as_json) = match command {
        Sandbox::Create(args) => (create::main(args, early), args.json),
        Sandbox::Resume(args) => (life::resume(args, early), args.target.json),
        Sandbox::Exec(args) => (exec::main(args), args.json),
        Sandbox::Cp(args) => (cp::main(args), args.json),
        Sandbox::Logs(args) => (show::logs(args), args.json),
        Sandbox::Stop(args) => (life::stop(args), args.target.json),
        Sandbox::Rm(args) => (life::rm(args), args.json),
        Sandbox::Cancel(args) => (life::cancel(args), args.target.json),
        Sandbox::Ls(args) => (show::ls(args), args.json),
        Sandbox::Events(args) => (show::events(args), args.target.json),
    };
    done.unwrap_or_else(|fault| fault.print(as_json))
}

fn state() -> Result<(StateDir, Settings), SandboxFault> {
    Ok((runs::state()?, settings::sandbox().map_err(SandboxFault::Document)?))
}

/// The sandbox, as it is now.
fn find(id: &str) -> Result<Seen, SandboxFault> {
    let (state, settings) = state()?;
    let seen = converge::named(&state, id, &settings)?;
    waiter::ensure_for(&state, [&seen]);
    Ok(seen)
}
