//! `pond explain`: why a run did not get what it wanted, each time with the rule that said no and what would change it.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use crate::run::{Finding, Verdict};
use crate::{output, runs};

/// Say what a run was refused, by which rule, and the smallest change that would allow it.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The run; without it, the newest one on the current directory.
    run: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Explanation {
    run: String,
    verdict: Verdict,
    findings: Vec<Finding>,
}

pub(crate) fn main(args: &ExplainArgs) -> ExitCode {
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
            let here = std::env::current_dir().context("finding the current directory")?;
            runs::latest_of(&state, &here.to_string_lossy())?
        }
    };
    Ok(Explanation { run: info.run.into(), verdict: info.verdict, findings: info.findings })
}

impl Explanation {
    fn text(&self) -> String {
        let mut lines = vec![format!("{}: {}", self.run, self.verdict.sentence())];
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
