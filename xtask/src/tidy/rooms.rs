//! No room without a purpose: a name that could hold anything ends up holding everything.

use super::Finding;
use super::tree::Tree;

const RULE: &str = "rooms";
const MEANINGLESS: [&str; 7] = ["common", "core", "helper", "helpers", "misc", "util", "utils"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = tree.texts.iter().filter_map(|text| unnamed_room(&text.path)).collect();
    // A folder is one finding, however many files lie in it.
    findings.dedup_by(|a, b| a.advice == b.advice);
    findings
}

fn unnamed_room(path: &str) -> Option<Finding> {
    let mut walked = Vec::new();
    for part in path.split('/') {
        walked.push(part);
        let stem = part.split('.').next().unwrap_or(part);
        let name = stem.strip_prefix("pond-").unwrap_or(stem);
        if MEANINGLESS.contains(&name) {
            let advice = format!("rename {}: `{name}` says nothing of what belongs in it", walked.join("/"));
            return Some(Finding::new(path, 1, RULE, advice));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_that_could_hold_anything_are_found_once() {
        let tree = Tree::of(&[
            ("base/pond-core/Cargo.toml", ""),
            ("base/pond-core/src/lib.rs", ""),
            ("host/a/utils.rs", ""),
            ("tests/common/mod.rs", ""),
        ]);
        let rooms: Vec<String> = check(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(rooms, ["base/pond-core/Cargo.toml", "host/a/utils.rs", "tests/common/mod.rs"]);
    }

    #[test]
    fn names_with_a_meaning_pass() {
        let tree = Tree::of(&[("a/core_limits.rs", ""), ("docs/commonly-asked.md", ""), ("a/helped.rs", "")]);
        assert_eq!(check(&tree), []);
    }
}
