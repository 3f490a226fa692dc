//! The rules of the house that neither the compiler nor clippy can keep, one file each.
//! A rule is a pure function from the tree to its findings; nothing here changes a file except blessing pins.

mod cases;
mod codes;
mod deny;
mod docs;
mod edges;
mod fence;
mod functions;
mod length;
mod manifests;
mod packages;
mod paths;
mod pins;
mod promises;
mod reach;
mod rooms;
mod tree;
mod twins;
mod words;

use std::fmt;
use std::path::Path;

use anyhow::Result;

use tree::Tree;

const RULES: [fn(&Tree) -> Vec<Finding>; 16] = [
    edges::check,
    manifests::check,
    deny::bans::check,
    deny::licences::check,
    deny::origins::check,
    length::check,
    docs::check,
    twins::check,
    fence::check,
    reach::check,
    pins::check,
    words::check,
    rooms::check,
    cases::check,
    codes::check,
    promises::check,
];

/// One broken rule, shown as `path:line: rule: what to do`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    rule: &'static str,
    advice: String,
}

impl Finding {
    fn new(path: &str, line: usize, rule: &'static str, advice: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule, advice: advice.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.advice)
    }
}

/// Prints every finding; whether there were none.
pub(crate) fn check(root: &Path) -> Result<bool> {
    let tree = Tree::load(root)?;
    let mut findings = tree.unparsed.clone();
    findings.extend(RULES.iter().flat_map(|rule| rule(&tree)));
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    println!(
        "tidy: {} findings; {} Rust files, {} of them over {} lines; {} crates in more than one version",
        findings.len(),
        tree.sources.len(),
        length::long_files(&tree),
        length::LONG_FILE,
        deny::bans::duplicates(&tree).len(),
    );
    Ok(findings.is_empty())
}

/// The table of egress cases: its place and what it should say.
pub(crate) fn cases(root: &Path) -> Result<(&'static str, String)> {
    Ok((cases::TABLE, cases::table(&Tree::load(root)?)))
}

pub(crate) fn bless_pins(root: &Path) -> Result<bool> {
    pins::bless(root, &Tree::load(root)?)?;
    check(root)
}
