//! The `none` profile: an explicit opt-out, said out loud every time.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};

use super::{Ran, Request, new_name};
use crate::{output, runs};

/// Runs the command as the caller, with the caller's environment and files. `POND_REQUIRE_SANDBOX` was asked before.
#[expect(clippy::disallowed_methods, reason = "this provider exists to start a process without a sandbox")]
pub(super) fn run(request: &Request<'_>) -> anyhow::Result<Ran> {
    let profile = request.policy.profile().name();
    if request.commission().is_some() {
        bail!("{profile} cannot be signed for: a statement tells of a sandbox [unconfined_sandbox]");
    }
    output::say(&format!("pond: warning: {profile} runs this command unconfined [unconfined_sandbox]"));
    let (program, rest) = request.argv.split_first().context("no command")?;
    let (id, started) = (new_name(runs::now())?, Instant::now());
    let status = Command::new(program)
        .args(rest)
        .current_dir(request.checkout)
        .status()
        .with_context(|| format!("starting {program}"))?;
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    let code = status.code().or(signal.map(|number| 128 + number)).unwrap_or(1);
    Ok(Ran { id, returncode: u8::try_from(code).unwrap_or(1), elapsed: started.elapsed(), timed_out: false })
}
