//! Which crate may link which: the trust zones as a table.
//! Test-only dependencies are free, since nothing of them ships; everything else is refused unless it is listed.

use super::Finding;
use super::packages::Package;
use super::tree::Tree;

const RULE: &str = "edges";

enum May {
    Link(&'static [&'static str]),
    LinkAny,
}

/// A crate that does not exist yet already has its row: the zone comes before the code.
const EDGES: [(&str, May); 14] = [
    ("pond-policy", May::Link(&[])),
    ("pond-wire", May::Link(&["pond-policy"])),
    ("pond-seal", May::Link(&[])),
    ("pond-sys", May::Link(&[])),
    ("pond-init", May::Link(&["pond-sys", "pond-wire"])),
    ("pond-jail", May::Link(&["pond-init", "pond-sys", "pond-wire"])),
    ("pond-sandbox", May::Link(&["pond-policy", "pond-sys", "pond-wire"])),
    ("pond-worker", May::Link(&["pond-policy", "pond-sandbox", "pond-seal", "pond-sys", "pond-wire"])),
    ("pond-gateway", May::Link(&["pond-policy", "pond-seal", "pond-sys", "pond-wire"])),
    ("pond-orchestrator", May::Link(&["pond-policy", "pond-wire"])),
    ("pond-control", May::Link(&["pond-policy", "pond-seal", "pond-wire"])),
    ("pond", May::LinkAny),
    ("pond-tests", May::LinkAny),
    ("xtask", May::Link(&[])),
];

/// Held over any number of steps, so that no edit of the table above can undo it.
const NEVER_REACHES: [(&str, &str, &str); 4] = [
    ("pond-worker", "pond-control", "a host may lie, and the vault lives there"),
    ("pond-control", "pond-sandbox", "the trusted zone never runs untrusted code"),
    ("pond-control", "pond-sys", "the trusted zone makes no kernel calls of its own"),
    ("pond-orchestrator", "pond-seal", "what relays everybody's messages can open and sign none"),
];

/// Outside crates that only these members may name. (`deny.toml` cannot say it: other outside crates use them too.)
const DOORS: [(&str, &[&str], &str); 1] = [("libc", &["pond-sys"], "kernel calls go through pond-sys")];

/// Members that may link these outside crates and no others.
const ONLY: [(&str, &[&str], &str); 1] =
    [("pond-policy", &["psl", "thiserror"], "the contract stays pure and small enough to read in an hour")];

/// Members with a budget of direct dependencies.
const AT_MOST: [(&str, usize, &str); 1] =
    [("pond-jail", 8, "every crate in the launcher runs with privilege")];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.members().flat_map(|(member, dir)| member_findings(tree, member, dir)).collect()
}

fn member_findings(tree: &Tree, member: &Package, dir: &str) -> Vec<Finding> {
    let manifest = format!("{dir}/Cargo.toml");
    let at = |dep: &str, advice: String| Finding::new(&manifest, tree.line_of(&manifest, dep), RULE, advice);
    let name = member.name.as_str();
    let mut findings = Vec::new();
    let Some((_, may)) = EDGES.iter().find(|(row, _)| *row == name) else {
        let advice =
            format!("`{name}` has no row in xtask/src/tidy/edges.rs; give it a zone there, or merge it");
        return vec![at("name", advice)];
    };
    for dep in member.shipped() {
        if is_member(tree, dep) {
            if !may.link(dep) {
                findings
                    .push(at(dep, format!("{name} may not link {dep}; move the code to a crate that may")));
            }
            continue;
        }
        for (_, members, why) in
            DOORS.iter().filter(|(door, members, _)| *door == dep && !members.contains(&name))
        {
            findings.push(at(dep, format!("only {} may name {dep}: {why}", members.join(", "))));
        }
        for (_, allowed, why) in
            ONLY.iter().filter(|(row, allowed, _)| *row == name && !allowed.contains(&dep))
        {
            findings.push(at(dep, format!("{name} links only {}: {why}", allowed.join(", "))));
        }
    }
    for (_, most, why) in
        AT_MOST.iter().filter(|(row, most, _)| *row == name && member.shipped().count() > *most)
    {
        let advice =
            format!("{} direct dependencies, at most {most} are allowed: {why}", member.shipped().count());
        findings.push(at("[dependencies]", advice));
    }
    for (_, to, why) in
        NEVER_REACHES.iter().filter(|(from, to, _)| *from == name && reaches(tree, member, to))
    {
        findings
            .push(at("[dependencies]", format!("{name} must never reach {to}, even through others: {why}")));
    }
    findings
}

