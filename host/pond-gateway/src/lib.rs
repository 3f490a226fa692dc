//! The job's only way out: one process per job, unprivileged, without a filesystem, which serves listeners made inside the
//! job's network namespace. It holds one job's model key and dials only what a permit of pond-policy names.
//!
//! Invariants: a verdict comes before any name is looked up; the address dialled is the one that was checked; no key of a
//! client ever leaves, and the real one never comes back; every refusal is typed and recorded.
#![forbid(unsafe_code)]

mod aliases;
mod anywhere;
pub mod broker;
mod bytes;
mod client;
pub mod connect;
mod control;
mod dial;
pub mod dns;
mod front;
mod gateway;
mod git;
pub mod hello;
pub mod http;
mod ledger;
mod lockdown;
mod models;
mod names;
mod outbox;
mod passage;
mod proxy;
mod relay;
mod resolve;
mod responder;
mod second;
mod serve;
mod stance;
mod start;
mod tunnels;

use std::error::Error;
use std::io;
use std::os::fd::AsFd;

use pond_wire::gateway::Event;
use thiserror::Error;

use control::ControlFault;
use lockdown::LockdownFault;
use serve::ServeFault;
use start::StartFault;

/// The name this program is re-executed under; the first thing `main` looks at.
pub const NAME: &str = "pond-gateway";

/// What ends a gateway.
#[derive(Debug, Error)]
pub(crate) enum Fault {
    #[error("starting")]
    Start(#[from] StartFault),
    #[error("locking down")]
    Lockdown(#[from] LockdownFault),
    #[error("starting the runtime")]
    Runtime(#[source] io::Error),
    #[error("serving")]
    Serve(#[from] ServeFault),
}

/// Serves one job on behalf of the host at the other end of standard input. Never returns to the caller's code.
pub fn main() -> ! {
    let code = match run() {
        Ok(())
        | Err(
            Fault::Serve(ServeFault::Control(ControlFault::HostGone)) | Fault::Start(StartFault::HostGone),
        ) => 0,
        Err(fault) => {
            // The asking side was told over the socket; this line is for the person who started the gateway by hand.
            let line = format!("{NAME}: {}\n", chain(&fault));
            rustix::io::write(rustix::stdio::stderr(), line.as_bytes()).map_or(71, |_| 70)
        }
    };
    pond_sys::process::exit_now(code)
}

fn run() -> Result<(), Fault> {
    // Before there is a key to hide; the lock-down does it again, because a change of identity undoes it.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .map_err(|errno| Fault::Runtime(errno.into()))?;
    let socket = start::take_socket()?;
    let told = rustix::io::fcntl_dupfd_cloexec(&socket, 3).map_err(|errno| Fault::Runtime(errno.into()))?;
    serve_at(socket).inspect_err(|fault| report(&told, fault))
}

fn serve_at(socket: std::os::fd::OwnedFd) -> Result<(), Fault> {
    let start = start::receive_order(&socket)?;
    let second = lockdown::lock_down(start.order.identity)?;
    let listeners = start::receive_doors(&socket)?;
    #[expect(
        clippy::disallowed_methods,
        reason = "the process ends with it at once: tunnels taken down one by one would outlive the host on the other thread"
    )]
    let runtime = Box::leak(Box::new(second::runtime().map_err(Fault::Runtime)?));
    Ok(runtime.block_on(serve::serve(start, socket, listeners, second))?)
}

/// Tells the host why there will be no service. A host that is gone does not need to know.
fn report(socket: impl AsFd, fault: &Fault) {
    let event = Event::Failed { reason: chain(fault) };
    if let Ok(text) = serde_json::to_vec(&event) {
        pond_sys::socket::send(socket, &text, &[]).unwrap_or_default();
    }
}

fn chain(fault: &dyn Error) -> String {
    let causes = std::iter::successors(Some(fault), |fault: &&dyn Error| (*fault).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
