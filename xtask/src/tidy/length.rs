//! How long a file and a function may grow. Appending is the cheapest edit, so the limit has to be a failure.

use super::Finding;
use super::functions::Function;
use super::tree::{Source, Tree};

const RULE: &str = "length";
const MAX_FILE: usize = 600;
const MAX_FUNCTION: usize = 80;
/// Above this a file is only counted.
pub(crate) const LONG_FILE: usize = 300;

/// On the line above a function: one irreversible sequence, better read whole than in pieces.
const EXEMPT: &str = "// tidy: privileged sequence";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.sources.iter().flat_map(|source| file(source).into_iter().chain(functions(source))).collect()
}

pub(crate) fn long_files(tree: &Tree) -> usize {
    tree.sources.iter().filter(|source| lines(source) > LONG_FILE).count()
}

fn file(source: &Source) -> Option<Finding> {
    let advice = format!("{} lines, at most {MAX_FILE} are allowed; split it by purpose", lines(source));
    (lines(source) > MAX_FILE).then(|| Finding::new(&source.path, 1, RULE, advice))
}

fn functions(source: &Source) -> impl Iterator<Item = Finding> {
    let too_long = source.functions.iter().filter(|function| function.lines > MAX_FUNCTION);
    too_long.filter(|function| !is_exempt(source, function)).map(|function| {
        let advice =
            format!("`{}` has {} lines, at most {MAX_FUNCTION} are allowed", function.name, function.lines);
        Finding::new(&source.path, function.line, RULE, advice)
    })
}

fn is_exempt(source: &Source, function: &Function) -> bool {
    let marked = |line: usize| {
        let above = line.checked_sub(2).and_then(|index| source.body.lines().nth(index));
        above.is_some_and(|above| above.trim() == EXEMPT)
    };
    marked(function.top) || marked(function.line)
}

fn lines(source: &Source) -> usize {
    source.body.lines().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function of so many lines, braces included.
    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    fn found(text: &str) -> Vec<(usize, String)> {
        check(&Tree::of(&[("a.rs", text)]))
            .into_iter()
            .map(|finding| (finding.line, finding.advice))
            .collect()
    }

    #[test]
    fn the_limits_themselves_are_allowed() {
        assert_eq!(found(&function(80)), []);
        assert_eq!(found(&"// line\n".repeat(600)), []);
    }

    #[test]
    fn one_line_more_is_not() {
        assert_eq!(found(&function(81)), [(1, "`f` has 81 lines, at most 80 are allowed".to_owned())]);
        let advice = "601 lines, at most 600 are allowed; split it by purpose".to_owned();
        assert_eq!(found(&"// line\n".repeat(601)), [(1, advice)]);
    }

    #[test]
    fn a_privileged_sequence_is_exempt_only_where_it_is_marked() {
        assert_eq!(found(&format!("{EXEMPT}\n/// Why.\n{}", function(81))), []);
        assert_eq!(found(&format!("/// Why.\n{EXEMPT}\n{}", function(81))), []);
        assert_eq!(found(&format!("{EXEMPT}\n\n{}", function(81))).len(), 1);
    }

    #[test]
    fn long_files_are_counted() {
        let (long, short) = ("// line\n".repeat(301), "// line\n".repeat(300));
        assert_eq!(long_files(&Tree::of(&[("a.rs", &long), ("b.rs", &short)])), 1);
    }
}
