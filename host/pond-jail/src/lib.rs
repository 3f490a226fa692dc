//! The privileged launcher: a small process with one thread that turns plans into sandboxes.
//!
//! Zone: host, the only part of pond that holds CAP_SYS_ADMIN. It starts with an empty environment, inherits one socket,
//! reads no configuration file and touches no network. A plan it does not wholly understand is refused. Nothing is undone in
//! place: a failed step ends the attempt, and what it made goes away with its last descriptor.
#![forbid(unsafe_code)]

mod ahead;
mod check;
mod confirm;
mod contained;
mod disk;
mod doors;
mod enter;
mod everywhere;
mod fault;
mod ground;
mod home;
mod idmap;
mod inside;
mod job;
mod netlink;
mod owners;
mod request;
mod root;
mod serving;
mod shown;
mod stage;
mod storage;
mod terminal;
mod visit;
mod writable;

pub use contained::contained;
pub use fault::Fault;
pub use pond_init::unpack;

use std::os::fd::{AsFd, OwnedFd};

use ahead::Ahead;
use enter::Prepared;
use fault::Failure;
use ground::Laid;
use pond_wire::jail::Step;
use request::{Footing, Request};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// The name this program is re-executed under; the first thing `main` looks at.
pub const NAME: &str = "pond-jail";

/// Serves requests until the socket's other end is closed. Never returns to the caller's code.
pub fn main() -> ! {
    let code = match serve() {
        Ok(()) => 0,
        Err(fault) => {
            // The asking side sees only a closed socket, and a person who started the launcher by hand sees nothing else.
            let why =
                std::error::Error::source(&fault).map(|source| format!(": {source}")).unwrap_or_default();
            rustix::io::write(rustix::stdio::stderr(), format!("{NAME}: {fault}{why}\n").as_bytes())
                .map_or(71, |_| 70)
        }
    };
    pond_sys::process::exit_now(code)
}

fn serve() -> Result<(), Fault> {
    let socket = scrub()?;
    let children = pond_sys::signal::child_events().map_err(Fault::Scrub)?;
    // Before anybody asks; what fails is tried again, and told, when somebody does.
    let mut ahead = Ahead::make().ok();
    let mut laid: Option<Laid> = None;
    let mut prepared: Option<Result<Prepared, Failure>> = None;
    loop {
        let mut ready = [PollFd::new(&socket, PollFlags::IN), PollFd::new(&children, PollFlags::IN)];
        match poll(&mut ready, None) {
            Err(Errno::INTR) => continue,
            other => other.map_err(|errno| Fault::Scrub(errno.into()))?,
        };
        let [request, child] = ready.map(|fd| !fd.revents().is_empty());
        if child {
            reap(&children)?;
        }
        if request {
            match request::receive(socket.as_fd())? {
                Some(Request::Lay(lay)) => {
                    // A launch that was prepared and never came was given up; the processes of a ground would hold what belongs to it.
                    drop((prepared.take(), laid.take()));
                    laid = Some(Laid::lay(ahead.take(), lay));
                }
                Some(Request::Prepare(groundwork)) => {
                    // Whoever stands on a ground that was never laid has lost count.
                    let missing = Failure { step: Step::CreateNamespaces, errno: Errno::NOENT };
                    prepared = Some(match groundwork.on {
                        Footing::Ground => {
                            laid.take().ok_or(missing).and_then(|laid| enter::prepare_on(laid, groundwork))
                        }
                        Footing::Bare => {
                            drop(laid.take());
                            let ahead = ahead.take().map_or_else(Ahead::make, Ok);
                            ahead.and_then(|ahead| enter::prepare(ahead, groundwork))
                        }
                    });
                }
                Some(Request::Launch(launch)) => {
                    let laid = || laid.take_if(|laid| laid.has_child()).map(enter::prepared_by);
                    enter::launch(prepared.take().or_else(laid), &launch);
                }
                Some(Request::Stage(stage)) => stage::stage(&stage),
                Some(Request::Visit(visit)) => visit::visit(&visit),
                None => return Ok(()),
            }
        }
    }
}

/// Drops what was inherited and must not be: descriptors beyond the socket, the right of others to look inside, and every
/// precedence over the host's other processes.
///
/// The socket arrives as standard input, the one place a parent can put a descriptor without unsafe code.
fn scrub() -> Result<OwnedFd, Fault> {
    let stdin = rustix::stdio::stdin();
    rustix::net::sockopt::socket_type(stdin).map_err(|errno| Fault::NoSocket(errno.into()))?;
    // First of all, or an inherited descriptor could stand where the socket is about to go.
    pond_sys::fd::close_from(3).map_err(Fault::Scrub)?;
    let socket = rustix::io::fcntl_dupfd_cloexec(stdin, 3).map_err(|errno| Fault::Scrub(errno.into()))?;
    rustix::stdio::dup2_stdin(rustix::stdio::stderr()).map_err(|errno| Fault::Scrub(errno.into()))?;
    // An ordinary user's launcher must stay dumpable until its child has written its own id maps: the files under /proc of
    // a process that is not belong to root. Its init is made undumpable in either case.
    if rustix::process::geteuid().is_root() {
        set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|errno| Fault::Scrub(errno.into()))?;
    }
    pond_sys::precedence::give_up().map_err(Fault::Scrub)?;
    // Whatever the caller's is: what is made here others must be able to see, and nobody else to write.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::process::chdir("/").map_err(|errno| Fault::Scrub(errno.into()))?;
    Ok(socket)
}

fn reap(children: &OwnedFd) -> Result<(), Fault> {
    let mut discard = [0; 1024];
    match rustix::io::read(children, &mut discard) {
        Ok(_) | Err(Errno::AGAIN) => {}
        Err(errno) => return Err(Fault::Scrub(errno.into())),
    }
    loop {
        match pond_sys::process::reap_any() {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(()),
            Err(fault) if fault.raw_os_error() == Some(Errno::CHILD.raw_os_error()) => {
                return Ok(());
            }
            Err(fault) => return Err(Fault::Scrub(fault)),
        }
    }
}
