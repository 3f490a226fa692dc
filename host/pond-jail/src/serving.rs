//! Pid 1 of a sandbox that lasts: runs what its keeper asks for, says how each program ended, and reaps.
//!
//! Zone: hostile. It shares its namespaces with the jobs, so it holds no key and no allowlist, nobody inside can read, trace or
//! signal it (another user, not dumpable, outside their Landlock domain, and their filter refuses it as a target), and it runs
//! under the same filter as they do. Unlike the pid 1 of a single job it keeps four capabilities, over the sandbox's own user
//! namespace alone: three to become the user that a job is, one to end it. It is no control either: each job goes through the same
//! `confine` as the job of `pond run`, in its own process.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pond_sys::counted::Counter;
use pond_sys::process::{Ended, exit_now, fork_plainly, reap_any};
use pond_sys::seccomp;
use pond_wire::jail::{self, Answer, Ask, Console, ExecOrder, Report, Step};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal};
use rustix::thread::CapabilitySet;

use crate::fault::{At, Failure};
use crate::job::{self, Filter, Job};
use crate::request::{self, Order};
use crate::writable::Rules;
use crate::{check, terminal};

/// To become a job's user, to lock its capabilities away, and to signal what then belongs to somebody else.
const KEPT: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::KILL);
/// Programs at the same time. A keeper asks for fewer; this is for the day it is wrong.
const MOST: usize = 1024;

/// A program that runs.
struct Running {
    exec: u64,
    pid: Pid,
    /// Its end of its terminal, kept so that the other end sees no hang-up while it closes and reopens its own.
    _terminal: Option<OwnedFd>,
}

struct Serving<'a> {
    order: &'a Order,
    rules: &'a Rules,
    report: BorrowedFd<'a>,
    running: Vec<Running>,
}

