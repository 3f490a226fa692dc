//! Unit and integration tests, run with root's rights because a sandbox is built with them.

use anyhow::{Context, Result};

use super::{Shop, runsc, tools};
use crate::run::{self, Invocation};

pub(super) fn run(shop: &Shop) -> Result<()> {
    tools::NEXTEST.ensure(shop)?;
    let gvisor = runsc::fetch(shop)?;
    let tests = shop.command(&["cargo", "nextest", "run", "--workspace"]);
    // The end of the log is what a failed run shows: what was expected, not how the runtime came there.
    let tests = tests.env("RUST_BACKTRACE", "0").env(runsc::VARIABLE, &gvisor.to_string_lossy());
    shop.step(as_root(shop, tests)?)
}

/// Built by whoever asks, run by root: the target folder stays the user's.
pub(super) fn as_root(shop: &Shop, tests: Invocation) -> Result<Invocation> {
    if run::is_root(&shop.root)? {
        return Ok(tests);
    }
    shop.command(&["true"]).with_root()?.capture().context("the tests need root")?;
    Ok(tests.env(&runner_variable(shop)?, "sudo --preserve-env"))
}

/// The variable that tells cargo what to start test binaries with.
fn runner_variable(shop: &Shop) -> Result<String> {
    let host = run::host_triple(&shop.root)?;
    Ok(format!("CARGO_TARGET_{}_RUNNER", host.to_uppercase().replace('-', "_")))
}
