//! Pid 1 of a native sandbox: waits, reaps, counts, reports, and ends everything when its worker is gone.
//!
//! Zone: hostile. It shares its namespaces with the job, so it holds no key, no allowlist and no capability, and its filter
//! lets it do little more than wait. Removing it must weaken nothing: it is no control, only an undertaker; where it does not answer
//! whether there may be one more socket for routing messages, there is none. What it reports is
//! the kernel's word on the job's main process, never anything the job said.
#![forbid(unsafe_code)]

mod pack;
mod relay;
mod unpack;

pub use relay::{Announcer, Relay, Window, relay, say, tell};
pub use unpack::unpack;

use std::os::fd::OwnedFd;

use pond_sys::counted::Counter;
use pond_sys::process::{Ended, Status, exit_now, reap_any};
use pond_sys::seccomp::{Filter, install};
use pond_wire::jail::{Report, Usage};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Pid;

use relay::write_all;

/// A job that was forked, and what init needs to watch it.
#[derive(Debug)]
pub struct Started {
    pub job: Pid,
    /// Readable when any child changed state.
    pub child_events: OwnedFd,
    pub filter: Filter,
    /// The job's end of its terminal, kept so that the other end sees no hang-up while the job closes and reopens its own.
    pub terminal: Option<OwnedFd>,
    /// Absent where the job ended before its filter held.
    pub counter: Option<Counter>,
}

/// Watches until the job ends or the lifeline closes. When this process exits the kernel kills everything in the sandbox.
pub fn watch(started: &Started, lifeline: &OwnedFd, report: OwnedFd) -> ! {
    let ended = guard(started).and_then(|()| wait(started, lifeline));
    let what = match ended {
        Ok(Some(ended)) => outcome(ended),
        // The worker is gone, and with it anyone to tell.
        Ok(None) => exit_now(0),
        // The job runs by now, and a step of the launch did not fail: it ends here without a verdict.
        Err(_errno) => exit_now(1),
    };
    // Its filter leaves it `write` and takes `sendmsg`: a report needs no descriptors.
    let told = rustix::io::write(&report, &what.encode());
    // Left to the end of this process it would be closed after the namespaces, which takes the kernel a while.
    drop(report);
    match told {
        Ok(_) => exit_now(0),
        Err(_gone) => exit_now(1),
    }
}

fn guard(started: &Started) -> Result<(), Errno> {
    install(&started.filter).map_err(errno)
}

fn errno(fault: std::io::Error) -> Errno {
    Errno::from_io_error(&fault).unwrap_or(Errno::IO)
}

fn wait(started: &Started, lifeline: &OwnedFd) -> Result<Option<Ended>, Errno> {
    let mut counter = started.counter.as_ref();
    loop {
        let mut ready = vec![
            PollFd::new(&started.child_events, PollFlags::IN),
            PollFd::new(lifeline, PollFlags::empty()),
        ];
        ready.extend(counter.map(|counter| PollFd::new(&counter.listener, PollFlags::IN)));
        match poll(&mut ready, None) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        let mut ready = ready.iter().map(PollFd::revents);
        let mut next = || ready.next().unwrap_or(PollFlags::empty());
        let (child, life, counts) = (!next().is_empty(), !next().is_empty(), next());
        if life {
            return Ok(None);
        }
        match counter {
            Some(asked) if counts.contains(PollFlags::IN) => asked.answer().map_err(errno)?,
            // Nobody is left who could ask.
            Some(_) if !counts.is_empty() => counter = None,
            Some(_) | None => {}
        }
        if child && let Some(ended) = reap(&started.child_events, started.job)? {
            return Ok(Some(ended));
        }
    }
}

/// Reaps every child that has ended; orphans of the job land here too.
fn reap(child_events: &OwnedFd, job: Pid) -> Result<Option<Ended>, Errno> {
    let mut discard = [0; 512];
    match rustix::io::read(child_events, &mut discard) {
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
        Err(errno) => return Err(errno),
    }
    loop {
        match reap_any() {
            Ok(Some(ended)) if ended.pid == job.as_raw_nonzero().get() => return Ok(Some(ended)),
            Ok(Some(_orphan)) => {}
            Ok(None) => return Ok(None),
            Err(fault) => match Errno::from_io_error(&fault) {
                Some(Errno::CHILD | Errno::INTR) => return Ok(None),
                other => return Err(other.unwrap_or(Errno::IO)),
            },
        }
    }
}

/// The kernel's word on a process, as it is told.
pub fn outcome(ended: Ended) -> Report {
    let usage = Usage { max_rss_kib: ended.max_rss_kib, cpu_micros: ended.cpu_micros };
    match ended.status {
        Status::Exited(code) => Report::Exited { code, usage },
        Status::Signaled(signal) => Report::Signaled { signal, usage },
    }
}
