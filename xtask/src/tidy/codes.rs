//! Every code that a refusal can have is in docs/troubleshooting.md, where whoever meets one looks for it.
//!
//! Codes are found where they are written: in tables of names, in functions called `code`, and as the first text given to what makes
//! a problem of a call or a denial of the broker.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};

use super::Finding;
use super::tree::{Source, Tree};

const RULE: &str = "codes";
const DOCUMENT: &str = "docs/troubleshooting.md";
/// Enums whose names are codes.
const TABLES: [&str; 5] = ["Code", "DenialCode", "HostWarningCode", "Cause", "ProblemCode"];
/// Macros that make such an enum without naming it.
const NAMELESS: [&str; 1] = ["problems"];
/// What is called with a code as its first text.
const MAKERS: [&str; 4] =
    ["Problem :: new (", "Problem :: internal (", "Denied :: new (", "Self :: new (StatusCode"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(document) = tree.text(DOCUMENT) else { return Vec::new() };
    let mut codes = BTreeMap::new();
    for source in tree.sources.iter().filter(|source| ships(&source.path)) {
        for code in of(source) {
            codes.entry(code).or_insert(&source.path);
        }
    }
    let missing = codes.into_iter().filter(|(code, _)| !document.body.contains(&format!("`{code}`")));
    let advice =
        |(code, path): (String, &String)| format!("say what `{code}` of {path} means, and what to do");
    missing.map(|missing| Finding::new(DOCUMENT, 1, RULE, advice(missing))).collect()
}

fn ships(path: &str) -> bool {
    let is_source =
        ["base/", "control/", "relay/", "host/", "pond/"].iter().any(|zone| path.starts_with(zone));
    is_source && path.contains("/src/") && !path.contains("/tests")
}

fn of(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    for function in &source.functions {
        let (name, is_test) = (function.name.rsplit("::").next(), function.name.starts_with("tests::"));
        if is_test {
            continue;
        }
        if name == Some("code") {
            found.extend(texts(&function.body));
        }
        for maker in MAKERS {
            let calls = function.body.split(maker).skip(1);
            found.extend(calls.filter_map(|call| texts(call.split(')').next()?).into_iter().next()));
        }
    }
    in_tables(source.tokens.clone(), &mut found);
    found
}

/// `named_enum! { pub enum Code { Variant => "name", … } }`.
fn in_tables(tokens: TokenStream, found: &mut Vec<String>) {
    let mut before: Vec<String> = Vec::new();
    for token in tokens {
        if let TokenTree::Group(group) = &token {
            let last = |back: usize| before.len().checked_sub(back).and_then(|at| before.get(at));
            let named = last(1).is_some_and(|name| TABLES.contains(&name.as_str()))
                && last(2).is_some_and(|word| word == "enum");
            let nameless = last(1).is_some_and(|mark| mark == "!")
                && last(2).is_some_and(|name| NAMELESS.contains(&name.as_str()));
            if named || nameless {
                found.extend(after_arrows(&group.stream().to_string()));
            }
            in_tables(group.stream(), found);
        }
        before.push(token.to_string());
    }
}

fn after_arrows(table: &str) -> Vec<String> {
    table.split("=>").skip(1).filter_map(|rest| texts(rest).into_iter().next()).collect()
}

/// Texts that can be codes.
fn texts(code: &str) -> Vec<String> {
    let is_code = |text: &&str| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    code.split('"').skip(1).step_by(2).filter(is_code).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"//! Codes.
        named_enum! { pub enum Cause { A => "in_a_table", B => "also_there" } }
        named_enum! { pub enum Colour { A => "no_code" } }
        problems! { X => "a_problem", 400, "A title", }
        impl Fault { fn code(&self) -> &'static str { match self { Self::A => "of_a_function" } } }
        fn other() -> Problem { Problem::new(StatusCode::GONE, "of_a_call", "a sentence") }
        fn third() -> Denied { Denied::new(403, "of_the_broker", "not this one") }
        #[cfg(test)] mod tests { fn code() -> &'static str { "of_a_test" } }
    "#;

    fn missing(document: &str) -> Vec<String> {
        let tree =
            Tree::of(&[(DOCUMENT, document), ("base/x/src/lib.rs", SOURCE), ("fuzz/src/lib.rs", SOURCE)]);
        let quoted = |finding: Finding| finding.advice.split('`').nth(1).unwrap_or_default().to_owned();
        check(&tree).into_iter().map(quoted).collect()
    }

    #[test]
    fn every_code_is_asked_for() {
        let all = ["a_problem", "also_there", "in_a_table", "of_a_call", "of_a_function", "of_the_broker"];
        assert_eq!(missing(""), all);
        let document = all.map(|code| format!("| `{code}` | |")).join("\n");
        assert_eq!(missing(&document), [""; 0]);
        assert_eq!(missing(&document.replace("`of_a_call`", "of_a_call")), ["of_a_call"]);
    }
}