impl May {
    fn link(&self, dep: &str) -> bool {
        match self {
            May::Link(listed) => listed.contains(&dep),
            May::LinkAny => true,
        }
    }
}

fn is_member(tree: &Tree, name: &str) -> bool {
    tree.members().any(|(member, _)| member.name == name)
}

fn reaches(tree: &Tree, from: &Package, to: &str) -> bool {
    let mut seen: Vec<&str> = Vec::new();
    let mut open: Vec<&str> = from.shipped().collect();
    while let Some(name) = open.pop() {
        if name == to {
            return true;
        }
        if !seen.contains(&name) {
            seen.push(name);
            open.extend(
                tree.members()
                    .filter(|(member, _)| member.name == name)
                    .flat_map(|(member, _)| member.shipped()),
            );
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(packages: Vec<Package>) -> Vec<String> {
        check(&Tree::of(&[]).with(packages)).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn listed_edges_and_test_only_edges_pass() {
        let packages = vec![
            Package::member("pond-policy", "base/pond-policy")
                .shipping(&["psl"])
                .testing_with(&["proptest", "pond-wire"]),
            Package::member("pond-wire", "base/pond-wire").shipping(&["pond-policy", "serde"]),
            Package::member("pond-sys", "base/pond-sys").shipping(&["libc"]),
            Package::member("pond", "pond").shipping(&["pond-policy", "pond-wire", "pond-sys"]),
        ];
        assert_eq!(advice(packages), Vec::<String>::new());
    }

    #[test]
    fn an_unlisted_edge_is_named_where_it_stands() {
        let manifest = ("base/pond-policy/Cargo.toml", "[dependencies]\npond-wire.workspace = true\n");
        let tree = Tree::of(&[manifest]).with(vec![
            Package::member("pond-policy", "base/pond-policy").shipping(&["pond-wire"]),
            Package::member("pond-wire", "base/pond-wire"),
        ]);
        let expected = "pond-policy may not link pond-wire; move the code to a crate that may";
        assert_eq!(check(&tree), [Finding::new("base/pond-policy/Cargo.toml", 2, RULE, expected)]);
    }

    #[test]
    fn a_crate_without_a_row_is_a_finding() {
        let found = advice(vec![Package::member("pond-extra", "base/pond-extra")]);
        assert!(found.len() == 1 && found[0].contains("`pond-extra` has no row"), "{found:?}");
    }

    #[test]
    fn forbidden_crates_are_found_through_others() {
        let found = advice(vec![
            Package::member("pond-control", "control/pond-control").shipping(&["pond-wire"]),
            Package::member("pond-wire", "base/pond-wire").shipping(&["pond-sys"]),
            Package::member("pond-sys", "base/pond-sys"),
        ]);
        assert!(
            found.iter().any(|line| line.contains("pond-control must never reach pond-sys")),
            "{found:?}"
        );
        assert!(found.iter().any(|line| line.contains("pond-wire may not link pond-sys")), "{found:?}");
    }

    #[test]
    fn the_orchestrator_reaches_no_cryptography() {
        let found = advice(vec![
            Package::member("pond-orchestrator", "relay/pond-orchestrator").shipping(&["pond-wire"]),
            Package::member("pond-wire", "base/pond-wire")
                .shipping(&["pond-seal"])
                .testing_with(&["pond-seal"]),
            Package::member("pond-seal", "base/pond-seal"),
        ]);
        assert!(
            found.iter().any(|line| line.contains("pond-orchestrator must never reach pond-seal")),
            "{found:?}"
        );
        let only_tested = advice(vec![
            Package::member("pond-orchestrator", "relay/pond-orchestrator").testing_with(&["pond-seal"]),
            Package::member("pond-seal", "base/pond-seal"),
        ]);
        assert_eq!(only_tested, Vec::<String>::new());
    }

    #[test]
    fn outside_crates_keep_to_their_doors_and_budgets() {
        let nine = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        let found = advice(vec![
            Package::member("pond-policy", "base/pond-policy").shipping(&["serde"]),
            Package::member("pond-jail", "host/pond-jail").shipping(&nine),
            Package::member("pond-worker", "host/pond-worker").shipping(&["libc"]),
        ]);
        let about = [
            "pond-policy links only psl, thiserror",
            "9 direct dependencies, at most 8",
            "only pond-sys may name libc",
        ];
        for (line, about) in found.iter().zip(about) {
            assert!(line.contains(about), "{line}");
        }
        assert_eq!(found.len(), 3);
    }
}
