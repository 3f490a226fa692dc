//! No function body twice. Two copies agree today and drift tomorrow.

use std::collections::BTreeMap;

use super::Finding;
use super::tree::Tree;

const RULE: &str = "twins";
const MIN_LINES: usize = 6;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut first: BTreeMap<&str, String> = BTreeMap::new();
    let mut findings = Vec::new();
    for source in &tree.sources {
        for function in source.functions.iter().filter(|function| function.body_lines >= MIN_LINES) {
            let place = format!("`{}` at {}:{}", function.name, source.path, function.line);
            if let Some(earlier) = first.get(function.body.as_str()) {
                let advice = format!("`{}` has the body of {earlier}; keep one and call it", function.name);
                findings.push(Finding::new(&source.path, function.line, RULE, advice));
            } else {
                first.insert(&function.body, place);
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "fn a(x: u8) {\n    one(x);\n    two(x);\n    three(x);\n    four(x);\n}\n";
    const SAME: &str = "\nfn b(x: u16) {\n    one(x);\n    // told otherwise\n    two( x );\n    three(x);\n    four(x);\n}\n";
    const OTHER: &str = "fn c(x: u8) {\n    one(x);\n    two(x);\n    three(x);\n    five(x);\n}\n";

    #[test]
    fn the_same_body_under_another_name_is_found() {
        let advice = "`b` has the body of `a` at a.rs:1; keep one and call it";
        assert_eq!(
            check(&Tree::of(&[("a.rs", LONG), ("b.rs", SAME)])),
            [Finding::new("b.rs", 2, RULE, advice)]
        );
    }

    #[test]
    fn different_or_short_bodies_pass() {
        let short = "fn a() {\n    one();\n    two();\n    three();\n}\nfn b() {\n    one();\n    two();\n    three();\n}\n";
        assert_eq!(check(&Tree::of(&[("a.rs", LONG), ("c.rs", OTHER), ("s.rs", short)])), []);
    }
}
