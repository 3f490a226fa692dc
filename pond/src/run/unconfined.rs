//! The `none` profile: an explicit opt-out, said out loud every time.

use std::process::Command;

use anyhow::Context;
use pond_policy::sandbox::SandboxPolicy;

use super::RunArgs;

/// Runs the command as the caller, with the caller's environment and files. `POND_REQUIRE_SANDBOX` was asked before.
#[expect(clippy::disallowed_methods, reason = "this provider exists to start a process without a sandbox")]
pub(super) fn run(args: &RunArgs, policy: &SandboxPolicy) -> anyhow::Result<u8> {
    eprintln!("pond: warning: {} runs this command unconfined [unconfined_sandbox]", policy.profile().name());
    let (program, rest) = args.argv.split_first().context("no command")?;
    let status = Command::new(program)
        .args(rest)
        .current_dir(&args.checkout)
        .status()
        .with_context(|| format!("starting {program}"))?;
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    let code = status.code().or(signal.map(|number| 128 + number)).unwrap_or(1);
    Ok(u8::try_from(code).unwrap_or(1))
}
