//! The promises of THREAT-MODEL.md: a test that one of them names exists, and so does a file. A promise whose test was renamed or
//! removed is a promise that nobody keeps.

use super::Finding;
use super::tree::Tree;

const RULE: &str = "promises";
const DOCUMENT: &str = "THREAT-MODEL.md";
/// Names of tests are sentences; shorter words in code are something else.
const WORDS: usize = 4;
/// The column that says who keeps a promise.
const KEPT_BY: &str = "held by";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(document) = tree.text(DOCUMENT) else { return Vec::new() };
    let mut findings = Vec::new();
    let mut in_table = false;
    for (line, number) in document.body.lines().zip(1..) {
        let mut find = |advice: String| findings.push(Finding::new(DOCUMENT, number, RULE, advice));
        for quoted in quoted(line) {
            if is_test(quoted) && !is_known(tree, quoted) {
                find(format!("no function is called `{quoted}`: name the test that keeps this"));
            }
            if is_file(quoted) && !tree.texts.iter().any(|text| text.path.ends_with(quoted)) {
                find(format!("there is no {quoted}: name the file that keeps this"));
            }
        }
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let last = cells.last().copied().unwrap_or_default();
        in_table = line.starts_with('|') && (in_table || last == KEPT_BY);
        let is_row = in_table && last != KEPT_BY && !last.starts_with("---");
        if is_row && quoted(last).next().is_none() {
            find("a promise without a test: name what keeps it".to_owned());
        }
    }
    findings
}

/// In the text of the sources: some tests are made by macros.
fn is_known(tree: &Tree, name: &str) -> bool {
    let signature = format!("fn {name}(");
    tree.sources.iter().any(|source| source.body.contains(&signature))
}

/// What stands between backquotes.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_test(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.bytes().all(plain) && name.split('_').filter(|word| !word.is_empty()).count() >= WORDS
}

fn is_file(name: &str) -> bool {
    name.contains('/') && name.ends_with(".rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advices(document: &str) -> Vec<(usize, String)> {
        let tree = Tree::of(&[
            (DOCUMENT, document),
            ("a/tests/x.rs", "//! Tests.\n#[test]\nfn what_is_promised_is_kept() {}\n"),
        ]);
        check(&tree).into_iter().map(|finding| (finding.line, finding.advice)).collect()
    }

    #[test]
    fn a_promise_names_what_exists() {
        let good = "| layer | held by |\n|---|---|\n| x | `what_is_promised_is_kept`, `a/tests/x.rs`, `/tmp`, `io_uring` |\n";
        assert_eq!(advices(good), []);
        let gone = good.replace("_kept`", "_not_kept`").replace("x.rs", "y.rs");
        let numbers: Vec<usize> = advices(&gone).into_iter().map(|(line, _)| line).collect();
        assert_eq!(numbers, [3, 3]);
    }

    #[test]
    fn a_promise_without_a_test_is_found() {
        let empty =
            "| layer | held by |\n|---|---|\n| x | we are careful |\n\n| a | b |\n|---|---|\n| c | d |\n";
        assert_eq!(advices(empty), [(3, "a promise without a test: name what keeps it".to_owned())]);
    }
}
