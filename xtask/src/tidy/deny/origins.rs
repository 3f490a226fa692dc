//! Every dependency is a release from an allowed registry; only members come from a path.

use cargo_metadata::semver::Version;
use serde::Deserialize;

use crate::tidy::Finding;
use crate::tidy::packages::Package;
use crate::tidy::tree::{Text, Tree};

const RULE: &str = "origins";

#[derive(Deserialize)]
struct Lock {
    #[serde(default)]
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: Version,
}

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let strangers = tree
        .packages
        .iter()
        .filter(|package| package.dir.is_none())
        .filter_map(|package| stranger(tree, package));
    let locks = tree.texts.iter().filter(|text| text.path.rsplit('/').next() == Some("Cargo.lock"));
    strangers.chain(locks.flat_map(|lock| unreleased(tree, lock))).collect()
}

fn stranger(tree: &Tree, package: &Package) -> Option<Finding> {
    let source = package.source.as_deref().unwrap_or("a path outside the workspace");
    let registry = source.strip_prefix("registry+");
    let allowed = registry
        .is_some_and(|registry| tree.deny.sources.allow_registry.iter().any(|known| known == registry));
    let advice = format!("{} comes from {source}; use a release from an allowed registry", package.name);
    (!allowed).then(|| Finding::new("Cargo.toml", tree.line_of("Cargo.toml", &package.name), RULE, advice))
}

fn unreleased(tree: &Tree, lock: &Text) -> Vec<Finding> {
    let packages = match toml::from_str::<Lock>(&lock.body) {
        Ok(read) => read.package,
        Err(error) => return vec![Finding::new(&lock.path, 1, RULE, error.message())],
    };
    let early = packages.into_iter().filter(|package| !package.version.pre.is_empty());
    let found = early.map(|package| {
        let line = tree.line_of(&lock.path, &format!("name = \"{}\"", package.name));
        Finding::new(
            &lock.path,
            line,
            RULE,
            format!("{} {} is a pre-release; use a release", package.name, package.version),
        )
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRATES_IO: &str = "https://github.com/rust-lang/crates.io-index";

    fn tree(packages: Vec<Package>, lock: &str) -> Tree {
        let mut tree = Tree::of(&[("Cargo.lock", lock)]).with(packages);
        tree.deny.sources.allow_registry = vec![CRATES_IO.to_owned()];
        tree
    }

    #[test]
    fn members_and_released_crates_pass() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.1.8+spec-1.1.0\"\n";
        assert_eq!(
            check(&tree(vec![Package::member("pond", "pond"), Package::fetched("a", "1.0.0", "MIT")], lock)),
            []
        );
    }

    #[test]
    fn other_origins_are_found() {
        let from = |source: Option<&str>| Package {
            source: source.map(str::to_owned),
            ..Package::fetched("a", "1.0.0", "MIT")
        };
        for source in
            [Some("git+https://example.org/a#0123"), Some("registry+https://example.org/index"), None]
        {
            assert_eq!(check(&tree(vec![from(source)], "")).len(), 1, "{source:?}");
        }
    }

    #[test]
    fn a_pre_release_is_found_where_it_is_locked() {
        let lock = "version = 4\n[[package]]\nname = \"a\"\nversion = \"1.0.0-alpha.5\"\n";
        let expected = "a 1.0.0-alpha.5 is a pre-release; use a release";
        assert_eq!(check(&tree(Vec::new(), lock)), [Finding::new("Cargo.lock", 3, RULE, expected)]);
    }
}
