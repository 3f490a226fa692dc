//! Unit and integration tests, run with root's rights because a sandbox is built with them.

use anyhow::{Context, Result};

use super::{Shop, runsc, tools};
use crate::run;

pub(super) fn run(shop: &Shop) -> Result<()> {
    tools::NEXTEST.ensure(shop)?;
    let gvisor = runsc::fetch(shop)?;
    let tests = shop.command(&["cargo", "nextest", "run", "--workspace"]);
    let mut tests = tests.env(runsc::VARIABLE, &gvisor.to_string_lossy());
    if !run::is_root(&shop.root)? {
        // Built by the user, run by root: the target folder stays the user's.
        shop.command(&["true"]).with_root()?.capture().context("the tests need root")?;
        tests = tests.env(&runner_variable(shop)?, "sudo --preserve-env");
    }
    shop.step(tests)
}

/// The variable that tells cargo what to start test binaries with.
fn runner_variable(shop: &Shop) -> Result<String> {
    let host = run::host_triple(&shop.root)?;
    Ok(format!("CARGO_TARGET_{}_RUNNER", host.to_uppercase().replace('-', "_")))
}