/// The last steps of pid 1 before it serves: what it does not need goes. It hears of what its filter leaves to it.
pub(crate) fn guard(filter: &seccomp::Filter, kept: &[BorrowedFd<'_>]) -> Result<OwnedFd, Failure> {
    job::keep_capabilities(KEPT).at(Step::GuardInit)?;
    rustix::thread::set_no_new_privs(true).at(Step::GuardInit)?;
    pond_sys::fd::close_all_but(kept).at(Step::GuardInit)?;
    seccomp::install_with_listener(filter).at(Step::GuardInit)
}

/// Serves until the keeper is gone. When this process exits the kernel kills everything in the sandbox.
pub(crate) fn serve(
    order: &Order,
    rules: &Rules,
    (child_events, counter): (OwnedFd, &Counter),
    report: OwnedFd,
) -> ! {
    let mut serving = Serving { order, rules, report: report.as_fd(), running: Vec::new() };
    if pond_sys::socket::send(&report, &Report::Serving.encode(), &[]).is_err() {
        exit_now(0)
    }
    loop {
        match serving.turn(&child_events, counter) {
            Ok(true) => {}
            Ok(false) => exit_now(0),
            Err(_without_anybody_to_tell) => exit_now(1),
        }
    }
}

impl Serving<'_> {
    /// One wait and what follows from it; false when nobody is there any more.
    fn turn(&mut self, child_events: &OwnedFd, counter: &Counter) -> Result<bool, Failure> {
        let mut ready = [
            PollFd::from_borrowed_fd(self.report, PollFlags::IN),
            PollFd::new(child_events, PollFlags::IN),
            PollFd::new(&self.order.lifeline, PollFlags::empty()),
            PollFd::new(&counter.listener, PollFlags::IN),
        ];
        match poll(&mut ready, None) {
            Err(Errno::INTR) => return Ok(true),
            other => drop(other.at(Step::GuardInit)?),
        }
        let [asked, child, life, counts] = ready.map(|fd| !fd.revents().is_empty());
        if life {
            return Ok(false);
        }
        if counts {
            counter.answer().at(Step::GuardInit)?;
        }
        if child {
            self.reap(child_events)?;
        }
        if asked { self.hear() } else { Ok(true) }
    }

    /// A request that is not wholly understood ends everything: whoever asks has lost count.
    fn hear(&mut self) -> Result<bool, Failure> {
        let mut bytes = [0; 64];
        let (length, descriptors) = pond_sys::socket::receive(self.report, &mut bytes).at(Step::GuardInit)?;
        if length == 0 {
            return Ok(false);
        }
        let refused = Failure { step: Step::GuardInit, errno: Errno::BADMSG };
        match bytes.get(..length).and_then(|bytes| Ask::decode(bytes).ok()).ok_or(refused)? {
            Ask::Start { exec } => self.start(exec, descriptors),
            Ask::Signal { exec, signal } => self.signal(exec, signal),
            Ask::Connect { call, port } => self.connect(call, port),
        }
        Ok(true)
    }

    fn start(&mut self, exec: u64, descriptors: Vec<OwnedFd>) {
        match self.attempt(exec, descriptors) {
            Ok((running, master)) => {
                self.running.push(running);
                // Only a terminal is news: whoever made the pipes has their ends, and would be woken for nothing.
                if let Some(master) = master {
                    self.tell(exec, Report::Began, &[master.as_fd()]);
                }
            }
            Err(failure) => self.tell(exec, failure.report(), &[]),
        }
    }

    /// The process, and the master of its terminal. Its own failures it tells itself.
    fn attempt(&self, exec: u64, descriptors: Vec<OwnedFd>) -> Result<(Running, Option<OwnedFd>), Failure> {
        let invalid = Failure { step: Step::CheckPlan, errno: Errno::INVAL };
        let mut descriptors = descriptors.into_iter();
        let order = request::sealed(&descriptors.next().ok_or(invalid)?)?;
        let order: ExecOrder = jail::decode(&order).map_err(|_| invalid)?;
        let console = order.console;
        let program = order.over(&self.order.plan.program);
        let streams: Vec<OwnedFd> = descriptors.collect();
        if !check::program_is_sound(&program) || self.running.iter().any(|other| other.exec == exec) {
            return Err(invalid);
        }
        if self.running.len() >= MOST {
            return Err(Failure { step: Step::ForkJob, errno: Errno::AGAIN });
        }
        let (pipes, made) = match console {
            Console::Pipes => (Some(streams.try_into().map_err(|_wrong_count| invalid)?), None),
            Console::Terminal { .. } if streams.is_empty() => (None, terminal::open(console)?),
            Console::Terminal { .. } => return Err(invalid),
        };
        let (master, terminal) = made.map(|made| (made.master, made.job_end)).unzip();
        match fork_plainly().at(Step::ForkJob)? {
            Some(pid) => Ok((Running { exec, pid, _terminal: terminal }, master)),
            None => {
                let (plan, terminal) = (&self.order.plan, terminal.as_ref());
                let (filter, rules) = (Filter::Inherited, Some(self.rules));
                let job = Job { plan, program: &program, pipes: pipes.as_ref(), terminal, filter, rules };
                let failure = job::run(&job, self.report);
                self.tell(exec, failure.report(), &[]);
                exit_now(1)
            }
        }
    }

    /// To everything that did not leave the group of the exec's first process. That process is not waited for yet, so its number
    /// is still its own.
    fn signal(&self, exec: u64, signal: u8) {
        let running = self.running.iter().find(|running| running.exec == exec);
        let signal = Signal::from_named_raw(signal.into());
        if let (Some(running), Some(signal)) = (running, signal) {
            // Between its birth and its own session it is in the group of pid 1, and there it is alone to be meant.
            let group = rustix::process::kill_process_group(running.pid, signal);
            if group.is_err()
                && let Err(_gone) = rustix::process::kill_process(running.pid, signal)
            {}
        }
    }

    /// Never waits: whoever gets the socket sees whether the connection came to be.
    fn connect(&self, call: u64, port: u16) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let made = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
        let begun = made.and_then(|socket| {
            match rustix::net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)) {
                Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
                Err(errno) => Err(errno),
            }
        });
        match begun.at(Step::Connect) {
            Ok(socket) => self.tell(call, Report::Connected, &[socket.as_fd()]),
            Err(failure) => self.tell(call, failure.report(), &[]),
        }
    }

    /// Of all that ended, its own and the orphans of jobs.
    fn reap(&mut self, child_events: &OwnedFd) -> Result<(), Failure> {
        let mut discard = [0; 1024];
        match rustix::io::read(child_events, &mut discard) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(Failure { step: Step::GuardInit, errno }),
        }
        loop {
            match reap_any() {
                Ok(Some(ended)) => self.ended(ended),
                Ok(None) => return Ok(()),
                Err(fault) => match Errno::from_io_error(&fault) {
                    Some(Errno::CHILD | Errno::INTR) => return Ok(()),
                    other => {
                        let errno = other.unwrap_or(Errno::IO);
                        return Err(Failure { step: Step::GuardInit, errno });
                    }
                },
            }
        }
    }

    fn ended(&mut self, ended: Ended) {
        let is_it = |running: &Running| running.pid.as_raw_nonzero().get() == ended.pid;
        let Some(at) = self.running.iter().position(is_it) else { return };
        let running = self.running.swap_remove(at);
        self.tell(running.exec, pond_init::outcome(ended), &[]);
    }

    /// A keeper that is gone is noticed at the next wait.
    fn tell(&self, id: u64, report: Report, descriptors: &[BorrowedFd<'_>]) {
        if let Err(_gone) = pond_sys::socket::send(self.report, &Answer { id, report }.encode(), descriptors)
        {
        }
    }
}
