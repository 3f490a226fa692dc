//! The host's end of a container's streams: one thread per job that carries bytes between the engine's socket and the job's
//! pipes, and what pid 1 reports to whoever supervises the job.
//!
//! Zone: host. Pid 1 shares the job's fate, so its frames are bounded and refused when not understood. The thread stands where
//! the launcher stands for a native job: it lets go of the report socket when pid 1 is dead, by the kernel's word. It kills
//! the container when its lifeline closes.

mod fault;
mod outside;
mod pour;
mod sort;
mod transit;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use pond_wire::contained::{Evidence, INPUT_WINDOW, Kernel, Kind, MAX_PIECE, WindowSize};
use pond_wire::jail::Start;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, pidfd_send_signal};

use super::canary::Outside;
use super::frames::Heard;
use super::stage::Layer;
use super::transfer::{Incoming, TransferFault};
use crate::native::cgroup::{Foreign, Usage};
use crate::native::word;

pub use fault::RelayFault;
pub(super) use outside::{FileId, outside};
pub(super) use pour::{pour, pour_to_engine};
pub(super) use transit::Transit;

/// How long an engine may take to tell of what a dead container had written.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Everything one container is connected by, on this side. Nothing here blocks.
#[derive(Debug)]
pub(super) struct Relay {
    pub(super) engine: UnixStream,
    /// Pid 1 as this host sees it, or the process that stands for it.
    pub(super) process: OwnedFd,
    pub(super) pid: Pid,
    /// Its control groups.
    pub(super) groups: Foreign,
    /// Until pid 1 is dead.
    pub(super) report: Option<OwnedFd>,
    pub(super) lifeline: Option<OwnedFd>,
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
    /// The supervisor's end of the job's terminal, until it is announced; ours is input and output.
    pub(super) terminal: Option<OwnedFd>,
    pub(super) layer: Layer,
    pub(super) start: Start,
    pub(super) kernel: Kernel,
    /// Pond's own file as this container has it, which is pid 1.
    pub(super) program: FileId,
    /// What only pid 1 of this container is called with, and who it is when it begins.
    pub(super) nonce: String,
    pub(super) first_user: u32,
    /// Where the job's files go when they come out, until they have.
    pub(super) incoming: Option<Incoming>,
}

/// What is known of a container at its end.
#[derive(Debug)]
pub(super) struct Relayed {
    /// What it used, where it lived to tell.
    pub(super) usage: Option<Usage>,
    /// What was seen of its kernel, where it got that far.
    pub(super) evidence: Option<(Evidence, Outside)>,
    /// Why what the job wrote did not all come out.
    pub(super) lost: Option<TransferFault>,
    /// Who said how the job ended.
    pub(super) end: End,
}

/// How a container that had begun came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Pid 1 reported.
    Told,
    /// It was dead before it could.
    Untold,
    /// The engine let go of it while it ran, so that it was killed.
    CutOff,
}

impl Relay {
    /// Runs until pid 1 is dead and what it had said is handed on.
    pub(super) fn run(mut self, mut transit: Transit) -> Result<Relayed, RelayFault> {
        transit.may_begin = self.start == Start::AtOnce;
        loop {
            match self.turn(&mut transit) {
                Ok(true) => {
                    let end = if transit.is_told { End::Told } else { End::Untold };
                    return Ok(self.over(transit, end));
                }
                Ok(false) => {}
                // What the job made is on this host's disk, whoever made its container.
                Err(RelayFault::EngineGone) if transit.has_begun => {
                    self.kill()?;
                    transit.usage = transit.usage.or_else(|| self.groups.usage().ok());
                    return Ok(self.over(transit, End::CutOff));
                }
                Err(fault) => {
                    self.kill()?;
                    return Err(fault);
                }
            }
        }
    }

    fn over(self, transit: Transit, end: End) -> Relayed {
        let Transit { usage, evidence, lost, .. } = transit;
        let lost = lost.or(self.incoming.map(|_| TransferFault::Unfinished));
        Relayed { usage, evidence, lost, end }
    }

    /// One wait and what follows from it; true when there is no more to come.
    fn turn(&mut self, transit: &mut Transit) -> Result<bool, RelayFault> {
        let [engine, lifeline, dead, report, stdin] = self.wait(transit)?;
        if dead {
            transit.dead_since = Some(Instant::now());
            if transit.has_begun {
                // How it ended is clear enough; why it never began may still be on its way.
                self.report = None;
            }
            if transit.usage.is_none() {
                // Killed, perhaps for memory. The engine removes the groups, but not before it has heard of this too.
                transit.usage = self.groups.usage().ok();
            }
        }
        if lifeline && transit.handing_over.is_none() {
            self.kill()?;
            self.let_go();
        }
        if lifeline {
            self.lifeline = None;
        }
        if report {
            self.hear_supervisor(transit)?;
        }
        if stdin {
            self.take_input(transit)?;
        }
        if engine && transit.has_room() {
            transit.engine_ended |= transit.frames.hear(&self.engine)? == Heard::TheEnd;
        }
        // What waited for room comes before what waits behind it: nothing else may ever wake this thread again.
        self.flush(transit)?;
        self.sort(transit)?;
        self.flush(transit)?;
        self.keep_time(transit)?;
        match transit.dead_since {
            None if transit.engine_ended => Err(RelayFault::EngineGone),
            None => Ok(false),
            Some(since) => Ok(transit.has_room() && (transit.engine_ended || since.elapsed() > LAST_WORDS)),
        }
    }

