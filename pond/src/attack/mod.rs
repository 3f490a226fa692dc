//! `pond attack`: the escape catalogue, run against this host's own sandboxes.
//!
//! Every attempt is made twice by the same code: inside a real sandbox, as the job, and unconfined, as its control. Only an attempt
//! that works unconfined and fails inside counts as held. After every sandbox the host is looked at for what must not have changed.

mod accomplice;
mod campaign;
mod canary;
mod case;
mod differences;
mod exhaustion;
mod git;
mod kernel;
mod lifecycle;
mod network;
mod overseer;
mod parity;
pub(crate) mod probe;
mod props;
mod results;
mod sandbox;
mod scene;
mod score;
mod shown;
mod uncovered;

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pond_policy::backend::Backend;
use pond_policy::profile::Profile;
use pond_wire::contained::Transfer;
use serde::Serialize;

use campaign::Fate;
use case::Case;
use score::{Count, Row};

use crate::output;

/// Try to break out of this host's own sandboxes, and print the score.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 everything held; 1 a breach, or a probe that proves nothing; \
                        125 the attack could not run.")]
pub(crate) struct AttackArgs {
    /// The profile to attack; `none` shows what the probes do without a sandbox.
    #[arg(long, default_value = "untrusted-code-write")]
    profile: String,
    /// The backend to attack: native, docker, gvisor, or `all` that are on this host.
    #[arg(long, value_name = "NAME", default_value = "native", value_parser = Target::parse)]
    backend: Target,
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

/// What is attacked.
#[derive(Debug, Clone, Copy)]
enum Target {
    One(Backend),
    All,
}

impl Target {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        let unknown = || format!("it is one of {}, all", Backend::NAMES.join(", "));
        Backend::from_name(text).map(Self::One).ok_or_else(unknown)
    }
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
    backend: &'static str,
    /// How jobs' copies got there.
    transfer: Transfer,
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
    match attack(args) {
        Ok(code) => code,
        Err(fault) => output::failed(&fault, args.json),
    }
}

fn attack(args: &AttackArgs) -> anyhow::Result<ExitCode> {
    let profile =
        Profile::parse(&args.profile).with_context(|| format!("no profile is called {:?}", args.profile))?;
    match args.backend {
        Target::One(backend) => {
            let fate = campaign::run(args, profile, &[backend])?.into_iter().next();
            match fate.context("no backend was attacked")? {
                (_, Fate::Attacked(report)) => Ok(finish(&report, args.json)),
                (_, Fate::Absent(why)) => bail!("{backend} is not on this host: {why}"),
            }
        }
        Target::All => {
            let fates = campaign::run(args, profile, Backend::ALL)?;
            if fates.iter().all(|(_, fate)| matches!(fate, Fate::Absent(_))) {
                bail!("no backend is on this host; see `pond doctor`");
            }
            let parity = parity::compare(profile.name(), fates);
            let table = || output::lines(parity.table().trim_end());
            let printed = if args.json { output::json(&parity) } else { table() };
            Ok(judged(printed, parity.passes()))
        }
    }
}

fn finish(report: &Report, json: bool) -> ExitCode {
    let printed = if json {
        output::json(report)
    } else {
        output::lines(score::card(&report.probes, &report.canaries).trim_end())
    };
    judged(printed, report.count.passes())
}

fn judged(printed: ExitCode, passes: bool) -> ExitCode {
    match printed {
        ExitCode::SUCCESS if !passes => ExitCode::FAILURE,
        other => other,
    }
}
