//! The unsafe fence: the word appears in pond-sys alone, and every other crate forbids it to itself.
//! Tokens are searched, not syntax, so that a macro's arguments hide nothing.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;

use super::Finding;
use super::tree::{Source, Tree};

const RULE: &str = "fence";
const INSIDE: &str = "base/pond-sys/";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.sources.iter().filter(|source| !source.path.starts_with(INSIDE)) {
        for line in unsafe_lines(source.tokens.clone()) {
            let advice = "unsafe code lives in base/pond-sys; call a safe function there";
            findings.push(Finding::new(&source.path, line, RULE, advice));
        }
        let is_root = tree.members().any(|(member, _)| member.roots.contains(&source.path));
        if is_root && !forbids(source) {
            let advice = "add `#![forbid(unsafe_code)]` to this crate root";
            findings.push(Finding::new(&source.path, 1, RULE, advice));
        }
    }
    findings
}

fn unsafe_lines(tokens: TokenStream) -> Vec<usize> {
    let lines = tokens.into_iter().flat_map(|token| match token {
        TokenTree::Group(group) => unsafe_lines(group.stream()),
        TokenTree::Ident(ident) if ident == "unsafe" => vec![ident.span().start().line],
        TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => Vec::new(),
    });
    lines.collect()
}

fn forbids(source: &Source) -> bool {
    source
        .syntax
        .attrs
        .iter()
        .any(|attr| attr.to_token_stream().to_string().replace(' ', "") == "#![forbid(unsafe_code)]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::packages::Package;

    fn found(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        check(&Tree::of(files)).into_iter().map(|finding| (finding.path, finding.line)).collect()
    }

    #[test]
    fn every_form_is_found_outside_the_fence() {
        let forms = "fn a() {\n    unsafe { f() }\n}\nunsafe fn b() {}\nunsafe impl S for T {}\n\
                     fn c() {\n    assert!(unsafe { f() });\n}\n#[unsafe(no_mangle)]\nfn d() {}\n";
        let lines: Vec<usize> = found(&[("host/a.rs", forms)]).into_iter().map(|(_, line)| line).collect();
        assert_eq!(lines, [2, 4, 5, 7, 9]);
    }

    #[test]
    fn words_about_it_and_the_fenced_crate_pass() {
        let words = "//! No unsafe here.\n#![forbid(unsafe_code)]\nconst A: &str = \"unsafe { }\";\n";
        assert_eq!(
            found(&[("host/a.rs", words), ("base/pond-sys/src/ns.rs", "fn a() { unsafe { f() } }")]),
            []
        );
    }

    #[test]
    fn every_crate_root_must_forbid() {
        let roots =
            |name: &str, path: &str| Package { roots: vec![path.to_owned()], ..Package::member(name, name) };
        let tree = Tree::of(&[
            ("a/src/lib.rs", "#![forbid(unsafe_code)]\n"),
            ("b/src/main.rs", "#![deny(unsafe_code)]\n"),
            ("b/src/other.rs", "fn f() {}\n"),
            ("base/pond-sys/src/lib.rs", "fn f() {}\n"),
        ]);
        let tree = tree.with(vec![
            roots("a", "a/src/lib.rs"),
            roots("b", "b/src/main.rs"),
            roots("pond-sys", "base/pond-sys/src/lib.rs"),
        ]);
        let paths: Vec<String> = check(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(paths, ["b/src/main.rs"]);
    }
}
