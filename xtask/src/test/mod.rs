//! `cargo xtask test`: from a Rust toolchain and a Debian base to every test passed, in one command.
//! Nothing is skipped: what is missing is installed, and what cannot be installed is a failure.

mod cgroup_v2;
mod fuzz;
mod oracles;
mod packages;
mod readme;
mod release;
mod runsc;
mod suite;
mod tools;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

use crate::run::Invocation;
use crate::{generate, tidy};

/// In the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    Packages,
    Oracles,
    Fmt,
    Clippy,
    Scripts,
    Tidy,
    Build,
    Gen,
    Proof,
    Api,
    Clients,
    #[value(name = "unit+integration")]
    UnitIntegration,
    CgroupV2,
    Doc,
    Fuzz,
    Readme,
}

impl Part {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn purpose(self) -> &'static str {
        match self {
            Part::Packages => "Debian packages and the agent that the tests call are installed",
            Part::Fmt => "the code is formatted",
            Part::Clippy => "no lint of the workspace is broken",
            Part::Scripts => "shellcheck has nothing to say about the scripts",
            Part::Tidy => "no rule of the house is broken",
            Part::Build => "the release builds",
            Part::Gen => "generated files are what would be generated",
            Part::Oracles => "programs that are not ours agree with our files",
            Part::Proof => {
                "programs that are not ours accept what we signed, open what we sealed, and nothing else"
            }
            Part::Api => "a fuzzer that is not ours finds no answer that the API's document does not have",
            Part::Clients => {
                "an MCP client that is not ours, and our Python client, use sandboxes of a real pond"
            }
            Part::UnitIntegration => "every unit and integration test passes",
            Part::CgroupV2 => "the limits hold on an emulated machine with control groups v2 only",
            Part::Doc => "the documentation builds and its examples pass",
            Part::Fuzz => "every fuzz target survives a short run",
            Part::Readme => "the first command of the README works as written",
        }
    }

    fn run(self, shop: &Shop) -> Result<()> {
        match self {
            Part::Packages => packages::install(shop),
            Part::Fmt => {
                shop.step(shop.command(&["cargo", "fmt", "--all", "--check", "--", "--color=never"]))
            }
            Part::Clippy => shop.step(shop.command(&[
                "cargo",
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ])),
            Part::Scripts => shop.step(shop.command(&[&SHELLCHECK[..], &SCRIPTS].concat())),
            Part::Tidy => {
                ensure!(tidy::check(&shop.root)?, "repeat with `cargo xtask tidy`");
                Ok(())
            }
            // As the README and every part after this one build it: with the workspace's other members pond has other features,
            // and is compiled again.
            Part::Build => shop.step(shop.command(&["cargo", "build", "--release", "--package", "pond"])),
            Part::Gen => {
                ensure!(generate::run(&shop.root, true)?, "repeat with `cargo xtask gen --check`");
                Ok(())
            }
            Part::Oracles => oracles::run(shop),
            Part::Proof => oracles::proof(shop).and_then(|()| oracles::sealed(shop)),
            Part::Api => oracles::api(shop),
            Part::Clients => oracles::clients(shop),
            Part::UnitIntegration => suite::run(shop),
            Part::CgroupV2 => cgroup_v2::run(shop),
            Part::Doc => doc(shop),
            Part::Fuzz => fuzz::run(shop),
            Part::Readme => readme::run(shop),
        }
    }
}

/// With what a script sources.
const SHELLCHECK: [&str; 3] = ["shellcheck", "--external-sources", "--check-sourced"];
const SCRIPTS: [&str; 3] = [".ci/run", "deploy/gvisor-worker.sh", "deploy/kata-worker.sh"];

/// Where a part works and where its output is kept.
struct Shop {
    root: PathBuf,
    /// Everything installed for tests, and every log; below the ignored `target`.
    target: PathBuf,
    log: PathBuf,
}

impl Shop {
    fn open(root: &Path, part: Part) -> Result<Self> {
        let target = root.join("target");
        let logs = target.join("xtask");
        fs::create_dir_all(&logs)?;
        let log = logs.join(format!("{}.log", part.name()));
        fs::write(&log, "")?;
        Ok(Self { root: root.to_owned(), target, log })
    }

    fn command(&self, words: &[&str]) -> Invocation {
        Invocation::new(&self.root, words)
    }

    fn step(&self, command: Invocation) -> Result<()> {
        command.logged(&self.log)
    }
}

struct Outcome {
    part: Part,
    took: Duration,
    failure: Option<anyhow::Error>,
}

/// gVisor as the tests have it, for whoever measures it.
pub(crate) fn gvisor(root: &Path, log: &Path) -> Result<PathBuf> {
    runsc::fetch(&Shop { root: root.to_owned(), target: root.join("target"), log: log.to_owned() })
}

