//! Independent programs that judge our files, in throwaway environments below `target/oracles`.
//! An oracle shares no code with pond, so a mistake has to be made twice to pass.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::Shop;

/// From PyPI, at versions that were seen to work.
const PYPI: [&str; 9] = [
    "cryptography==50.0.2",
    "in-toto-attestation==0.9.3",
    "jsonschema==4.26.0",
    "mcp==2.3.0",
    "pycryptodome==4.4.0",
    "pyhpke==0.6.5",
    "PyYAML==6.0.3",
    "schemathesis==4.32.5",
    "securesystemslib==1.6.0",
];
/// From npm, likewise.
const NPM: [&str; 2] = ["@sigstore/bundle@5.0.0", "@sigstore/verify@4.1.2"];

/// Judges of the repository's own files, run from its root.
const JUDGES: [&str; 1] = ["xtask/oracles/run_schema.py"];

pub(super) fn run(shop: &Shop) -> Result<()> {
    let python = python(shop)?;
    JUDGES.iter().try_for_each(|judge| shop.step(shop.command(&[&python, judge])))
}

/// Runs pond once, and has verifiers that are not ours judge what it signed.
pub(super) fn proof(shop: &Shop) -> Result<()> {
    let python = python(shop)?;
    let modules = shop.target.join("oracles/npm");
    fs::create_dir_all(&modules)?;
    let npm = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"];
    shop.step(shop.command(&[&npm[..], &[&modules.to_string_lossy()], &NPM[..]].concat()))?;

    let place = shop.target.join("oracles/proof");
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    fs::create_dir_all(place.join("project"))?;
    let (out, key) = (place.join("out"), place.join("key.pem"));
    let pond = |words: &[&str]| {
        let cargo = ["cargo", "run", "--quiet", "--release", "--package", "pond", "--"];
        let state = place.join("state");
        shop.command(&[&cargo, words].concat()).env("POND_STATE_DIR", &state.to_string_lossy())
    };
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (project, results) = (text(&place.join("project")), text(&out));
    let script = "echo out; echo err >&2; echo made > made";
    shop.step(pond(&["run", "--checkout", &project, "--out", &results, "--", "sh", "-c", script]))?;
    let shown = pond(&["key", "show"]).capture()?;
    let pem = shown.find("-----BEGIN").and_then(|start| shown.get(start..)).unwrap_or_default();
    fs::write(&key, pem)?;
    shop.step(pond(&["verify", &results, "--key", &text(&key)]))?;
    shop.step(shop.command(&[&python, "xtask/oracles/statement.py", &results, &text(&key)]))?;
    let judge = "xtask/oracles/statement.mjs";
    shop.step(shop.command(&["node", judge, &text(&modules), &results, &text(&key)]))
}

/// Has libraries that are not ours open what pond sealed, and pond open what they sealed.
pub(super) fn sealed(shop: &Shop) -> Result<()> {
    let python = python(shop)?;
    let place = shop.target.join("oracles/sealed");
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    fs::create_dir_all(&place)?;
    let place = place.to_string_lossy();
    let cargo =
        ["cargo", "run", "--quiet", "--release", "--package", "pond", "--example", "seal_oracle", "--"];
    let ours = |act: &str| shop.step(shop.command(&[&cargo[..], &[act, &place]].concat()));
    ours("make")?;
    for key in ["signing.pem", "opening.pem"] {
        let file = format!("{place}/{key}");
        shop.step(shop.command(&["openssl", "pkey", "-noout", "-in", &file]))?;
    }
    shop.step(shop.command(&[&python, "xtask/oracles/sealed.py", &place]))?;
    ours("open")
}

/// Has a fuzzer that is not ours try the API as its document describes it, and otherwise.
pub(super) fn api(shop: &Shop) -> Result<()> {
    let python = python(shop)?;
    let place = shop.target.join("oracles/api");
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    fs::create_dir_all(&place)?;
    let place = place.to_string_lossy();
    let pond = ["cargo", "run", "--quiet", "--release", "--package", "pond", "--"];
    shop.step(shop.command(&[&[python.as_str(), "xtask/oracles/api.py", &place][..], &pond].concat()))
}

/// Has clients use the sandboxes of a real `pond up`: the MCP client of PyPI, and our own for Python, which is held to the API's
/// document first.
pub(super) fn clients(shop: &Shop) -> Result<()> {
    let python = python(shop)?;
    let unit =
        shop.command(&[&python, "-m", "unittest", "discover", "--start-directory", "clients/python/tests"]);
    shop.step(unit.env("PYTHONPATH", &shop.root.join("clients/python").to_string_lossy()))?;
    let place = shop.target.join("oracles/clients");
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    fs::create_dir_all(&place)?;
    let place = place.to_string_lossy();
    let install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--force-reinstall",
        "./clients/python",
    ];
    shop.step(shop.command(&[&[python.as_str()][..], &install].concat()))?;
    let pond = ["cargo", "run", "--quiet", "--release", "--package", "pond", "--"];
    shop.step(shop.command(&[&[python.as_str(), "xtask/oracles/clients.py", &place][..], &pond].concat()))
}

/// The interpreter of an environment that has every package.
fn python(shop: &Shop) -> Result<String> {
    let environment = shop.target.join("oracles/pypi");
    let folder = environment.to_string_lossy();
    let python = format!("{folder}/bin/python");
    if shop.command(&[&python, "-m", "pip", "--version"]).capture().is_err() {
        shop.step(shop.command(&["python3", "-m", "venv", "--clear", &folder]))?;
    }
    let pip = [&python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    shop.step(shop.command(&[&pip[..], &PYPI[..]].concat()))?;
    Ok(python)
}
