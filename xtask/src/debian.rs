//! Debian packages, installed where they are missing and left alone where they are not.

use std::path::Path;

use anyhow::Result;

use crate::run::Invocation;

/// What many machines have from elsewhere: the package, and the program of it that is called.
const ELSEWHERE: [(&str, &str); 3] = [("default-jdk-headless", "javac"), ("nodejs", "node"), ("npm", "npm")];

/// Installs what is missing of `packages`: each with what calls it.
pub(crate) fn install(root: &Path, log: &Path, packages: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<&str> =
        packages.iter().map(|(name, _)| *name).filter(|name| !is_there(root, name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let quietly =
        |words: &[&str]| Invocation::new(root, words).env("DEBIAN_FRONTEND", "noninteractive").with_root();
    quietly(&["apt-get", "update"])?.logged(log)?;
    let install = ["apt-get", "install", "--yes", "--no-install-recommends"];
    quietly(&[&install[..], &missing[..]].concat())?.logged(log)
}

fn is_there(root: &Path, package: &str) -> bool {
    let query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package];
    let is_installed = Invocation::new(root, &query).capture().is_ok_and(|status| status == "installed");
    let found = |program: &str| {
        Invocation::new(root, &["sh", "-c", &format!("command -v {program}")]).capture().is_ok()
    };
    is_installed || ELSEWHERE.iter().any(|(other, program)| *other == package && found(program))
}