/// The chaos suite, longer than the tests have it; whether nothing was violated.
pub(crate) fn chaos(root: &Path, args: &ChaosArgs) -> Result<bool> {
    let shop = Shop::open(root, Part::UnitIntegration)?;
    let (suite, of) = if args.sandboxes { ("e2e", Some(SANDBOXES)) } else { ("chaos", None) };
    let mut tests = shop.command(&["cargo", "test", "--package", "pond", "--test", suite, "--"]);
    tests = of.iter().fold(tests, |tests, name| tests.arg(name));
    tests = args.only.iter().fold(tests, |tests, name| tests.arg(name));
    let tests = tests.arg("--nocapture").arg("--test-threads=1");
    let rounds = if args.sandboxes { "POND_SANDBOX_ROUNDS" } else { "POND_CHAOS_ROUNDS" };
    let tests = tests.env(rounds, &args.rounds.to_string());
    let tests = args.seed.iter().fold(tests, |tests, seed| tests.env("POND_CHAOS_SEED", &seed.to_string()));
    shop.step(suite::as_root(&shop, tests)?)?;
    println!("{}", fs::read_to_string(&shop.log)?);
    Ok(true)
}

/// Sandboxes that last, made and removed while something of them is killed.
const SANDBOXES: &str = "sandboxes_made_and_removed_under_random_kills_leave_nothing";

#[derive(Debug, Args)]
pub(crate) struct ChaosArgs {
    /// Rounds on each ground: SQLite, Postgres, a small disk
    #[arg(long, default_value_t = 50)]
    rounds: u64,
    /// Sandboxes that last under random kills, in place of the control plane and its workers
    #[arg(long)]
    sandboxes: bool,
    /// What everything follows from; a failure names it
    #[arg(long)]
    seed: Option<u64>,
    /// Only the tests whose names hold this word
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
}

pub(crate) fn list() -> bool {
    for part in Part::value_variants() {
        println!("{:<18}{}", part.name(), part.purpose());
    }
    true
}

/// Runs every part even after a failure, so that one run tells everything; whether all passed.
pub(crate) fn run(root: &Path, only: &[Part]) -> Result<bool> {
    let chosen: Vec<Part> = Part::value_variants()
        .iter()
        .copied()
        .filter(|part| only.is_empty() || only.contains(part))
        .collect();
    let mut outcomes = Vec::new();
    for (part, number) in chosen.iter().copied().zip(1..) {
        println!("[{number}/{}] {}: {}", chosen.len(), part.name(), part.purpose());
        let started = Instant::now();
        let result = Shop::open(root, part).and_then(|shop| part.run(&shop));
        if result.is_err() {
            println!("    FAILED; repeat with `cargo xtask test --only {}`", part.name());
        }
        outcomes.push(Outcome { part, took: started.elapsed(), failure: result.err() });
    }
    println!("\n{}", summary(&outcomes));
    Ok(outcomes.iter().all(|outcome| outcome.failure.is_none()))
}

/// Why parts failed comes last but for the table: whoever sees only the end of a run sees that.
fn summary(outcomes: &[Outcome]) -> String {
    let why = |outcome: &Outcome| {
        outcome.failure.as_ref().map(|error| format!("{} failed: {error:#}\n", outcome.part.name()))
    };
    let row = |outcome: &Outcome| {
        let verdict = if outcome.failure.is_none() { "ok" } else { "FAILED" };
        format!("{:<18}{verdict:<8}{:>8.1} s", outcome.part.name(), outcome.took.as_secs_f64())
    };
    let failed = outcomes.iter().filter(|outcome| outcome.failure.is_some()).count();
    let closing = match failed {
        0 => format!("all {} parts passed", outcomes.len()),
        failed => format!("{failed} of {} parts failed", outcomes.len()),
    };
    outcomes
        .iter()
        .filter_map(why)
        .chain(outcomes.iter().map(row))
        .chain([closing])
        .collect::<Vec<_>>()
        .join("\n")
}

fn doc(shop: &Shop) -> Result<()> {
    let build = shop.command(&["cargo", "doc", "--workspace", "--no-deps", "--document-private-items"]);
    shop.step(build.env("RUSTDOCFLAGS", "-D warnings"))?;
    shop.step(shop.command(&["cargo", "test", "--workspace", "--doc"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_what_failed() {
        let outcome = |part, failure| Outcome { part, took: Duration::from_millis(1500), failure };
        let expected = "clippy failed: a lint\n\nfmt               ok           1.5 s\nclippy            FAILED       1.5 s\n1 of 2 parts failed";
        let failed = outcome(Part::Clippy, Some(anyhow::anyhow!("a lint")));
        assert_eq!(summary(&[outcome(Part::Fmt, None), failed]), expected);
        assert!(summary(&[outcome(Part::Fmt, None)]).ends_with("all 1 parts passed"));
    }

    #[test]
    fn a_part_is_chosen_by_the_name_that_list_shows() {
        for part in Part::value_variants() {
            assert_eq!(Part::from_str(&part.name(), false), Ok(*part));
        }
    }
}
