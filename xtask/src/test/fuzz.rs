//! A short run of every fuzz target, so that a parser that panics on garbage does not pass.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::{Shop, tools};

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
    targets.iter().try_for_each(|target| fuzz(shop, target))
}

fn fuzz(shop: &Shop, target: &str) -> Result<()> {
    // What a run discovers goes to the first folder, which git ignores; the seeds stay as they are.
    let (corpus, seeds) = (format!("fuzz/corpus/{target}"), format!("fuzz/seeds/{target}"));
    fs::create_dir_all(shop.root.join(&corpus))?;
    let time = format!("-max_total_time={SECONDS_EACH}");
    // Without a sanitizer the stable toolchain is enough, and the parsers are safe code.
    let run = ["cargo", "fuzz", "run", "--sanitizer", "none", target, &corpus, &seeds, "--", &time];
    shop.step(shop.command(&run))
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
