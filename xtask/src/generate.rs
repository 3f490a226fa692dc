//! Generated files that are checked in, each with the command that prints it.
//! A reader of the repository sees them without building; `--check` keeps them from drifting.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::run::Invocation;
use crate::tidy;

/// File, and the arguments with which `pond` prints it.
const GENERATED: [(&str, &[&str]); 5] = [
    ("docs/schema/run.schema.json", &["policy", "schema"]),
    ("docs/schema/sandbox.schema.json", &["policy", "schema", "sandbox"]),
    ("docs/schema/run-result.v1.schema.json", &["policy", "schema", "run-result"]),
    ("docs/openapi.json", &["openapi"]),
    ("docs/settings.md", &["policy", "settings"]),
];

/// Whether every file now holds what would be generated.
pub(crate) fn run(root: &Path, check: bool) -> Result<bool> {
    let (path, wanted) = tidy::cases(root)?;
    let mut current = hold(root, path, &wanted, "the tests", check)?;
    for (path, args) in GENERATED {
        let mut print =
            Invocation::new(root, &["cargo", "run", "--quiet", "--release", "--package", "pond", "--"]);
        for arg in args {
            print = print.arg(arg);
        }
        let wanted = print.capture()?;
        current &= hold(root, path, &wanted, &format!("`{print}`"), check)?;
    }
    Ok(current)
}

/// Whether the file holds this, or could be made to.
fn hold(root: &Path, path: &str, wanted: &str, from: &str, check: bool) -> Result<bool> {
    let file = root.join(path);
    if fs::read_to_string(&file).is_ok_and(|held| held == wanted) {
        return Ok(true);
    }
    if check {
        println!("{path}:1: gen: differs from {from}; run `cargo xtask gen` and commit the result");
        return Ok(false);
    }
    let folder = file.parent().context("a generated file lies in a folder")?;
    fs::create_dir_all(folder)?;
    fs::write(&file, wanted)?;
    println!("{path}: written");
    Ok(true)
}
