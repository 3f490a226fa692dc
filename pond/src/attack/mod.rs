//! `pond attack`: the escape catalogue, run against this host's own sandbox.
//!
//! Every attempt is made twice by the same code: inside a real sandbox, as the job, and unconfined, as its control. Only an attempt
//! that works unconfined and fails inside counts as held. After every sandbox the host is looked at for what must not have changed.

mod accomplice;
mod campaign;
mod canary;
mod case;
mod exhaustion;
mod git;
mod kernel;
mod lifecycle;
mod network;
mod overseer;
pub(crate) mod probe;
mod props;
mod results;
mod sandbox;
mod scene;
mod score;
mod uncovered;

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use case::Case;
use score::{Count, Row};

use crate::output;

/// Try to break out of this host's own sandbox, and print the score.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 everything held; 1 a breach, or a probe that proves nothing; \
                        125 the attack could not run.")]
pub(crate) struct AttackArgs {
    /// The profile to attack; `none` shows what the probes do without a sandbox.
    #[arg(long, default_value = "untrusted-code-write")]
    profile: String,
    /// Only these cases.
    #[arg(long = "case", value_name = "ID", num_args = 1..)]
    cases: Vec<String>,
    /// List the cases of the catalogue this command does not run, and why.
    #[arg(long, conflicts_with_all = ["cases", "profile"])]
    uncovered: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Every case this command runs, section by section.
fn catalogue() -> impl Iterator<Item = &'static Case> {
    let sections = [network::CASES, lifecycle::CASES, results::CASES, git::CASES, overseer::CASES];
    let mut cases: Vec<&Case> =
        exhaustion::CASES.into_iter().chain(kernel::CASES).chain(sections).flatten().collect();
    cases.sort_by_key(|case| case.id);
    cases.into_iter()
}

/// What an attack found.
#[derive(Debug, Serialize)]
struct Report {
    profile: &'static str,
    #[serde(flatten)]
    count: Count,
    /// What the host's canaries say, if anything.
    canaries: Vec<String>,
    probes: Vec<Row>,
}

pub(crate) fn main(args: &AttackArgs) -> ExitCode {
    if args.uncovered {
        return uncovered::print(args.json);
    }
    match campaign::run(args) {
        Ok(report) => finish(&report, args.json),
        Err(fault) => output::failed(&fault, args.json),
    }
}

fn finish(report: &Report, json: bool) -> ExitCode {
    let printed = if json {
        output::json(report)
    } else {
        output::lines(score::card(&report.probes, &report.canaries).trim_end())
    };
    match printed {
        ExitCode::SUCCESS if !report.count.passes() => ExitCode::FAILURE,
        other => other,
    }
}
