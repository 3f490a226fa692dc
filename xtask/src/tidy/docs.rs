//! Every Rust file opens with a paragraph that says what it is for.

use super::Finding;
use super::tree::Tree;

const RULE: &str = "docs";
const MIN_CHARS: usize = 20;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let silent = tree.sources.iter().filter(|source| opening(&source.body).chars().count() < MIN_CHARS);
    let advice = "open the file with a `//!` paragraph: its purpose, trust zone and invariants";
    silent.map(|source| Finding::new(&source.path, 1, RULE, advice)).collect()
}

fn opening(body: &str) -> String {
    let lines = body.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    lines.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn a_paragraph_at_the_top_passes() {
        assert_eq!(
            silent(&[("a.rs", "//! Says what the file\n//! is for.\n\nfn f() {}\n")]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn none_a_late_one_or_a_token_one_does_not() {
        let late = "use std::fs;\n//! Says what the file is for.\n";
        let files = [
            ("a.rs", "fn f() {}\n"),
            ("b.rs", "//! Docs.\n"),
            ("d.rs", "// A comment is not documentation.\n"),
        ];
        assert_eq!(silent(&files), ["a.rs", "b.rs", "d.rs"]);
        assert_eq!(opening(late), "");
    }
}
