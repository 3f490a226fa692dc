//! Words that mark unfinished work, and paths of the machine a file happened to be written on.
//! The list is spelled in pieces, or this file would be its own first finding.

use super::Finding;
use super::tree::Tree;

const RULE: &str = "words";
const UNFINISHED: &str = "finish it, or open an issue and leave no trace here";
const STOPGAP: &str = "say what holds and why, not until when";
const MACHINE: &str = "name no path of one machine";

/// Compared at word boundaries.
const BANNED: [(&str, &str); 8] = [
    (concat!("TO", "DO"), UNFINISHED),
    (concat!("FIX", "ME"), UNFINISHED),
    (concat!("XX", "X"), UNFINISHED),
    (concat!("to", "do!"), UNFINISHED),
    (concat!("for ", "now"), STOPGAP),
    (concat!("For ", "now"), STOPGAP),
    (concat!("/wo", "rk/"), MACHINE),
    (concat!("/fa", "rm/"), MACHINE),
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for text in &tree.texts {
        for (line, number) in text.body.lines().zip(1..) {
            for (word, advice) in BANNED.iter().filter(|(word, _)| contains_word(line, word)) {
                findings.push(Finding::new(&text.path, number, RULE, format!("`{word}`: {advice}")));
            }
        }
    }
    findings
}

fn contains_word(line: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(start, _)| {
        let before = line.get(..start).and_then(|text| text.chars().next_back());
        let after = line.get(start + word.len()..).and_then(|text| text.chars().next());
        let ends_open = word.ends_with(['/', '!']);
        !is_part(before) && (ends_open || !is_part(after))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_banned_word_is_found() {
        for (word, advice) in BANNED {
            let text = format!("first\nso, {word}: later\n");
            let expected = Finding::new("a.md", 2, RULE, format!("`{word}`: {advice}"));
            assert_eq!(check(&Tree::of(&[("a.md", &text)])), [expected]);
        }
    }

    #[test]
    fn punctuation_does_not_hide_a_word() {
        for text in
            [concat!("// TO", "DO later"), concat!("to", "do!()"), concat!("good enough for ", "now.")]
        {
            assert_eq!(check(&Tree::of(&[("a.md", text)])).len(), 1, "{text}");
        }
    }

    #[test]
    fn longer_words_and_other_paths_pass() {
        let text =
            concat!("mktemp a.XXXX", "XX\nfor ", "nowhere\n/home/me/wo", "rk/\nTO", "DOS\nto", "do = 1\n");
        assert_eq!(check(&Tree::of(&[("a.md", text)])), []);
    }
}
