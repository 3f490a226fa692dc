//! Documents pinned to the code they describe. A document carries, on a line of its own,
//! `<!-- pin: path/to/file.rs#function sha256:HEX -->` (or no `#function`, for the whole file);
//! once the code's tokens change, the hash no longer fits and someone has to read the document again.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::Result;
use sha2::{Digest, Sha256};

use super::Finding;
use super::tree::{Text, Tree};

const RULE: &str = "pins";
const OPEN: &str = "<!-- pin:";

struct Pin<'a> {
    path: &'a str,
    function: Option<&'a str>,
    hash: &'a str,
}

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    documents(tree).flat_map(|document| findings(tree, document)).collect()
}

/// Rewrites every hash that no longer fits.
pub(crate) fn bless(root: &Path, tree: &Tree) -> Result<()> {
    for document in documents(tree) {
        let blessed = blessed(tree, &document.body);
        if blessed != document.body {
            fs::write(root.join(&document.path), blessed)?;
            println!("{}: pins renewed", document.path);
        }
    }
    Ok(())
}

fn documents(tree: &Tree) -> impl Iterator<Item = &Text> {
    tree.texts.iter().filter(|text| text.path.ends_with(".md"))
}

fn findings(tree: &Tree, document: &Text) -> Vec<Finding> {
    let pinned = document.body.lines().zip(1..).filter(|(line, _)| line.trim_start().starts_with(OPEN));
    let faults = pinned.filter_map(|(line, number)| {
        let advice = match Pin::parse(line) {
            None => "write a pin as `<!-- pin: path#function sha256:HEX -->`".to_owned(),
            Some(pin) => match pin.actual(tree) {
                Err(advice) => advice,
                Ok(actual) if actual == pin.hash => return None,
                Ok(_) => "the code this describes has changed: read both again, correct this document, \
                          then run `cargo xtask tidy --bless-pins`"
                    .to_owned(),
            },
        };
        Some(Finding::new(&document.path, number, RULE, advice))
    });
    faults.collect()
}

fn blessed(tree: &Tree, body: &str) -> String {
    let lines = body.split_inclusive('\n').map(|line| {
        let renewed = Pin::parse(line).and_then(|pin| Some(line.replace(pin.hash, &pin.actual(tree).ok()?)));
        renewed.unwrap_or_else(|| line.to_owned())
    });
    lines.collect()
}

impl<'a> Pin<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let inner = line.trim().strip_prefix(OPEN)?.strip_suffix("-->")?;
        let (target, hash) = inner.trim().split_once(" sha256:")?;
        let (path, function) = match target.split_once('#') {
            Some((path, function)) => (path, Some(function)),
            None => (target, None),
        };
        let whole = !hash.is_empty() && !hash.contains(char::is_whitespace);
        whole.then_some(Self { path, function, hash })
    }

    /// The hash as the tree stands, or what is wrong with the pin.
    fn actual(&self, tree: &Tree) -> Result<String, String> {
        let source = tree.sources.iter().find(|source| source.path == self.path);
        let text = match (source, self.function) {
            (Some(source), Some(wanted)) => {
                let suffix = format!("::{wanted}");
                let is_wanted = |name: &str| name == wanted || name.ends_with(&suffix);
                let mut matching = source.functions.iter().filter(|function| is_wanted(&function.name));
                match (matching.next(), matching.next()) {
                    (Some(only), None) => format!("{} {}", only.signature, only.body),
                    (None, _) => return Err(format!("{} has no function `{wanted}`", self.path)),
                    (Some(_), Some(_)) => {
                        return Err(format!(
                            "{} has several functions `{wanted}`; write Type::{wanted}",
                            self.path
                        ));
                    }
                }
            }
            (Some(source), None) => source.tokens.to_string(),
            (None, Some(_)) => return Err(format!("{} is not a Rust file of this tree", self.path)),
            (None, None) => match tree.text(self.path) {
                Some(text) => text.body.clone(),
                None => return Err(format!("{} is not a file of this tree", self.path)),
            },
        };
        Ok(hex(&text))
    }
}

fn hex(text: &str) -> String {
    Sha256::digest(text).iter().fold(String::new(), |mut hex, byte| {
        // Writing to a String cannot fail.
        write!(hex, "{byte:02x}").unwrap_or_default();
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "struct A;\nimpl A {\n    fn enter() { one(); }\n}\nstruct B;\nimpl B {\n    fn enter() {}\n    fn leave() {}\n}\n";

    fn advice(document: &str, code: &str) -> Vec<(usize, String)> {
        let tree = Tree::of(&[("T.md", document), ("src/a.rs", code), ("data.txt", "one")]);
        check(&tree).into_iter().map(|finding| (finding.line, finding.advice)).collect()
    }

    fn blessed_document(document: &str) -> String {
        blessed(&Tree::of(&[("src/a.rs", CODE), ("data.txt", "one")]), document)
    }

    #[test]
    fn a_blessed_pin_holds_until_the_code_changes() {
        for target in ["src/a.rs#A::enter", "src/a.rs"] {
            let pinned = blessed_document(&format!("# T\n<!-- pin: {target} sha256:0 -->\nprose\n"));
            assert_eq!(advice(&pinned, CODE), []);
            assert_eq!(advice(&pinned, &CODE.replace("one();", "/* why */ one( );")), []);
            let changed = advice(&pinned, &CODE.replace("one();", "two();"));
            assert!(
                changed.len() == 1 && changed[0].0 == 2 && changed[0].1.contains("--bless-pins"),
                "{changed:?}"
            );
        }
    }

    #[test]
    fn a_change_elsewhere_leaves_a_function_pin_alone() {
        let pinned = blessed_document("<!-- pin: src/a.rs#leave sha256:0 -->\n");
        assert_eq!(advice(&pinned, &CODE.replace("one();", "two();")), []);
    }

    #[test]
    fn a_pin_to_nothing_or_to_too_much_is_a_finding() {
        let cases = [
            ("<!-- pin: src/a.rs#gone sha256:0 -->", "src/a.rs has no function `gone`"),
            (
                "<!-- pin: src/a.rs#enter sha256:0 -->",
                "src/a.rs has several functions `enter`; write Type::enter",
            ),
            ("<!-- pin: src/gone.rs#f sha256:0 -->", "src/gone.rs is not a Rust file of this tree"),
            ("<!-- pin: gone.txt sha256:0 -->", "gone.txt is not a file of this tree"),
            ("<!-- pin: src/a.rs -->", "write a pin as `<!-- pin: path#function sha256:HEX -->`"),
        ];
        for (document, expected) in cases {
            assert_eq!(advice(document, CODE), [(1, expected.to_owned())]);
        }
    }

    #[test]
    fn hashes_are_plain_sha256() {
        let expected = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
        assert_eq!(
            blessed_document("<!-- pin: data.txt sha256:0 -->"),
            format!("<!-- pin: data.txt sha256:{expected} -->")
        );
    }
}
