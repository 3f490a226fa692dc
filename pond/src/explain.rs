//! `pond explain`: why a run did not get what it wanted, each time with the rule that said no and what would change it.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pond_policy::command::ALLOWED_COMMANDS;
use pond_policy::quote::quote;
use serde::Serialize;

use crate::audit::{Denied, denied_last};
use crate::client::ServerArgs;
use crate::run::{Finding, Kind, Verdict};
use crate::{output, remote, runs};

/// Say what a run was refused, by which rule, and the smallest change that would allow it.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The run, of this machine or of a control plane; without it, the newest one on the current directory, or a command
    /// that was denied after it.
    run: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Serialize)]
struct Explanation {
    /// Absent, like the verdict, for a command that was denied before it could become a run.
    run: Option<String>,
    verdict: Option<Verdict>,
    findings: Vec<Finding>,
}

pub(crate) fn main(args: &ExplainArgs) -> ExitCode {
    if let Some(run) = args.run.as_deref().filter(|run| remote::explain::is_remote(run)) {
        return remote::explain::main(run, &args.server, args.json);
    }
    match explain(args.run.as_deref()) {
        Ok(explanation) if args.json => output::json(&explanation),
        Ok(explanation) => output::lines(&explanation.text()),
        Err(fault) => output::failed(&fault, args.json),
    }
}

fn explain(run: Option<&str>) -> anyhow::Result<Explanation> {
    let state = runs::state()?;
    let (info, _) = match run {
        Some(name) => runs::named(&state, name)?,
        None => {
            if let Some(denied) = denied_last(&state)? {
                return Ok(Explanation { run: None, verdict: None, findings: vec![finding(denied)] });
            }
            let here = std::env::current_dir().context("finding the current directory")?;
            runs::latest_of(&state, &here.to_string_lossy())?
        }
    };
    Ok(Explanation { run: Some(info.run.into()), verdict: Some(info.verdict), findings: info.findings })
}

fn finding(denied: Denied) -> Finding {
    Finding {
        kind: Kind::Command,
        what: format!("the command {} was denied before it ran", quote(&denied.command)),
        code: denied.code,
        count: 1,
        rule: format!("{} starts only: {}", denied.profile, ALLOWED_COMMANDS.join(", ")),
        advice: "name one of these by its bare name, or use untrusted-code-write".to_owned(),
    }
}

impl Explanation {
    fn text(&self) -> String {
        let mut lines = match (&self.run, &self.verdict) {
            (Some(run), Some(verdict)) => vec![format!("{run}: {}", verdict.sentence())],
            _ => vec!["the newest command did not run".to_owned()],
        };
        if self.findings.is_empty() {
            lines.push("nothing was refused that pond knows of".to_owned());
        }
        for finding in &self.findings {
            let times = if finding.count == 1 { String::new() } else { format!(", {} times", finding.count) };
            lines.push(format!("\n{}{times}", finding.what));
            lines.push(format!("    why       {}", finding.code));
            lines.push(format!("    rule      {}", finding.rule));
            lines.push(format!("    what now  {}", finding.advice));
        }
        lines.join("\n")
    }
}
