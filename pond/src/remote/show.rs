//! `pond show RUN`: a run and its stages, and for a stage that waits the reason why.

use std::process::ExitCode;

use clap::Args;
use pond_wire::api::{Outcome, RunView, StageView, Standing};

use super::{age, moment, state_of_run, state_of_stage, view};
use crate::client::{self, ServerArgs};
use crate::output;

/// Show a run of the control plane: its stages, where each stands, and what those that wait are waiting for.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The run, as `pond submit` and `pond runs` name it.
    run: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn main(args: &ShowArgs) -> ExitCode {
    client::ask(&args.server, args.json, async |server| {
        let run = view(server, &args.run).await?;
        Ok(if args.json { output::json(&run) } else { output::lines(&text(&run)) })
    })
}

fn text(view: &RunView) -> String {
    let run = &view.run;
    let mut lines = vec![
        format!("run      {}", output::plain(&run.id)),
        format!("project  {}", output::plain(&run.project)),
        format!("state    {}", state_of_run(run.state)),
        format!("since    {} UTC ({} ago)", moment(run.created_at), age(run.created_at)),
    ];
    lines.extend(run.ended_at.map(|at| format!("until    {} UTC", moment(at))));
    let code = run.cancel_code.as_ref().filter(|code| !code.is_empty());
    let code = code.map(|code| format!(" [{code}]")).unwrap_or_default();
    lines.extend(run.cancel.iter().map(|why| format!("cancel   {}", output::plain(&format!("{why}{code}")))));
    lines.extend(view.source.iter().map(|source| format!("source   {}", output::plain(source))));
    lines.push(String::new());
    let header = ["STAGE", "STATE", "TRY", "WORKER", "WHY"];
    lines.push(output::table(header, view.stages.iter().map(row)));
    lines.extend(view.stages.iter().flat_map(compared));
    lines.join("\n")
}

/// What workers who ran the same stage do not agree on.
fn compared(stage: &StageView) -> Vec<String> {
    let mut lines = Vec::new();
    for result in &stage.results {
        let who = format!("{} by {} (try {})", stage.name, result.worker, result.attempt);
        match result.standing {
            Standing::Single => {}
            Standing::Unconfirmed => lines.push(format!("unconfirmed  {who}")),
            Standing::Confirmed => lines.push(format!("confirmed    {who}")),
            Standing::Distrusted => lines.push(format!("DISTRUSTED   {who}")),
        }
        lines.extend(result.differs.iter().map(|path| format!("  differs    {path}")));
    }
    lines.iter().map(|line| output::plain(line)).collect()
}

fn row(stage: &StageView) -> [String; 5] {
    let last = stage.results.last();
    let attempt = stage.job.as_ref().map(|job| job.attempt).or(last.map(|result| result.attempt));
    let worker = match &stage.job {
        Some(job) => job.worker.clone(),
        None => last.map(|result| result.worker.clone()),
    };
    let rejected = stage.results.iter().filter(|result| result.outcome == Outcome::Rejected).count();
    let why = match rejected {
        0 if stage.code.is_empty() => stage.reason.clone(),
        0 => format!("{} [{}]", stage.reason, stage.code),
        count => format!("{} [{}] ({count} results did not verify)", stage.reason, stage.code),
    };
    let dash = || "-".to_owned();
    [
        stage.name.clone(),
        state_of_stage(stage.state).to_owned(),
        attempt.map_or_else(dash, |attempt| attempt.to_string()),
        worker.unwrap_or_else(dash),
        why,
    ]
}
