//! The Debian packages that tests call, and nothing else.

use anyhow::Result;

use super::Shop;
use crate::debian;

/// Package, and what calls it.
const PACKAGES: [(&str, &str); 7] = [
    ("bubblewrap", "the reference sandbox that ours is compared with"),
    ("e2fsprogs", "mkfs.ext4, for the size-capped layer a job writes to"),
    ("g++", "libFuzzer's runtime is C++"),
    ("git", "checkouts that tests make and jobs work in"),
    ("iproute2", "a look into a sandbox's network from outside"),
    ("python3", "the oracles, and an interpreter for jobs"),
    ("python3-venv", "throwaway environments for the oracles"),
];

pub(super) fn install(shop: &Shop) -> Result<()> {
    debian::install(&shop.root, &shop.log, &PACKAGES)
}
