//! `cargo xtask bench dispatch`: what the store does a second, printed. The instrument is `benches/dispatch.rs`.

use std::fs;
use std::path::Path;

use anyhow::Result;
use clap::Args;

use crate::debian;
use crate::run::Invocation;

#[derive(Debug, Args)]
pub(crate) struct DispatchArgs {
    /// Jobs to dispatch on each engine
    #[arg(long, default_value_t = 4000)]
    jobs: u32,
    /// Workers that claim at once
    #[arg(long, default_value_t = 8)]
    workers: u32,
    /// Jobs a worker asks for at once
    #[arg(long, default_value_t = 1)]
    batch: u32,
}

pub(super) fn run(root: &Path, args: &DispatchArgs) -> Result<()> {
    let logs = root.join("target/xtask");
    fs::create_dir_all(&logs)?;
    debian::install(root, &logs.join("bench-dispatch.log"), &[("postgresql", "the second engine")])?;
    let words =
        ["cargo", "run", "--quiet", "--release", "--package", "pond-control", "--example", "dispatch", "--"];
    let load = [args.jobs, args.workers, args.batch].map(|number| number.to_string());
    let measured =
        load.iter().fold(Invocation::new(root, &words), |command, number| command.arg(number)).capture()?;
    print!("{measured}");
    Ok(())
}
