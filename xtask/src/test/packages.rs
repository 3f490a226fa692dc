//! The Debian packages that tests call, and nothing else.

use anyhow::Result;

use super::Shop;

/// Package, and what calls it.
const PACKAGES: [(&str, &str); 8] = [
    ("bubblewrap", "the reference sandbox that ours is compared with"),
    ("e2fsprogs", "mkfs.ext4, for the size-capped layer a job writes to"),
    ("g++", "libFuzzer's runtime is C++"),
    ("git", "checkouts that tests make and jobs work in"),
    ("iproute2", "a look into a sandbox's network from outside"),
    ("python3", "the oracles, and an interpreter for jobs"),
    ("python3-venv", "throwaway environments for the oracles"),
    ("tmux", "a person's terminal, driven and read by tests"),
];

pub(super) fn install(shop: &Shop) -> Result<()> {
    let missing: Vec<&str> =
        PACKAGES.iter().map(|(name, _)| *name).filter(|name| !is_installed(shop, name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let quietly = |words: &[&str]| shop.command(words).env("DEBIAN_FRONTEND", "noninteractive").with_root();
    shop.step(quietly(&["apt-get", "update"])?)?;
    let install = ["apt-get", "install", "--yes", "--no-install-recommends"];
    shop.step(quietly(&[&install[..], &missing[..]].concat())?)
}

fn is_installed(shop: &Shop, package: &str) -> bool {
    let query = shop.command(&["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]);
    query.capture().is_ok_and(|status| status == "installed")
}
