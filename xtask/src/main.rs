//! The workshop: every check, test and generated file of the repository behind `cargo xtask`.
//! Runs on a developer's or a CI machine, on trusted input only, and is never shipped.

#![forbid(unsafe_code)]

mod bench;
mod debian;
mod generate;
mod run;
mod test;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Checks, tests and generated files")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check the rules of the house that the compiler and clippy cannot keep
    Tidy {
        /// Rewrite the hashes of pinned documents, after re-reading those documents
        #[arg(long)]
        bless_pins: bool,
    },
    /// Install what the tests need and run them all
    Test {
        /// Run only this part (may be given several times)
        #[arg(long, value_name = "PART")]
        only: Vec<test::Part>,
        /// Name the parts and stop
        #[arg(long)]
        list: bool,
    },
    /// Kill, stop, cut off and fill up a whole site at random, and see that it holds (as root)
    Chaos(test::ChaosArgs),
    /// Measure, on a quiet machine
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Regenerate the generated files that are checked in
    Gen {
        /// Change nothing; fail if a file differs from what would be generated
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    match Cli::parse().command.run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Command {
    /// Whether everything that was asked for holds.
    fn run(self) -> Result<bool> {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace root")?;
        match self {
            Command::Tidy { bless_pins: true } => tidy::bless_pins(root),
            Command::Tidy { bless_pins: false } => tidy::check(root),
            Command::Test { list: true, .. } => Ok(test::list()),
            Command::Test { only, list: false } => test::run(root, &only),
            Command::Chaos(args) => test::chaos(root, &args),
            Command::Bench(bench) => bench::run(root, &bench),
            Command::Gen { check } => generate::run(root, check),
        }
    }
}
