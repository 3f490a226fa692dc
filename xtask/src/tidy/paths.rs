//! Every path a file names, read from its tokens: in code, in `use` trees, in macro arguments alike.
//! Names brought in by `use` are followed, so `use std::time; time::Instant` is `std::time::Instant`.

use std::collections::BTreeMap;
use std::iter::Peekable;

use proc_macro2::token_stream::IntoIter;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path such as `std::fs::read`, `std::time::*`, or `println!` for a macro call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
    /// How many of the segments were written in a `use` elsewhere in the file.
    pub(crate) imported: usize,
    /// The name it is known by afterwards, when a `use` brings it in.
    brings: Option<String>,
}

pub(crate) fn of(tokens: TokenStream) -> Vec<Named> {
    let mut found = Vec::new();
    scan(tokens, &[], Place::Code, &mut found);
    let known: BTreeMap<String, Vec<String>> =
        found.iter().filter_map(|named| Some((named.brings.clone()?, named.segments.clone()))).collect();
    for named in found.iter_mut().filter(|named| named.brings.is_none()) {
        let full = named.segments.first().and_then(|first| known.get(first));
        if let Some(full) = full {
            named.imported = full.len();
            named.segments = full.iter().cloned().chain(named.segments.drain(1..)).collect();
        }
    }
    found
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Code,
    /// Inside a `use`, where a comma starts a new path under the same prefix.
    Use,
}

fn scan(tokens: TokenStream, prefix: &[String], place: Place, found: &mut Vec<Named>) {
    let mut rest = tokens.into_iter().peekable();
    let mut in_use = place == Place::Use;
    while let Some(token) = rest.next() {
        match token {
            // `use<'a>` lists what a type captures and imports nothing.
            TokenTree::Ident(ident) if ident == "use" => in_use = !is_punct(rest.peek(), '<'),
            TokenTree::Ident(ident) => {
                let line = ident.span().start().line;
                let first = prefix.iter().cloned().chain([ident.to_string()]).collect();
                path(first, line, in_use, &mut rest, found);
            }
            TokenTree::Group(group) => {
                let inner = if in_use { Place::Use } else { Place::Code };
                scan(group.stream(), prefix, inner, found);
            }
            TokenTree::Punct(punct) => {
                if punct.as_char() == ';' {
                    in_use = false;
                }
                if punct.as_char() == '*' && place == Place::Use {
                    let segments = prefix.iter().cloned().chain(["*".to_owned()]).collect();
                    found.push(Named {
                        segments,
                        line: punct.span().start().line,
                        imported: 0,
                        brings: None,
                    });
                }
            }
            TokenTree::Literal(_) => {}
        }
    }
}

/// Reads on from the first segment to the end of the path.
fn path(
    mut segments: Vec<String>,
    line: usize,
    in_use: bool,
    rest: &mut Peekable<IntoIter>,
    found: &mut Vec<Named>,
) {
    while takes_colons(rest) {
        match rest.peek() {
            Some(TokenTree::Ident(ident)) => {
                segments.push(ident.to_string());
                rest.next();
            }
            Some(TokenTree::Punct(punct)) if punct.as_char() == '*' => {
                segments.push("*".to_owned());
                rest.next();
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner = group.stream();
                rest.next();
                return scan(inner, &segments, Place::Use, found);
            }
            _ => break,
        }
    }
    if in_use && segments.len() > 1 && segments.last().is_some_and(|last| last == "self") {
        segments.pop();
    }
    let calls_macro = is_punct(rest.peek(), '!') && {
        let mut ahead = rest.clone();
        ahead.next();
        matches!(ahead.peek(), Some(TokenTree::Group(_)))
    };
    if calls_macro && let Some(last) = segments.last_mut() {
        last.push('!');
    }
    let brings = in_use.then(|| renamed(rest).or_else(|| segments.last().cloned())).flatten();
    found.push(Named { segments, line, imported: 0, brings });
}

fn takes_colons(rest: &mut Peekable<IntoIter>) -> bool {
    let mut ahead = rest.clone();
    let colons = is_punct(ahead.next().as_ref(), ':') && is_punct(ahead.next().as_ref(), ':');
    if colons {
        *rest = ahead;
    }
    colons
}

fn renamed(rest: &mut Peekable<IntoIter>) -> Option<String> {
    if !matches!(rest.peek(), Some(TokenTree::Ident(ident)) if ident == "as") {
        return None;
    }
    rest.next();
    rest.next().map(|name| name.to_string())
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        of(text.parse().unwrap())
            .into_iter()
            .map(|named| named.segments.join("::"))
            .filter(|path| path.contains([':', '!']))
            .collect()
    }

    #[test]
    fn use_trees_are_flattened() {
        let expected = ["std::fs", "std::net", "std::net::TcpStream", "std::time::*"];
        assert_eq!(paths("use std::{fs, net::{self, TcpStream}, time::*};\n"), expected);
        assert_eq!(paths("use {std::fs, std::net::{self, TcpStream}, std::time::*};\n"), expected);
    }

    #[test]
    fn imported_and_renamed_names_are_followed() {
        let text =
            "use std::time;\nuse std::fs as files;\nfn f() { time::Instant::now(); files::read(p); }\n";
        assert_eq!(paths(text), ["std::time", "std::fs", "std::time::Instant::now", "std::fs::read"]);
    }

    #[test]
    fn macro_calls_and_their_arguments_are_seen() {
        let text = "fn f() { assert!(std::env::var(k) != x); a != b; std::println!(\"\"); }\n";
        assert_eq!(paths(text), ["assert!", "std::env::var", "std::println!"]);
    }

    #[test]
    fn generics_end_a_path_and_lines_are_kept() {
        let found = of("fn f() {\n    a::b::<c::D>();\n}\n".parse().unwrap());
        let seen: Vec<_> = found.iter().map(|named| (named.segments.join("::"), named.line)).collect();
        assert!(seen.contains(&("a::b".to_owned(), 2)) && seen.contains(&("c::D".to_owned(), 2)), "{seen:?}");
    }
}
