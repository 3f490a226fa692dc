//! Independent programs that judge our files, in throwaway environments below `target/oracles`.
//! An oracle shares no code with pond, so a mistake has to be made twice to pass.

use anyhow::Result;

use super::Shop;

/// From PyPI, at versions that were seen to work.
const PYPI: [&str; 2] = ["jsonschema==4.26.0", "PyYAML==6.0.3"];

/// Scripts, run from the repository root.
const JUDGES: [&str; 1] = ["xtask/oracles/run_schema.py"];

pub(super) fn run(shop: &Shop) -> Result<()> {
    let environment = shop.target.join("oracles/pypi");
    let folder = environment.to_string_lossy();
    let python = format!("{folder}/bin/python");
    if shop.command(&[&python, "-m", "pip", "--version"]).capture().is_err() {
        shop.step(shop.command(&["python3", "-m", "venv", "--clear", &folder]))?;
    }
    let pip = [&python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    shop.step(shop.command(&[&pip[..], &PYPI[..]].concat()))?;
    JUDGES.iter().try_for_each(|judge| shop.step(shop.command(&[&python, judge])))
}
