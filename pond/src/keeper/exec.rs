//! One program in a sandbox, from the request to its end: its streams go to files that stay, bounded, and to whoever called, as fast
//! as they take them.
//!
//! Zone: host. Everything that arrives on the streams is hostile: it is counted, stored, handed on, and never parsed. How it ended is
//! pid 1's word. Whoever called and goes away ends it, unless he said otherwise.

pub(crate) mod kept;
mod watch;

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use pond_policy::life::{Event, Operation};
use pond_policy::profile::Commands;
use pond_policy::refusal::Refusals;
use pond_policy::sandboxes::check_exec;
use pond_wire::jail::{Console, ExecOrder};

use super::hub::{Ear, Hub};
use super::journal::Detail;
use super::protocol::{self, Answer, Exec, Refusal};
use crate::audit::{self, Fate};
use crate::run::request;
use kept::Kept;
use watch::{Program, Streams};

/// Runs it to its end, or lets it go on by itself.
pub(super) fn exec(hub: &Arc<Hub>, wanted: Exec, mut caller: UnixStream) {
    match begin(hub, &wanted) {
        Err(refusal) => if let Err(_gone) = protocol::say(&mut caller, &Answer::Refused(refusal)) {},
        Ok(program) => {
            let began = protocol::say(&mut caller, &Answer::Began { exec: program.number });
            // A caller who leaves hears nothing more, and a detached program goes on without him.
            let caller = if wanted.detach { None } else { Some(caller) };
            if let Err(_gone) = began {}
            program.run(hub, &wanted, caller);
        }
    }
}

fn begin(hub: &Hub, wanted: &Exec) -> Result<Program, Refusal> {
    hub.permit(Operation::Exec)?;
    allowed(hub, wanted)?;
    let (number, ear) = hub.listen(true)?;
    match start(hub, wanted, number, ear) {
        Ok(program) => Ok(program),
        Err(refusal) => {
            hub.forget(number);
            Err(refusal)
        }
    }
}

/// A profile that has a list of commands has it here too.
fn allowed(hub: &Hub, wanted: &Exec) -> Result<(), Refusal> {
    let policy = &hub.spec.policy;
    let env = wanted.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    // How many arguments it has, and how long they are, is the kernel's affair; the program itself has a name.
    let program = wanted.argv.get(..1).unwrap_or_default();
    check_exec(program, env, wanted.cwd.as_deref()).map_err(refused)?;
    if policy.posture().commands != Commands::Allowlisted {
        return Ok(());
    }
    let Err(denied) = pond_policy::command::check(&wanted.argv) else { return Ok(()) };
    let told = hub.audit.append(&line(hub, &wanted.argv), &Fate::Denied(denied.code()));
    told.map_err(|fault| failed("audit_failed", fault))?;
    Err(Refusal::new(denied.code(), format!("{denied}; {}", denied.hint())))
}

fn start(hub: &Hub, wanted: &Exec, number: u64, ear: Arc<Ear>) -> Result<Program, Refusal> {
    let console = match wanted.terminal {
        None => Console::Pipes,
        Some(size) if size.rows > 0 && size.columns > 0 => {
            Console::Terminal { rows: size.rows, columns: size.columns }
        }
        Some(_) => return Err(Refusal::new("terminal_invalid", "a terminal has rows and columns")),
    };
    let order =
        ExecOrder { argv: wanted.argv.clone(), env: wanted.env.clone(), cwd: wanted.cwd.clone(), console };
    let kept =
        Kept::create(&hub.place.execs(), number, wanted).map_err(|fault| failed("disk_full", fault))?;
    let (ours, theirs) = pipes(hub, console)?;
    let ends: Vec<_> = theirs.iter().map(AsFd::as_fd).collect();
    let asked = hub.ask(|serving| serving.start(number, &order, &ends));
    asked.map_err(|fault| failed("sandbox_lost", fault))?;
    let detail = Detail { exec: Some(number), ..Detail::default() };
    hub.note(Event::ExecStarted, detail).map_err(|fault| failed("sandbox_state_broken", fault))?;
    Ok(Program { number, ear, streams: ours, kept })
}

/// Ours, and the program's three; none of both where it gets a terminal.
fn pipes(hub: &Hub, console: Console) -> Result<(Option<Streams>, Vec<OwnedFd>), Refusal> {
    if let Console::Terminal { .. } = console {
        return Ok((None, Vec::new()));
    }
    let lost = |fault: pond_sandbox::native::ServingFault| failed("sandbox_lost", fault);
    let made = hub.ask(|serving| Ok([serving.pipe(), serving.pipe(), serving.pipe()])).map_err(lost)?;
    let [stdin, stdout, stderr] = made;
    let busy = |fault: std::io::Error| failed("sandbox_busy", fault);
    let (stdin, stdout, stderr) = (stdin.map_err(busy)?, stdout.map_err(busy)?, stderr.map_err(busy)?);
    for ours in [&stdin.1, &stdout.0, &stderr.0] {
        rustix::io::ioctl_fionbio(ours, true).map_err(|errno| busy(errno.into()))?;
    }
    let ours = Streams { stdin: Some(stdin.1), stdout: stdout.0, stderr: stderr.0 };
    Ok((Some(ours), vec![stdin.0, stdout.1, stderr.1]))
}

/// All that is wrong with it, under the code of the first.
fn refused(refusals: Refusals) -> Refusal {
    let list = refusals.into_list();
    let code = list.first().map_or("command_invalid", |first| first.code.name());
    let faults: Vec<String> = list.iter().map(|fault| format!("{}: {}", fault.path, fault.message)).collect();
    Refusal::new(code, faults.join("; "))
}

fn failed(code: &str, fault: impl Into<anyhow::Error>) -> Refusal {
    Refusal::new(code, format!("{:#}", fault.into()))
}

fn line<'a>(hub: &Hub, argv: &'a [String]) -> audit::Command<'a> {
    let policy = &hub.spec.policy;
    audit::Command { argv, profile: policy.profile().name(), backend: request::backend(policy).name() }
}
