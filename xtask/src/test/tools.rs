//! Cargo subcommands that the tests need, at versions that were seen to work.

use anyhow::Result;

use super::Shop;

pub(super) struct Tool {
    subcommand: &'static str,
    package: &'static str,
    version: &'static str,
}

pub(super) const NEXTEST: Tool = Tool { subcommand: "nextest", package: "cargo-nextest", version: "0.9.143" };
pub(super) const FUZZ: Tool = Tool { subcommand: "fuzz", package: "cargo-fuzz", version: "0.13.2" };

impl Tool {
    /// Installs the tool where there is none; one that is there already is taken as it is.
    pub(super) fn ensure(&self, shop: &Shop) -> Result<()> {
        if shop.command(&["cargo", self.subcommand, "--version"]).capture().is_ok() {
            return Ok(());
        }
        shop.step(shop.command(&["cargo", "install", "--locked", self.package, "--version", self.version]))
    }
}
