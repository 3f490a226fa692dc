//! Crates that are not used, crates that only their wrapper may use, and crates in two versions.

use std::collections::BTreeMap;

use cargo_metadata::semver::Version;

use super::{Banned, FILE, Level};
use crate::tidy::Finding;
use crate::tidy::packages::Package;
use crate::tidy::tree::Tree;

const RULE: &str = "bans";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let banned = tree.deny.bans.deny.iter().flat_map(|banned| uses(tree, banned));
    let twice = match tree.deny.bans.multiple_versions {
        Level::Deny => duplicates(tree),
        Level::Warn | Level::Allow => BTreeMap::new(),
    };
    let twice = twice.into_iter().map(|(name, versions)| {
        let versions: Vec<String> = versions.iter().map(Version::to_string).collect();
        Finding::new(
            "Cargo.lock",
            1,
            RULE,
            format!("{name} is here as {}; settle on one", versions.join(" and ")),
        )
    });
    banned.chain(twice).collect()
}

pub(crate) fn duplicates(tree: &Tree) -> BTreeMap<&str, Vec<Version>> {
    let mut versions: BTreeMap<&str, Vec<Version>> = BTreeMap::new();
    for package in &tree.packages {
        versions.entry(&package.name).or_default().push(package.version.clone());
    }
    versions.retain(|_, versions| versions.len() > 1);
    versions
}

fn uses(tree: &Tree, banned: &Banned) -> Vec<Finding> {
    if !tree.packages.iter().any(|package| package.name == banned.name) {
        return Vec::new();
    }
    let links = |package: &&Package| package.links.iter().any(|link| link.to == banned.name);
    let users = tree.packages.iter().filter(links).filter(|package| !banned.wrappers.contains(&package.name));
    let found = users.map(|package| {
        let path = package.dir.as_ref().map_or(FILE.to_owned(), |dir| format!("{dir}/Cargo.toml"));
        let start = if package.dir.is_some() {
            banned.name.clone()
        } else {
            format!("{{ crate = \"{}\"", banned.name)
        };
        let advice = format!("{} may not link {}: {}", package.name, banned.name, banned.reason);
        Finding::new(&path, tree.line_of(&path, &start), RULE, advice)
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(level: Level) -> Tree {
        let mut tree = Tree::of(&[("deny.toml", "[bans]\n{ crate = \"openssl\", reason = \"\" }\n")]);
        tree.deny.bans.multiple_versions = level;
        tree.deny.bans.deny = vec![
            Banned { name: "openssl".to_owned(), reason: "one TLS stack".to_owned(), wrappers: Vec::new() },
            Banned {
                name: "psl".to_owned(),
                reason: "one list".to_owned(),
                wrappers: vec!["pond-policy".to_owned()],
            },
        ];
        tree
    }

    #[test]
    fn a_banned_crate_is_found_however_deep() {
        let tree = tree(Level::Warn).with(vec![
            Package::member("pond", "pond").shipping(&["client"]),
            Package::fetched("client", "1.0.0", "MIT").shipping(&["openssl"]),
            Package::fetched("openssl", "1.0.0", "MIT"),
        ]);
        assert_eq!(
            check(&tree),
            [Finding::new("deny.toml", 2, RULE, "client may not link openssl: one TLS stack")]
        );
    }

    #[test]
    fn a_wrapped_crate_is_for_its_wrapper_alone() {
        let tree = tree(Level::Warn).with(vec![
            Package::member("pond-policy", "base/pond-policy").shipping(&["psl"]),
            Package::member("pond-wire", "base/pond-wire").testing_with(&["psl"]),
            Package::fetched("psl", "2.0.0", "MIT"),
        ]);
        let expected = "pond-wire may not link psl: one list";
        assert_eq!(check(&tree), [Finding::new("base/pond-wire/Cargo.toml", 1, RULE, expected)]);
    }

    #[test]
    fn two_versions_are_counted_and_refused_on_demand() {
        let both = || vec![Package::fetched("a", "1.0.0", "MIT"), Package::fetched("a", "2.0.0", "MIT")];
        let (counted, refused) = (tree(Level::Warn).with(both()), tree(Level::Deny).with(both()));
        assert_eq!((duplicates(&counted).len(), check(&counted)), (1, Vec::new()));
        assert_eq!(
            check(&refused),
            [Finding::new("Cargo.lock", 1, RULE, "a is here as 1.0.0 and 2.0.0; settle on one")]
        );
    }
}
