//! `cargo xtask bench`: pond measured beside its peers, in one interleaved run on this machine.
//! Nothing here judges a time: figures are printed and written down. What is counted rather than timed (failures of a
//! crowd, things left over) can fail.

mod backends;
mod bundle;
mod census;
mod chart;
mod crowd;
mod dispatch;
mod docker;
mod driver;
mod gateway;
mod growth;
mod idle;
mod launch;
mod peers;
mod race;
mod report;
mod sandboxes;
mod stand;
mod stats;
mod tree;
mod visitor;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};

use report::Findings;
use stand::Stand;

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// The native sandbox against posix_spawn, bubblewrap, crun, runc, docker and runsc (as root; best on a quiet machine)
    Native(NativeArgs),
    /// The gateway against tinyproxy, squid and sandbox-runtime, in network namespaces of its own (as root)
    Gateway(gateway::GatewayArgs),
    /// The same job on native, docker and gvisor, beside plain `docker run` (as root; best on a quiet machine)
    Backends(backends::BackendsArgs),
    /// From a submission to its first output, jobs a second beside other queues, a long queue, memory (as root; best on a quiet machine)
    Dispatch(dispatch::DispatchArgs),
    /// Sandboxes that last: making one, programs in one, and what an idle one holds, beside docker's (as root; best on a quiet machine)
    Sandboxes(sandboxes::SandboxesArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NativeArgs {
    /// How often each fast contender runs; slow ones run less often
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// 10,000 launches in sequence instead of 2,000
    #[arg(long)]
    long: bool,
    #[command(flatten)]
    only: Only<What>,
    /// Where the table and the chart are written
    #[arg(long, value_name = "DIR", default_value = "docs/bench")]
    out: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Launch to exit of `true`, everybody
    Launch,
    /// Stage and collect on a tree of 50,000 files
    Tree,
    /// Memory of 500 idle sandboxes
    Idle,
    /// 200 launches at once
    Crowd,
    /// What thousands of launches leave behind
    Growth,
}

impl NativeArgs {
    fn sequence(&self) -> u32 {
        if self.long { 10_000 } else { 2_000 }
    }

    /// The command that repeats this.
    fn command(&self) -> String {
        let mut command = format!("cargo xtask bench native --runs {}", self.runs);
        if self.long {
            command.push_str(" --long");
        }
        self.only.repeat(command)
    }
}

/// What of a benchmark is asked for; all of it where nothing is named.
#[derive(Debug, Args)]
struct Only<What: ValueEnum + Send + Sync + 'static> {
    /// Measure only this (may be given several times)
    #[arg(long = "only", value_name = "WHAT")]
    named: Vec<What>,
}

impl<What: ValueEnum + PartialEq + std::fmt::Debug + Send + Sync + 'static> Only<What> {
    /// Whether this is to be measured; says so when it is.
    fn asks_for(&self, what: &What) -> Option<()> {
        (self.named.is_empty() || self.named.contains(what)).then(|| println!("{what:?} …"))
    }

    /// The command that asks for the same.
    fn repeat(&self, mut command: String) -> String {
        for what in self.named.iter().filter_map(ValueEnum::to_possible_value) {
            command.push_str(&format!(" --only {}", what.get_name()));
        }
        command
    }
}

/// Whether everything that was counted came out as it must.
pub(crate) fn run(root: &Path, bench: &Bench) -> Result<bool> {
    match bench {
        Bench::Native(args) => native(root, args),
        Bench::Gateway(args) => gateway::run(root, args).map(|()| true),
        Bench::Backends(args) => backends::run(root, args),
        Bench::Dispatch(args) => dispatch::run(root, args).map(|()| true),
        Bench::Sandboxes(args) => sandboxes::run(root, args),
    }
}

fn native(root: &Path, args: &NativeArgs) -> Result<bool> {
    let stand = Stand::set_up(root, "native", &stand::FOR_NATIVE)?;
    let measure = |what: What| args.only.asks_for(&what);
    let findings = Findings {
        facts: report::Facts::of(&stand, args.command())?,
        launch: measure(What::Launch).map(|()| launch::measure(&stand, args.runs)).transpose()?,
        tree: measure(What::Tree).map(|()| tree::measure(&stand, args.runs)).transpose()?,
        idle: measure(What::Idle).map(|()| idle::measure(&stand)).transpose()?,
        crowd: measure(What::Crowd).map(|()| crowd::measure(&stand)).transpose()?,
        growth: measure(What::Growth).map(|()| growth::measure(&stand, args.sequence())).transpose()?,
    };
    let table = findings.markdown();
    println!("\n{table}");
    write(&root.join(&args.out), "native.md", &table)?;
    if let Some(rows) = &findings.launch {
        write(&root.join(&args.out), "native.svg", &chart::svg("Launch to exit of true", rows))?;
    }
    Ok(findings.hold())
}

fn write(directory: &Path, name: &str, text: &str) -> Result<()> {
    let path = directory.join(name);
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(&path, text))
        .with_context(|| path.display().to_string())?;
    println!("written: {}", path.display());
    Ok(())
}
