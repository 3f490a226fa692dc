//! Commands that ask a control plane: submit a run, watch it, fetch what came of it; secrets, projects, hosts, workers, tokens.
//!
//! Trust zone: a person's terminal. Words of the server are shown escaped, output of jobs neutralised; a secret comes from standard
//! input or a terminal without echo, never from an argument, and goes nowhere but to the server.

pub(crate) mod audit;
pub(crate) mod cancel;
pub(crate) mod egress;
pub(crate) mod explain;
pub(crate) mod fetch;
mod follow;
mod import;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod project;
mod screen;
pub(crate) mod secret;
pub(crate) mod show;
mod source;
mod statement;
pub(crate) mod submit;
mod tail;
pub(crate) mod token;
mod typed;
pub(crate) mod worker;

use jiff::Timestamp;
use pond_policy::name::Name;
use pond_policy::quote::quote;
use pond_policy::refusal::Code;
use pond_wire::api::{Millis, RunState, RunView, StageState};
use pond_wire::orch::Id;

use crate::client::fault::ClientFault;
use crate::client::server::{Call, Server};
use crate::client::target::Target;
use crate::failure::known;
use crate::runs;

pub(crate) async fn view(server: &Server, run: &str) -> Result<RunView, ClientFault> {
    server.json(Call::get(Target::new(&["runs", run]))).await
}

/// How long ago, in a few characters.
fn age(at: Millis) -> String {
    let now = u64::try_from(runs::now().as_millisecond()).unwrap_or_default();
    runs::list::brief(std::time::Duration::from_millis(now.saturating_sub(at)))
}

/// To the second, in UTC.
fn moment(at: Millis) -> String {
    let parsed = i64::try_from(at).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
    parsed.map_or_else(|| at.to_string(), |at| at.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

const fn state_of_run(state: RunState) -> &'static str {
    match state {
        RunState::Active => "active",
        RunState::Succeeded => "succeeded",
        RunState::Failed => "failed",
        RunState::Cancelled => "cancelled",
        RunState::Refused => "refused",
    }
}

const fn state_of_stage(state: StageState) -> &'static str {
    match state {
        StageState::Queued => "queued",
        StageState::Leased => "leased",
        StageState::Running => "running",
        StageState::Verifying => "verifying",
        StageState::Succeeded => "succeeded",
        StageState::Failed => "failed",
        StageState::Cancelled => "cancelled",
        StageState::Refused => "refused",
    }
}

/// A name that goes into a path, where an empty one would ask for something else.
fn named(text: &str, field: &str) -> anyhow::Result<()> {
    match Name::parse(text) {
        Some(_) => Ok(()),
        None => {
            let rule = Name::form(Code::NameInvalid).rule;
            Err(known(Code::NameInvalid.name(), format!("{field}: {} is not {rule}", quote(text))))
        }
    }
}

/// A name that goes into a body, where an option has one.
fn id(text: Option<&str>, option: &str) -> anyhow::Result<Option<Id>> {
    let parse = |text: &str| {
        Id::try_from(text.to_owned()).map_err(|fault| anyhow::anyhow!("{option} {text:?}: {fault}"))
    };
    text.map(parse).transpose()
}
