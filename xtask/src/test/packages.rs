//! The Debian packages that tests call, and nothing else.

use anyhow::Result;

use super::Shop;
use crate::debian;

/// Package, and what calls it.
const PACKAGES: [(&str, &str); 13] = [
    ("btrfs-progs", "mkfs.btrfs, for a filesystem on which a snapshot shares its blocks"),
    ("bubblewrap", "the reference sandbox that ours is compared with"),
    ("busybox-static", "the system of the emulated machine"),
    ("e2fsprogs", "mkfs.ext4, for the size-capped layer a job writes to"),
    ("g++", "libFuzzer's runtime is C++"),
    ("git", "checkouts that tests make and jobs work in"),
    ("iproute2", "a look into a sandbox's network from outside"),
    ("python3", "the oracles, and an interpreter for jobs"),
    ("python3-venv", "throwaway environments for the oracles"),
    ("qemu-system-x86", "a machine whose control groups are v2 only"),
    ("strace", "makes one kind of system call fail, to see that a launch ends there"),
    ("tmux", "a person's terminal, driven and read by tests"),
    ("xz-utils", "unpacks modules of the emulated machine's kernel"),
];

pub(super) fn install(shop: &Shop) -> Result<()> {
    debian::install(&shop.root, &shop.log, &PACKAGES)
}
