//! `pond cancel RUN`: nothing of it starts any more, and what runs is stopped.

use std::process::ExitCode;

use clap::Args;
use http::Method;
use pond_wire::api::{Cancel, RunState};

use super::{state_of_run, view};
use crate::client::body::Content;
use crate::client::server::Call;
use crate::client::target::Target;
use crate::client::{self, ServerArgs};
use crate::output;

/// Cancel a run of the control plane: its waiting stages end at once, its running ones are stopped.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// The run.
    run: String,
    /// Why, for whoever looks at the run later.
    #[arg(long)]
    reason: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn main(args: &CancelArgs) -> ExitCode {
    client::ask(&args.server, args.json, async |server| {
        let body = Content::json(&Cancel { reason: args.reason.clone() })?;
        let call = Call::new(Method::POST, Target::new(&["runs", &args.run, "cancel"]), body);
        server.done(call).await?;
        let run = view(server, &args.run).await?;
        if args.json {
            return Ok(output::json(&run));
        }
        let line = match (run.run.ended_at, run.run.state) {
            (Some(_), RunState::Cancelled) => format!("{} is cancelled", args.run),
            (Some(_), state) => format!("{} had ended before: {}", args.run, state_of_run(state)),
            (None, _) => format!("{} is being cancelled: {} still open", args.run, run.run.open_stages),
        };
        Ok(output::lines(&output::plain(&line)))
    })
}
