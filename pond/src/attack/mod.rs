//! `pond attack`: the escape catalogue, run against this host's own sandbox.
//!
//! Every attempt is made twice by the same code: inside a real sandbox, as the job, and unconfined, as its control. Only an attempt
//! that works unconfined and fails inside counts as held. After every sandbox the host is looked at for what must not have changed.

mod canary;
mod case;
mod helper;
mod kernel;
pub(crate) mod probe;
mod props;
mod sandbox;
mod scene;
mod score;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pond_policy::profile::{Network, Profile};
use pond_sandbox::native::{Native, sweep};
use pond_sandbox::state::StateDir;
use serde::Serialize;

use canary::Canaries;
use case::{Case, Probe, Room, Stage};
use probe::{Outcome, selector};
use props::Props;
use sandbox::Range;
use score::{Caller, Count, Met, Row};

use crate::{output, settings};

/// Try to break out of this host's own sandbox, and print the score.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 everything held; 1 a breach, or a probe that proves nothing; 125 the attack could not run.")]
pub(crate) struct AttackArgs {
    /// The profile to attack; `none` shows what the probes do without a sandbox.
    #[arg(long, default_value = "untrusted-code-write")]
    profile: String,
    /// Only these cases.
    #[arg(long = "case", value_name = "ID", num_args = 1..)]
    cases: Vec<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

fn catalogue() -> impl Iterator<Item = &'static Case> {
    kernel::CASES.into_iter().flatten()
}

/// A probe and the case it belongs to.
type Pick = (&'static Case, &'static Probe);

pub(crate) fn main(args: &AttackArgs) -> ExitCode {
    match attack(args) {
        Ok(report) => finish(&report, args.json),
        Err(fault) => output::failed(&fault, args.json),
    }
}

#[derive(Debug, Serialize)]
struct Report {
    profile: String,
    #[serde(flatten)]
    count: Count,
    /// What the host's canaries say, if anything.
    canaries: Vec<String>,
    probes: Vec<Row>,
}

fn finish(report: &Report, json: bool) -> ExitCode {
    let printed = if json { output::json(report) } else { output::lines(score::card(&report.probes, &report.canaries).trim_end()) };
    if printed != ExitCode::SUCCESS {
        return printed;
    }
    if report.count.passes() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn attack(args: &AttackArgs) -> anyhow::Result<Report> {
    let picked = pick(&args.cases)?;
    let profile = Profile::parse(&args.profile).with_context(|| format!("no profile is called {:?}", args.profile))?;
    let executable = std::env::current_exe().context("finding pond's own executable")?;
    let canaries = Canaries::take(&executable).context("looking at the host before the attack")?;
    let props = Props::set(&executable).context("setting the stage")?;
    let selectors: Vec<String> = picked.iter().map(|(case, probe)| selector(case, probe)).collect();
    say(args, &format!("{} probes unconfined, as their own control", picked.len()));
    let control = outcomes(&sandbox::unconfined(&executable, &props, &selectors, |_| {})?);
    let (met, mut residue) = if profile.is_confined() {
        confined(args, profile, &executable, &props, &picked)?
    } else {
        say(args, "the same again without a sandbox: every attempt that works is a breach");
        let again = outcomes(&sandbox::unconfined(&executable, &props, &selectors, |_| {})?);
        let met = again.into_iter().map(|(key, outcome)| (key, Met { outcome: Some(outcome), evidence: None }));
        (met.collect(), Vec::new())
    };
    residue.extend(canaries.changed().context("looking at the host after the attack")?);
    let probes = rows(&picked, &met, &control)?;
    let count = Count::of(&probes, &residue);
    Ok(Report { profile: profile.name().to_owned(), count, canaries: residue, probes })
}

fn pick(cases: &[String]) -> anyhow::Result<Vec<Pick>> {
    if let Some(unknown) = cases.iter().find(|id| !catalogue().any(|case| case.id == id.as_str())) {
        bail!("no case is called {unknown:?}; see `pond attack --uncovered` for those this command does not run");
    }
    let wanted = |case: &&Case| cases.is_empty() || cases.iter().any(|id| id == case.id);
    Ok(catalogue().filter(wanted).flat_map(|case| case.probes.iter().map(move |probe| (case, probe))).collect())
}

type Met1 = BTreeMap<String, Met>;

fn confined(
    args: &AttackArgs,
    profile: Profile,
    executable: &std::path::Path,
    props: &Props,
    picked: &[Pick],
) -> anyhow::Result<(Met1, Vec<String>)> {
    if profile.posture().network == Network::Internet {
        bail!("the native backend does not offer {}", profile.name());
    }
    let directory = settings::state_dir().context("no place for pond's state; set HOME or POND_STATE_DIR")?;
    let native = Native::open(StateDir::open(&directory)?, executable)?;
    sweep(native.state()).context("cleaning up after runs that were killed")?;
    let settings = pond_policy::settings::Settings::default();
    let range = Range { native: &native, props, executable, profile: profile.name(), settings: &settings };
    let mut met = BTreeMap::new();
    let mut residue = Vec::new();
    let shared: Vec<String> = picked.iter().filter(|(_, probe)| matches!(probe.room, Room::Shared)).map(|(case, probe)| selector(case, probe)).collect();
    if !shared.is_empty() {
        say(args, &format!("{} probes inside one sandbox", shared.len()));
        let seen = range.confined(&Stage::PLAIN, &shared)?;
        launched(&seen)?;
        residue.extend(seen.residue);
        met.extend(outcomes(&seen.lines).into_iter().map(|(key, outcome)| (key, Met { outcome: Some(outcome), evidence: None })));
    }
    for (case, probe) in picked {
        let Room::Own(stage) = probe.room else { continue };
        let key = selector(case, probe);
        say(args, &format!("{key}, in a sandbox of its own"));
        let seen = range.confined(&stage, std::slice::from_ref(&key))?;
        let evidence = score::evidence(&stage, &seen);
        let outcome = outcomes(&seen.lines).remove(&key);
        residue.extend(seen.residue);
        met.insert(key, Met { outcome, evidence });
    }
    Ok((met, residue))
}
