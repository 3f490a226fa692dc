//! A short run of every fuzz target, so that a parser that panics on garbage does not pass.

use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::{Shop, tools};
use crate::run;

const SECONDS_EACH: u32 = 5;

#[derive(Deserialize)]
struct Manifest {
    bin: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

pub(super) fn run(shop: &Shop) -> Result<()> {
    let manifest = fs::read_to_string(shop.root.join("fuzz/Cargo.toml")).context("fuzz/Cargo.toml")?;
    let targets = targets(&manifest)?;
    tools::FUZZ.ensure(shop)?;
    // All at once: one after the other, every target would be compiled and linked on one core.
    shop.step(shop.command(&["cargo", "fuzz", "build", "--sanitizer", "none"]))?;
    let built = shop.root.join("fuzz/target").join(run::host_triple(&shop.root)?).join("release");
    let next = AtomicUsize::new(0);
    let hand = || {
        while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
            fuzz(shop, &built, target)?;
        }
        Ok(())
    };
    // A target keeps one core busy.
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        let hands: Vec<_> = (0..cores).map(|_| scope.spawn(hand)).collect();
        hands.into_iter().try_for_each(|hand| hand.join().unwrap_or_else(|_| bail!("a run ended badly")))
    })
}

fn fuzz(shop: &Shop, built: &Path, target: &str) -> Result<()> {
    // What a run discovers goes to the first folder, which git ignores; the seeds stay as they are.
    let (corpus, seeds) = (format!("fuzz/corpus/{target}"), format!("fuzz/seeds/{target}"));
    let found = format!("fuzz/artifacts/{target}/");
    for directory in [&corpus, &found] {
        fs::create_dir_all(shop.root.join(directory))?;
    }
    let (time, found) = (format!("-max_total_time={SECONDS_EACH}"), format!("-artifact_prefix={found}"));
    // Without a sanitizer the stable toolchain is enough, and the parsers are safe code.
    let run = shop.command(&[&*built.join(target).to_string_lossy(), &time, &found, &corpus, &seeds]);
    // Its own log: what several say at once is nobody's.
    run.logged(&shop.log.with_file_name(format!("fuzz-{target}.log")))
        .with_context(|| format!("repeat with `cargo fuzz run --sanitizer none {target}`"))
}

fn targets(manifest: &str) -> Result<Vec<String>> {
    let manifest: Manifest = toml::from_str(manifest).context("fuzz/Cargo.toml names no targets")?;
    ensure!(!manifest.bin.is_empty(), "fuzz/Cargo.toml names no targets");
    Ok(manifest.bin.into_iter().map(|target| target.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_run_and_none_is_a_failure() {
        let manifest =
            "[package]\nname = \"fuzz\"\n[[bin]]\nname = \"a\"\npath = \"a.rs\"\n[[bin]]\nname = \"b\"\n";
        assert_eq!(targets(manifest).unwrap(), ["a", "b"]);
        for empty in ["[package]\nname = \"fuzz\"\n", "bin = []\n"] {
            assert_eq!(targets(empty).unwrap_err().to_string(), "fuzz/Cargo.toml names no targets");
        }
    }
}
