//! `pond job`: the process that runs one job of a worker. Nobody starts it by hand: its order comes on standard input from the
//! daemon, whose end of that socket is also what keeps the job alive.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use anyhow::Context;
use pond_worker::order::{self, JobAnswer};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};

use crate::output::{self, REFUSED};
use crate::run::{self, Begun};

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

fn job(launcher: Begun) -> anyhow::Result<ExitCode> {
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
    let (answer, code) = match run::carry_out_order(&order, &secrets, &wires, launcher) {
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
