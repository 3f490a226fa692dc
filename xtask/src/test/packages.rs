//! What tests call: Debian packages, and one agent from npm below `target/xtask`. Nothing else.

use anyhow::Result;

use super::Shop;
use crate::debian;

/// Package, and what calls it.
const PACKAGES: [(&str, &str); 29] = [
    ("btrfs-progs", "mkfs.btrfs, for a filesystem on which a snapshot shares its blocks"),
    ("bubblewrap", "the reference sandbox that ours is compared with"),
    ("busybox-static", "the system of the emulated machine"),
    ("ca-certificates", "a client with nobody to trust fails too early to test"),
    ("curl", "a client of the test internet"),
    ("default-jdk-headless", "a client of the test internet"),
    ("docker.io", "an engine of the tests' own, for jobs in containers"),
    ("e2fsprogs", "mkfs.ext4, for the size-capped layer a job writes to"),
    ("g++", "libFuzzer's runtime is C++"),
    ("git", "checkouts that tests make and jobs work in"),
    ("iproute2", "the test internet's links, and a look into a sandbox's network from outside"),
    ("jq", "commands of the guides"),
    ("nodejs", "a client of the test internet, and what others run on"),
    ("npm", "a client of the test internet, and what brings others"),
    ("openssl", "the test internet's certificates"),
    ("postgresql", "the store's tests start one of their own"),
    ("python3", "the oracles, and an interpreter for jobs"),
    ("python3-httpx", "a client of the test internet"),
    ("python3-pip", "a client of the test internet"),
    ("python3-requests", "a client of the test internet"),
    ("python3-venv", "throwaway environments for the oracles"),
    ("qemu-system-x86", "a machine whose control groups are v2 only"),
    ("redis-tools", "a companion's cache: the server is in it, under another name"),
    ("shellcheck", "the judge of the scripts in deploy/"),
    ("strace", "makes one kind of system call fail, to see that a launch ends there"),
    ("tmux", "a person's terminal, driven and read by tests"),
    ("util-linux", "the test internet's namespaces"),
    ("wget", "a client of the test internet"),
    ("xz-utils", "unpacks modules of the emulated machine's kernel"),
];

/// The last Claude Code that is one file of JavaScript: 45 MB, where later ones bring a runtime of 230.
const CLAUDE_CODE: (&str, &str) = ("@anthropic-ai/claude-code", "2.1.87");

pub(super) fn install(shop: &Shop) -> Result<()> {
    debian::install(&shop.root, &shop.log, &PACKAGES)?;
    claude_code(shop)
}

fn claude_code(shop: &Shop) -> Result<()> {
    let (package, version) = CLAUDE_CODE;
    let place = shop.target.join("xtask").join(format!("claude-code-{version}"));
    if place.join("node_modules/.bin/claude").exists() {
        return Ok(());
    }
    let (place, wanted) = (place.to_string_lossy(), format!("{package}@{version}"));
    let quietly = ["npm", "install", "--no-audit", "--no-fund", "--omit=optional", "--prefix"];
    shop.step(shop.command(&[&quietly[..], &[&*place, &wanted]].concat()))
}
