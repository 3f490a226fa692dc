//! The `none` profile: an explicit opt-out, said out loud every time.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};

use super::args::TerminalWish;
use super::{Ran, Request, RunArgs, new_name};
use crate::{output, runs};

/// Runs the command as the caller, with the caller's environment and files. `POND_REQUIRE_SANDBOX` was asked before.
#[expect(clippy::disallowed_methods, reason = "this provider exists to start a process without a sandbox")]
pub(super) fn run(request: &Request<'_>) -> anyhow::Result<Ran> {
    let (args, profile) = (request.args, request.policy.profile().name());
    if let Some(flag) = idle_flag(args) {
        bail!("{flag} means nothing without a sandbox, and {profile} has none; leave one of them out");
    }
    output::say(&format!("pond: warning: {profile} runs this command unconfined [unconfined_sandbox]"));
    let (program, rest) = args.argv.split_first().context("no command")?;
    let (id, started) = (new_name(runs::now())?, Instant::now());
    let status = Command::new(program)
        .args(rest)
        .current_dir(&args.checkout)
        .status()
        .with_context(|| format!("starting {program}"))?;
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    let code = status.code().or(signal.map(|number| 128 + number)).unwrap_or(1);
    Ok(Ran { id, returncode: u8::try_from(code).unwrap_or(1), elapsed: started.elapsed(), timed_out: false })
}

/// A flag that was given and could never take effect here.
fn idle_flag(args: &RunArgs) -> Option<&'static str> {
    let given = [
        (args.timeout.is_some(), "--timeout"),
        (!args.env.is_empty(), "--env"),
        (args.json, "--json"),
        (args.out.is_some(), "--out"),
        (args.snapshot, "--snapshot"),
        (!args.artifacts.is_empty(), "--artifact"),
        (!args.tools.is_empty(), "--tool"),
        (args.keep_ignored, "--keep-ignored"),
        (args.terminal() == TerminalWish::Required, "--tty"),
    ];
    given.into_iter().find_map(|(is_given, flag)| is_given.then_some(flag))
}
