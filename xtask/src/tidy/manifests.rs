//! Every member inherits what the workspace decided once: versions, lints, dependencies, licence.

use toml::{Table, Value};

use super::Finding;
use super::tree::{Text, Tree};

const RULE: &str = "manifests";
const INHERITED: [&str; 5] = ["version", "edition", "rust-version", "license", "publish"];
const DEPENDENCIES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let members = tree.members().filter_map(|(_, dir)| tree.text(&format!("{dir}/Cargo.toml")));
    let members = members.flat_map(|manifest| faults(tree, manifest, member));
    let root = tree.text("Cargo.toml").into_iter().flat_map(|manifest| faults(tree, manifest, root));
    members.chain(root).collect()
}

/// A key to point at, and what to do about it.
type Fault = (String, String);

fn faults(tree: &Tree, manifest: &Text, read: fn(&Table) -> Vec<Fault>) -> Vec<Finding> {
    match manifest.body.parse::<Table>() {
        Err(error) => vec![Finding::new(&manifest.path, 1, RULE, error.message())],
        Ok(table) => {
            let at = |(key, advice): Fault| {
                Finding::new(&manifest.path, tree.line_of(&manifest.path, &key), RULE, advice)
            };
            read(&table).into_iter().map(at).collect()
        }
    }
}

fn member(manifest: &Table) -> Vec<Fault> {
    let mut faults = Vec::new();
    if !manifest.get("lints").is_some_and(inherits) {
        faults.push(("[lints]".to_owned(), "write `[lints]` with `workspace = true`".to_owned()));
    }
    let package = manifest.get("package").and_then(Value::as_table);
    for key in INHERITED {
        if !package.and_then(|package| package.get(key)).is_some_and(inherits) {
            faults.push((key.to_owned(), format!("write `{key}.workspace = true`")));
        }
    }
    for (name, dependency) in dependency_tables(manifest).flatten() {
        if !inherits(dependency) || dependency.get("path").is_some() {
            let advice = format!(
                "write `{name}.workspace = true`; versions and paths are chosen in the root Cargo.toml"
            );
            faults.push((name.clone(), advice));
        }
    }
    faults
}

fn root(manifest: &Table) -> Vec<Fault> {
    let workspace = manifest.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let dependencies = workspace.and_then(Value::as_table).into_iter().flatten();
    let faults = dependencies.filter_map(|(name, dependency)| {
        let text = |key: &str| dependency.get(key).and_then(Value::as_str);
        let version = dependency.as_str().or(text("version"));
        let leaves = text("path")
            .is_some_and(|path| path.starts_with('/') || path.split('/').any(|part| part == ".."));
        let advice = if leaves {
            format!("the path of {name} leaves the repository")
        } else if dependency.get("git").is_some() {
            format!("{name} comes from git; use a released version")
        } else if version.is_some_and(|version| version.contains('*')) {
            format!("{name} accepts any version; name the one that was tried")
        } else {
            return None;
        };
        Some((name.clone(), advice))
    });
    faults.collect()
}

fn inherits(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

fn dependency_tables(manifest: &Table) -> impl Iterator<Item = &Table> {
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flatten();
    let tables = [manifest].into_iter().chain(targets.filter_map(|(_, target)| target.as_table()));
    tables.flat_map(|table| DEPENDENCIES.iter().filter_map(|kind| table.get(*kind)?.as_table()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::packages::Package;

    const GOOD: &str = "[package]\nname = \"a\"\nversion.workspace = true\nedition.workspace = true\n\
        rust-version.workspace = true\nlicense.workspace = true\npublish.workspace = true\n\
        [lints]\nworkspace = true\n[dependencies]\nserde.workspace = true\nclap = { workspace = true, features = [\"x\"] }\n";

    fn found(member: &str, root: &str) -> Vec<(String, usize, String)> {
        let tree =
            Tree::of(&[("a/Cargo.toml", member), ("Cargo.toml", root)]).with(vec![Package::member("a", "a")]);
        check(&tree).into_iter().map(|finding| (finding.path, finding.line, finding.advice)).collect()
    }

    #[test]
    fn a_member_that_inherits_everything_passes() {
        let root =
            "[workspace.dependencies]\na = { path = \"a\" }\nserde = \"1.0\"\nclap = { version = \"4\" }\n";
        assert_eq!(found(GOOD, root), []);
    }

    #[test]
    fn everything_a_member_decides_alone_is_found() {
        let changes = [
            ("[lints]\nworkspace = true\n", "", "write `[lints]`"),
            ("version.workspace = true\ne", "version = \"2.0.0\"\ne", "write `version.workspace"),
            ("license.workspace = true\n", "", "write `license.workspace"),
            ("serde.workspace = true", "serde = \"1\"", "write `serde.workspace"),
            ("serde.workspace = true", "serde = { path = \"../../serde\" }", "write `serde.workspace"),
            (
                "[dependencies]",
                "[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n[dependencies]",
                "write `libc.workspace",
            ),
        ];
        for (from, to, about) in changes {
            let found = found(&GOOD.replacen(from, to, 1), "");
            assert!(found.len() == 1 && found[0].2.starts_with(about), "{to}: {found:?}");
        }
    }

    #[test]
    fn the_root_names_released_versions_and_paths_inside() {
        let root =
            "[workspace.dependencies]\na = { path = \"../a\" }\nb = { git = \"https://b\" }\nc = \"*\"\n";
        let lines: Vec<usize> = found(GOOD, root).into_iter().map(|(_, line, _)| line).collect();
        assert_eq!(lines, [2, 3, 4]);
    }
}
