//! `pond preflight`: every fault and warning of a run document, with its path, before anything runs.

use std::process::ExitCode;

use pond_policy::refusal::Refusals;
use pond_policy::run::{self, Run};
use pond_wire::contract;

use crate::cli::Preflight;
use crate::remote::submit;
use crate::{client, input, operator, output, settings};

pub(crate) fn preflight(args: &Preflight) -> ExitCode {
    if args.remote || args.server.is_given() {
        return remote(args);
    }
    match (check(args), args.json) {
        (Ok(run), true) => output::json(&contract::Preflight::from(&run)),
        (Ok(run), false) => output::lines(&accepted(&run)),
        (Err(refusals), as_json) => output::refused(refusals, as_json),
    }
}

fn check(args: &Preflight) -> Result<Run, Refusals> {
    let settings = settings::runs(&operator::load()?)?;
    run::preflight(&input::document(&args.file)?, &settings)
}

/// The control plane's word on it.
fn remote(args: &Preflight) -> ExitCode {
    let text = match input::text(&args.file) {
        Ok(text) => text,
        Err(refusals) => return output::refused(refusals, args.json),
    };
    client::ask(&args.server, args.json, async |server| {
        let accepted = submit::preflight(server, &text).await?;
        if args.json {
            return Ok(output::json(&accepted));
        }
        accepted.warnings.iter().for_each(submit::warn);
        let stages = if accepted.stages.len() == 1 { "stage" } else { "stages" };
        let line = format!("ok: {} {stages} for project {}", accepted.stages.len(), accepted.project);
        Ok(output::lines(&output::plain(&line)))
    })
}

fn accepted(run: &Run) -> String {
    let mut text = String::new();
    for warning in run.warnings() {
        text +=
            &format!("warning  {}  [{}]\n         {}\n", warning.path, warning.code.name(), warning.message);
    }
    let stages = if run.stages.len() == 1 { "stage" } else { "stages" };
    text + &format!("ok: {} {stages} for project {}", run.stages.len(), run.project)
}
