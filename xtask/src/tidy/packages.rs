//! What cargo resolved, reduced to what the rules ask about.

use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::semver::Version;
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, NodeDep, TargetKind};

use crate::run::Invocation;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: Version,
    pub(crate) licence: Option<String>,
    /// Where it was fetched from; none for a path.
    pub(crate) source: Option<String>,
    /// Its folder below the root, when it is a member of the workspace.
    pub(crate) dir: Option<String>,
    /// The files in which its libraries and programs begin.
    pub(crate) roots: Vec<String>,
    pub(crate) links: Vec<Link>,
}

/// A resolved dependency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) to: String,
    pub(crate) kind: Use,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Linked into the package or its build script.
    Shipped,
    /// Linked into its tests only.
    Tested,
}

impl Package {
    pub(crate) fn shipped(&self) -> impl Iterator<Item = &str> {
        self.links.iter().filter(|link| link.kind == Use::Shipped).map(|link| link.to.as_str())
    }
}

pub(crate) fn load(root: &Path, targets: &[String]) -> Result<Vec<Package>> {
    let mut command = Invocation::new(root, &["cargo", "metadata", "--format-version=1", "--all-features"]);
    for target in targets {
        command = command.arg("--filter-platform").arg(target);
    }
    let metadata = MetadataCommand::parse(command.capture()?)?;
    metadata.packages.iter().map(|package| reduced(root, &metadata, package)).collect()
}

fn reduced(root: &Path, metadata: &Metadata, package: &cargo_metadata::Package) -> Result<Package> {
    let below_root = |path: &Path| path.strip_prefix(root).ok()?.to_str().map(str::to_owned);
    let folder = package.manifest_path.parent().context("a manifest lies in a folder")?;
    let dir = match metadata.workspace_members.contains(&package.id) {
        true => Some(below_root(folder.as_std_path()).context("a member lies outside the root")?),
        false => None,
    };
    let is_root = |kind: &TargetKind| matches!(kind, TargetKind::Lib | TargetKind::Bin);
    let roots = package.targets.iter().filter(|target| target.kind.iter().any(is_root));
    let resolve = metadata.resolve.as_ref().context("cargo metadata resolved nothing")?;
    let links = resolve.nodes.iter().filter(|node| node.id == package.id).flat_map(|node| &node.deps);
    Ok(Package {
        name: package.name.to_string(),
        version: package.version.clone(),
        licence: package.license.clone(),
        source: package.source.as_ref().map(|source| source.repr.clone()),
        dir,
        roots: roots.filter_map(|target| below_root(target.src_path.as_std_path())).collect(),
        links: links.map(|dep| link(metadata, dep)).collect::<Result<_>>()?,
    })
}

fn link(metadata: &Metadata, dep: &NodeDep) -> Result<Link> {
    let package = metadata.packages.iter().find(|package| package.id == dep.pkg);
    let package = package.with_context(|| format!("{} is resolved but not listed", dep.pkg))?;
    let tested = dep.dep_kinds.iter().all(|info| info.kind == DependencyKind::Development);
    Ok(Link { to: package.name.to_string(), kind: if tested { Use::Tested } else { Use::Shipped } })
}

#[cfg(test)]
impl Package {
    pub(crate) fn member(name: &str, dir: &str) -> Self {
        Self { source: None, dir: Some(dir.to_owned()), ..Self::fetched(name, "0.1.0", "Apache-2.0") }
    }

    pub(crate) fn fetched(name: &str, version: &str, licence: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: version.parse().unwrap(),
            licence: Some(licence.to_owned()),
            source: Some("registry+https://github.com/rust-lang/crates.io-index".to_owned()),
            dir: None,
            roots: Vec::new(),
            links: Vec::new(),
        }
    }

    pub(crate) fn shipping(mut self, names: &[&str]) -> Self {
        self.links.extend(names.iter().map(|name| Link { to: (*name).to_owned(), kind: Use::Shipped }));
        self
    }

    pub(crate) fn testing_with(mut self, names: &[&str]) -> Self {
        self.links.extend(names.iter().map(|name| Link { to: (*name).to_owned(), kind: Use::Tested }));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_loads() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let packages = load(root, &["x86_64-unknown-linux-gnu".to_owned()]).unwrap();
        let xtask = packages.iter().find(|package| package.name == "xtask").unwrap();
        assert_eq!(
            (xtask.dir.as_deref(), xtask.roots.as_slice()),
            (Some("xtask"), &["xtask/src/main.rs".to_owned()][..])
        );
        let use_of = |name: &str| xtask.links.iter().find(|link| link.to == name).map(|link| link.kind);
        assert_eq!((use_of("syn"), use_of("tempfile")), (Some(Use::Shipped), Some(Use::Shipped)));
    }
}
