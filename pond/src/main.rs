//! `pond`: the one command a user installs. This file only chooses the role; each command has its own file.
#![forbid(unsafe_code)]

mod agent_cmd;
mod apply_cmd;
mod attack;
mod audit;
mod cli;
mod client;
mod doctor;
mod explain;
mod failure;
mod host_cmd;
mod input;
mod job_cmd;
mod keeper;
mod keeping;
mod mcp;
mod operator;
mod orchestrator_cmd;
mod output;
mod policy_cmd;
mod preflight_cmd;
mod proof;
mod reference;
mod remote;
mod rules_cmd;
mod run;
mod runs;
mod sandbox_cmd;
mod serve;
mod settings;
mod signals;
mod up;
mod verify;
mod worker_cmd;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use pond_sandbox::native::{Forked, Launcher, Owner};
use run::Ready;
use rustix::fs::Mode;

/// After the three streams.
const FIRST_INHERITED: u32 = 3;

fn main() -> ExitCode {
    // The launcher, the gateway and pid 1 of a container are this same file under other names, and each must be itself
    // before anything else of ours has run.
    let name = std::env::args_os().next();
    if name.as_ref().is_some_and(|name| name == pond_jail::NAME) {
        pond_jail::main()
    }
    if name.as_ref().is_some_and(|name| name == pond_gateway::NAME) {
        pond_gateway::main()
    }
    if name.is_some_and(|name| name == pond_wire::contained::PROGRAM) {
        let words: Vec<_> = std::env::args_os().skip(1).filter_map(|word| word.into_string().ok()).collect();
        match words.as_slice() {
            [word, target] if word == pond_wire::contained::UNPACK => pond_jail::unpack(target),
            _ => pond_jail::contained(),
        }
    }
    if std::env::args_os()
        .next()
        .is_some_and(|name| Path::new(&name).file_name() == Some(OsStr::new(attack::probe::NAME)))
    {
        return attack::probe::main();
    }
    keep_own_access();
    let command = std::env::args_os().nth(1);
    let is = |name: &str| command.as_ref().is_some_and(|command| command == name);
    // Whoever stays when its caller leaves keeps nothing that the caller had open: somebody may wait for the end of it.
    if (is(keeper::NAME) || is(keeper::waiter::NAME)) && pond_sys::fd::close_from(FIRST_INHERITED).is_err() {
        return ExitCode::from(output::REFUSED);
    }
    if is("run") || is("agent") || is(job_cmd::NAME) || is(keeper::NAME) {
        // A run needs a launcher, which is to know nothing of the caller: it is made while there is nothing to know.
        let begun = match Launcher::fork() {
            Ok(Forked::Launcher) => pond_jail::main(),
            Ok(Forked::Asking(launcher)) => {
                // Whoever waits for an order has time for more than that.
                if is("run") || (!is(job_cmd::NAME) && rustix::process::geteuid().is_root()) {
                    stand_by(&launcher);
                }
                Ok(Ready::Launcher(launcher))
            }
            Err(fault) => Err(fault.into()),
        };
        return match () {
            () if is("run") => cli::run(begun),
            () if is("agent") => cli::agent(begun),
            () if is(keeper::NAME) => keeper::main(begun),
            () => job_cmd::main(begun),
        };
    }
    if is(keeper::waiter::NAME) {
        return keeper::waiter::main();
    }
    if is("sandbox") {
        // Of its keeper too: whoever keeps a sandbox gets ready while this process reads what is wanted.
        let word = std::env::args_os().nth(2);
        if word.as_ref().is_some_and(|word| word == "exec") {
            return cli::sandbox_exec();
        }
        let needed = word.as_ref().and_then(|word| word.to_str()).is_some_and(sandbox_cmd::needs_keeper);
        return cli::sandbox(needed.then(keeper::client::Starting::start));
    }
    cli::any()
}

/// Whatever else the caller's mask withholds: what pond makes, its owner must be able to open again.
fn keep_own_access() {
    let mask = rustix::process::umask(Mode::RWXU);
    rustix::process::umask(mask.difference(Mode::RWXU));
}

/// Lets the launcher begin with what any job gets, while the command line is still to be read. Whose the checkout is can be guessed
/// from where this process stands.
fn stand_by(launcher: &Launcher) {
    let Ok(here) = rustix::fs::stat(".") else { return };
    // What fails here fails again when the job is launched, and is told then.
    if let Err(_told_later) = launcher.stand_by(Owner { uid: here.st_uid, gid: here.st_gid }) {}
}
