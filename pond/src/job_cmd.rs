//! `pond job STATE`: the process that runs one job of a worker. Nobody starts it by hand: its order comes on standard input from the
//! daemon, whose end of that socket is also what keeps the job alive. Until there is one it makes ready what most jobs get.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use pond_policy::node::Node;
use pond_policy::profile::Profile;
use pond_policy::sandbox::resolve;
use pond_sandbox::native::Owner;
use pond_sandbox::native::cgroup::CgroupHost;
use pond_sandbox::state::StateDir;
use pond_worker::order::{self, JobAnswer};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};

use crate::output::{self, REFUSED};
use crate::run::{self, Begun, Ready};
use crate::settings;

/// The word that chooses this role.
pub(crate) const NAME: &str = "job";

/// Every answer fits a line.
const MOST_MESSAGE: usize = order::MOST_LINE / 8;

pub(crate) fn main(launcher: Begun) -> ExitCode {
    match job(launcher) {
        Ok(code) => code,
        Err(fault) => output::failed(&fault, false),
    }
}

/// Makes ready what a job gets that asks for nothing in particular. What cannot be made now is made with the job, or the reason is told
/// then.
fn stand_by(begun: Begun, state: &StateDir) -> Begun {
    let (Ok(settings), Ok(disk_rate), Ok(_can_limit), true) = (
        settings::sandbox(),
        settings::disk_rate(),
        CgroupHost::detect(),
        rustix::process::geteuid().is_root(),
    ) else {
        return begun;
    };
    let native = begun?.native(state.clone())?.at_rate(disk_rate);
    let block = Node::Map(vec![("profile".to_owned(), Node::text(Profile::Write.name()))]);
    // The daemon unpacks the source, as the same user.
    let owner = Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
    if let Ok(usual) = resolve(Some(&block), &settings)
        && let Err(_told_then) = native.stand_by(&usual, owner)
    {}
    Ok(Ready::Native(Box::new(native)))
}

fn job(launcher: Begun) -> anyhow::Result<ExitCode> {
    let state =
        std::env::args_os().nth(2).context("no state directory; a worker's daemon starts `pond job`")?;
    let state = StateDir::open(Path::new(&state))?;
    let ready = stand_by(launcher, &state);
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    let (order, secrets, wires) = match order::receive(UnixStream::from(socket)) {
        // Whoever would have given an order is gone, and nobody is left to hear of it.
        Err(fault) if fault.kind() == std::io::ErrorKind::UnexpectedEof => {
            return Ok(ExitCode::from(REFUSED));
        }
        received => received.context("no order; a worker's daemon starts `pond job`")?,
    };
    // A daemon that starts meanwhile sees that somebody still works here.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let in_use = open(&order.checkout, flags, Mode::empty()).context("opening the source")?;
    flock(&in_use, FlockOperation::LockShared)?;
    let (answer, code) = match run::carry_out_order(&order, &secrets, &wires, (state, ready)) {
        Ok(ran) => (JobAnswer::Ended { run: ran.id.as_str().to_owned() }, ExitCode::SUCCESS),
        Err(fault) => {
            let code = fault.code().to_owned();
            let message = output::plain(&format!("{:#}", anyhow::Error::from(fault)));
            let message = message.chars().take(MOST_MESSAGE).collect();
            (JobAnswer::Failed { code, message }, ExitCode::from(REFUSED))
        }
    };
    order::answer(&mut &wires.socket, &answer).context("answering the daemon")?;
    Ok(code)
}
