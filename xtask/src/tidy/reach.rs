//! What each crate may not reach for in the standard library. Clippy reads one list for the whole
//! workspace; these bans differ by crate, because the zones do.

use super::Finding;
use super::paths::{self, Named};
use super::tree::Tree;

const RULE: &str = "reach";

struct Ban {
    members: &'static [&'static str],
    paths: &'static [&'static str],
    why: &'static str,
}

const BANS: [Ban; 5] = [
    Ban {
        members: &["pond-policy"],
        paths: &[
            "std::fs",
            "std::env",
            "std::process",
            "std::thread",
            "std::time::SystemTime",
            "std::time::Instant",
        ],
        why: "the contract is pure: the same input gives the same verdict anywhere",
    },
    Ban {
        members: &["pond-policy"],
        paths: &["std::net"],
        why: "the contract opens no socket; addresses come from core::net",
    },
    Ban {
        members: &["pond-wire", "pond-seal"],
        paths: &[
            "std::fs",
            "std::env",
            "std::process",
            "std::thread",
            "std::time::SystemTime",
            "std::time::Instant",
        ],
        why: "callers pass the bytes and the time",
    },
    Ban {
        members: &["pond-orchestrator"],
        paths: &["std::fs", "std::env", "std::process"],
        why: "what it relays it neither stores nor acts on",
    },
    Ban {
        members: &["pond-jail", "pond-init"],
        paths: &["std::net", "std::thread"],
        why: "single-threaded and without a network, so that fork and environment stay sound",
    },
];

/// Macros that print, and the members that own a terminal.
const PRINTING: [&str; 4] = ["print!", "println!", "eprint!", "eprintln!"];
const HAVE_A_TERMINAL: [&str; 2] = ["pond", "xtask"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        let Some(member) = tree.member_of(&source.path) else { continue };
        for named in paths::of(source.tokens.clone()) {
            findings.extend(
                faults(member, &source.path, &named)
                    .map(|fault| Finding::new(&source.path, named.line, RULE, fault)),
            );
        }
    }
    findings.dedup();
    findings
}

fn faults(member: &str, file: &str, named: &Named) -> impl Iterator<Item = String> {
    let banned = BANS.iter().filter(|ban| ban.members.contains(&member)).flat_map(|ban| {
        let hit = ban.paths.iter().filter(|path| touches(named, path));
        hit.map(move |path| format!("{member} may not use {path}: {}", ban.why))
    });
    // What one thread is confined to ends with it, which the tests of a confinement want.
    let banned = banned.filter(|fault| !(file.ends_with("/tests.rs") && fault.contains("std::thread")));
    // A build script talks to cargo by printing.
    let may_print = HAVE_A_TERMINAL.contains(&member) || file.ends_with("/build.rs");
    let prints = named.segments.last().is_some_and(|last| PRINTING.contains(&last.as_str()));
    let printed =
        (prints && !may_print).then(|| "return the text; only pond and xtask own a terminal".to_owned());
    banned.chain(printed).collect::<Vec<_>>().into_iter()
}

/// Whether a path lies in what is banned, or is a glob that brings it in.
fn touches(named: &Named, banned: &str) -> bool {
    let banned: Vec<&str> = banned.split("::").collect();
    let segments = &named.segments;
    let common = segments.iter().zip(&banned).take_while(|(segment, banned)| segment == banned).count();
    // What a `use` already brought in is found there, once.
    let whole = common == banned.len() && common > named.imported;
    whole || segments.get(common).is_some_and(|next| next == "*" && common > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::packages::Package;

    fn lines(member: &str, text: &str) -> Vec<usize> {
        let file = format!("{member}/src/a.rs");
        let tree = Tree::of(&[(&file, text)]).with(vec![Package::member(member, member)]);
        check(&tree).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn the_contract_touches_nothing_outside_itself() {
        let text = "use std::fs;\nuse std::{net, fmt};\nuse std::time::{Duration, Instant};\nfn f() {\n    std::env::var(k);\n}\nuse std::*;\n";
        let mut found = lines("pond-policy", text);
        found.dedup();
        assert_eq!(found, [1, 2, 3, 5, 7]);
    }

    #[test]
    fn an_import_is_one_finding_and_a_detour_is_no_escape() {
        assert_eq!(lines("pond-policy", "use std::fs;\nfn f() {\n    fs::read(p);\n}\n"), [1]);
        assert_eq!(lines("pond-policy", "use std::time as t;\nfn f() {\n    t::Instant::now();\n}\n"), [3]);
    }

    #[test]
    fn what_is_not_banned_passes() {
        let text = "use core::net::IpAddr;\nuse std::time::Duration;\nuse std::{fmt, fmt::Display};\nfn f() { format!(\"\"); }\n";
        assert_eq!(lines("pond-policy", text), Vec::<usize>::new());
        assert_eq!(lines("pond-worker", "use std::fs;\nuse std::net::TcpStream;\n"), Vec::<usize>::new());
    }

    #[test]
    fn the_launcher_has_no_threads_and_no_network() {
        for member in ["pond-jail", "pond-init"] {
            assert_eq!(
                lines(member, "fn f() {\n    std::thread::spawn(g);\n}\nuse std::net::UdpSocket;\n"),
                [2, 4]
            );
        }
    }

    #[test]
    fn the_launchers_tests_may_have_threads() {
        let text = "fn f() {\n    std::thread::spawn(g);\n}\nuse std::net::UdpSocket;\n";
        let tree = Tree::of(&[("pond-jail/src/a/tests.rs", text)])
            .with(vec![Package::member("pond-jail", "pond-jail")]);
        assert_eq!(check(&tree).into_iter().map(|finding| finding.line).collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn only_members_with_a_terminal_print() {
        let text = "fn f() {\n    println!(\"a\");\n    std::eprintln!(\"b\");\n}\n";
        assert_eq!(lines("pond-worker", text), [2, 3]);
        assert_eq!(lines("pond", text), Vec::<usize>::new());
    }
}