    /// Which of engine, lifeline, process, supervisor and input have something for us.
    fn wait(&self, transit: &Transit) -> Result<[bool; 5], RelayFault> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, transit.has_room());
        flags.set(PollFlags::OUT, !transit.to_engine.is_empty());
        let takes_input = transit.has_begun
            && transit.to_engine.is_empty()
            && transit.outstanding + MAX_PIECE <= INPUT_WINDOW;
        let engine = Some(&self.engine).filter(|_| !transit.engine_ended && !flags.is_empty());
        let process = Some(&self.process).filter(|_| transit.dead_since.is_none());
        let stdin = self.stdin.as_ref().filter(|_| takes_input);
        let stdout = self.stdout.as_ref().filter(|_| !transit.to_stdout.is_empty());
        let stderr = self.stderr.as_ref().filter(|_| !transit.to_stderr.is_empty());
        let asked: [(Option<BorrowedFd<'_>>, PollFlags); 7] = [
            (engine.map(AsFd::as_fd), flags),
            (self.lifeline.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (process.map(AsFd::as_fd), PollFlags::IN),
            (self.report.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (stdin.map(AsFd::as_fd), PollFlags::IN),
            (stdout.map(AsFd::as_fd), PollFlags::OUT),
            (stderr.map(AsFd::as_fd), PollFlags::OUT),
        ];
        let open = asked.iter().filter_map(|(fd, flags)| Some(PollFd::from_borrowed_fd((*fd)?, *flags)));
        let mut fds: Vec<_> = open.collect();
        let moment = Timespec { tv_sec: 1, tv_nsec: 0 };
        let is_ending = transit.dead_since.or(transit.farewell).or(transit.handing_over).or(transit.stopping);
        match poll(&mut fds, is_ending.map(|_| &moment)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(RelayFault::Relay(errno.into())),
        }
        let mut told = fds.iter().map(|fd| !fd.revents().is_empty());
        let [engine, lifeline, process, report, stdin, _, _] =
            asked.map(|(fd, _)| fd.is_some() && told.next().unwrap_or(false));
        Ok([engine, lifeline, process, report, stdin])
    }

    /// The supervisor's words are go, the size of a terminal and, where a killed job's files would be lost, stop. One that is
    /// gone has closed the lifeline too.
    fn hear_supervisor(&mut self, transit: &mut Transit) -> Result<(), RelayFault> {
        let Some(report) = &self.report else { return Ok(()) };
        let mut said = [0; 8];
        match pond_sys::socket::receive(report, &mut said) {
            Ok((0, _)) => self.report = None,
            Ok((length, _)) => match said.get(..length) {
                Some([word::STOP]) => return self.stop(transit),
                Some([word::SIZE, size @ ..]) => {
                    transit.size = WindowSize::decode(size);
                    transit.begin();
                }
                Some(_) | None => {
                    transit.may_begin = true;
                    transit.begin();
                }
            },
            Err(fault) => return Err(RelayFault::Relay(fault)),
        }
        Ok(())
    }

    fn stop(&mut self, transit: &mut Transit) -> Result<(), RelayFault> {
        if !transit.has_begun {
            return self.kill();
        }
        if transit.stopping.is_none() {
            transit.stopping = Some(Instant::now());
            transit.say(Kind::Stop, &[]);
        }
        Ok(())
    }

    fn take_input(&mut self, transit: &mut Transit) -> Result<(), RelayFault> {
        let Some(stdin) = &self.stdin else { return Ok(()) };
        let mut piece = [0; MAX_PIECE];
        match rustix::io::read(stdin, &mut piece) {
            Ok(0) | Err(Errno::CONNRESET) => {
                transit.say(Kind::InputEnd, &[]);
                self.stdin = None;
            }
            Ok(length) => {
                transit.outstanding += length;
                transit.say(Kind::Input, piece.get(..length).unwrap_or_default());
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(RelayFault::Relay(errno.into())),
        }
        Ok(())
    }

    /// As much as everybody takes now. What nobody takes any more is dropped.
    fn flush(&mut self, transit: &mut Transit) -> Result<(), RelayFault> {
        pour(&mut self.stdout, &mut transit.to_stdout)?;
        pour(&mut self.stderr, &mut transit.to_stderr)?;
        if !transit.engine_ended {
            pour_to_engine(&self.engine, &mut transit.to_engine);
        }
        // Nothing more will come from a dead container, and the pipes must end for whoever reads them.
        let is_silent =
            transit.dead_since.is_some() && transit.engine_ended || transit.handing_over.is_some();
        if is_silent && transit.has_room() {
            self.let_go();
        }
        Ok(())
    }

    /// A terminal is input and output at once, and ends with both.
    fn let_go(&mut self) {
        (self.stdin, self.stdout, self.stderr) = (None, None, None);
    }

    pub(super) fn kill(&self) -> Result<(), RelayFault> {
        kill(&self.process)
    }

    fn is_dead(&self) -> Result<bool, RelayFault> {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut [PollFd::new(&self.process, PollFlags::IN)], Some(&at_once)) {
            Ok(ready) => Ok(ready > 0),
            Err(errno) => Err(RelayFault::Relay(errno.into())),
        }
    }
}

/// One that is dead already needs nothing.
pub(super) fn kill(process: &OwnedFd) -> Result<(), RelayFault> {
    match pidfd_send_signal(process, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(RelayFault::Kill(errno.into())),
    }
}

#[cfg(test)]
mod tests;
