//! The host's end of a container's streams: one thread per job that carries bytes between the engine's socket and the job's
//! pipes, and what pid 1 reports to whoever supervises the job.
//!
//! Zone: host. Pid 1 shares the job's fate, so its frames are bounded and refused when not understood. The thread stands where
//! the launcher stands for a native job: it lets go of the report socket when pid 1 is dead, by the kernel's word. It kills
//! the container when its lifeline closes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use pond_wire::contained::{Evidence, INPUT_WINDOW, Kernel, Kind, MAX_PIECE, PROGRAM, WindowSize, frame};
use pond_wire::jail::{Report, ReportFault, Start};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, pidfd_send_signal};

use super::canary::{Mismatch, Nonce, Outside, Program, judge};
use super::frames::{Frames, FramesFault};
use super::stage::Layer;
use super::transfer::{Incoming, TransferFault};
use crate::native::cgroup::{CgroupFault, Foreign, Usage};
use crate::native::word;

/// How long an engine may take to tell of what a dead container had written.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// How long pid 1 may take to end once it was told to; what it reported stands.
const FAREWELL: Duration = Duration::from_secs(2);

/// How long pid 1 may take to end the job once it was told to; less than a supervisor waits for a killed job.
const STOP: Duration = Duration::from_secs(3);

/// How long what the job wrote may take to come out, in all and until there is more of it.
const HAND_OVER: Duration = Duration::from_secs(300);
const NEXT_PIECE: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum RelayFault {
    #[error("relaying a container's streams")]
    Relay(#[source] io::Error),
    #[error("pid 1 of the container sent something that is no frame")]
    Frame(#[from] FramesFault),
    #[error("pid 1 of the container sent something that is no report")]
    Report(#[from] ReportFault),
    #[error("the container engine let go of the job while it ran")]
    EngineGone,
    #[error("isolation_mismatch")]
    Mismatch(#[from] Mismatch),
    #[error("pid 1 of the container sent evidence that cannot be read")]
    Evidence(#[source] serde_json::Error),
    #[error("reading what the container used")]
    Counters(#[source] CgroupFault),
    #[error("killing the container")]
    Kill(#[source] io::Error),
}

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
    /// Pond's own file, which is pid 1.
    pub(super) executable: String,
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

/// What is on its way.
#[derive(Debug, Default)]
pub(super) struct Transit {
    pub(super) frames: Frames,
    pub(super) to_engine: Vec<u8>,
    /// Input that went out and is not the job's yet.
    outstanding: usize,
    to_stdout: Vec<u8>,
    to_stderr: Vec<u8>,
    may_begin: bool,
    has_begun: bool,
    /// Pid 1 has said how the job ended.
    is_told: bool,
    /// What the job's terminal is to become once there is a job.
    size: Option<WindowSize>,
    usage: Option<Usage>,
    evidence: Option<(Evidence, Outside)>,
    engine_ended: bool,
    /// When pid 1 was told to end the job.
    stopping: Option<Instant>,
    /// When the job had ended and its files began to come out.
    handing_over: Option<Instant>,
    last_piece: Option<Instant>,
    lost: Option<TransferFault>,
    /// When pid 1 was told that it may end.
    farewell: Option<Instant>,
    dead_since: Option<Instant>,
}

impl Transit {
    fn has_room(&self) -> bool {
        self.to_stdout.is_empty() && self.to_stderr.is_empty()
    }

    fn say(&mut self, kind: Kind, payload: &[u8]) {
        self.to_engine.extend(frame(kind, payload).unwrap_or_default());
    }

    /// Once the supervisor lets it and its kernel is the one that was promised.
    fn begin(&mut self) {
        if self.may_begin && self.evidence.is_some() && !self.has_begun {
            self.say(Kind::Go, &[]);
            self.has_begun = true;
        }
        if self.has_begun
            && let Some(size) = self.size.take()
        {
            self.say(Kind::Size, &size.encode());
        }
    }
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
            // Nobody can report any more.
            transit.dead_since = Some(Instant::now());
            self.report = None;
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
            self.hear_engine(transit)?;
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

    /// Ends what takes too long.
    fn keep_time(&mut self, transit: &mut Transit) -> Result<(), RelayFault> {
        let is_late = |since: Option<Instant>, most| since.is_some_and(|since| since.elapsed() > most);
        let is_handing_over = self.incoming.is_some() && transit.handing_over.is_some();
        if is_handing_over && is_late(transit.handing_over, HAND_OVER) {
            self.lose(TransferFault::TooSlow(HAND_OVER.as_secs()), transit)?;
        } else if is_handing_over && is_late(transit.last_piece, NEXT_PIECE) {
            self.lose(TransferFault::Stalled(NEXT_PIECE.as_secs()), transit)?;
        }
        let has_not_stopped = is_late(transit.stopping, STOP) && transit.handing_over.is_none();
        if has_not_stopped || is_late(transit.farewell, FAREWELL) {
            self.kill()?;
        }
        Ok(())
    }

    /// Nothing of what the job wrote is used; the run stands.
    fn lose(&mut self, fault: TransferFault, transit: &mut Transit) -> Result<(), RelayFault> {
        (self.incoming, transit.lost) = (None, Some(fault));
        self.kill()
    }

    /// More of what the job wrote. Once it is whole, pid 1 may go.
    fn take_in(&mut self, bytes: &[u8], transit: &mut Transit) -> Result<(), RelayFault> {
        let Some(incoming) = self.incoming.as_mut().filter(|_| transit.handing_over.is_some()) else {
            return Ok(());
        };
        transit.last_piece = Some(Instant::now());
        if let Err(fault) = incoming.push(bytes) {
            return self.lose(fault, transit);
        }
        if incoming.is_over() {
            self.incoming = None;
            transit.say(Kind::Leave, &[]);
            transit.farewell.get_or_insert_with(Instant::now);
        }
        Ok(())
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

    fn hear_engine(&mut self, transit: &mut Transit) -> Result<(), RelayFault> {
        let mut piece = [0; MAX_PIECE];
        match rustix::io::read(&self.engine, &mut piece) {
            Ok(0) | Err(Errno::CONNRESET) => transit.engine_ended = true,
            Ok(length) => transit.frames.push(piece.get(..length).unwrap_or_default())?,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(RelayFault::Relay(errno.into())),
        }
        Ok(())
    }

    /// Gives every whole frame to whom it is for, as long as the streams have room.
    fn sort(&mut self, transit: &mut Transit) -> Result<(), RelayFault> {
        while transit.has_room()
            && let Some((kind, payload)) = transit.frames.next()?
        {
            match kind {
                Kind::Stdout => transit.to_stdout = payload,
                Kind::Stderr => transit.to_stderr = payload,
                Kind::Evidence => {
                    let seen = serde_json::from_slice(&payload).map_err(RelayFault::Evidence)?;
                    let outside = outside(self.pid, &self.executable, &self.nonce, self.first_user);
                    let outside = outside.map_err(RelayFault::Relay)?;
                    judge(self.kernel, &seen, &outside)?;
                    transit.evidence = Some((seen, outside));
                    transit.begin();
                }
                Kind::Kept => self.take_in(&payload, transit)?,
                Kind::Taken => {
                    let told = payload.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                    let taken = usize::try_from(told).unwrap_or(usize::MAX);
                    transit.outstanding = transit.outstanding.saturating_sub(taken);
                }
                Kind::Report
                | Kind::Order
                | Kind::Go
                | Kind::Input
                | Kind::InputEnd
                | Kind::Stop
                | Kind::Size
                | Kind::Leave
                | Kind::ExecStart
                | Kind::ExecInput
                | Kind::ExecInputEnd
                | Kind::ExecSize
                | Kind::ExecSignal
                | Kind::ExecRoom
                | Kind::ExecStdout
                | Kind::ExecStderr
                | Kind::ExecTaken
                | Kind::ExecReport
                | Kind::ExecOver => self.pass_on(Report::decode(&payload)?, transit)?,
            }
            self.flush(transit)?;
        }
        Ok(())
    }

    fn pass_on(&mut self, report: Report, transit: &mut Transit) -> Result<(), RelayFault> {
        let layer = [&self.layer.upper, &self.layer.view].into_iter();
        let descriptors = match report {
            Report::Prepared => layer.chain(&self.terminal).map(AsFd::as_fd).collect(),
            Report::Exited { .. } | Report::Signaled { .. } => {
                transit.is_told = true;
                // While pid 1 waits for a farewell its control groups are there to be read.
                transit.usage = Some(self.groups.usage().map_err(RelayFault::Counters)?);
                if self.incoming.is_some() {
                    transit.handing_over.get_or_insert_with(Instant::now);
                    transit.last_piece.get_or_insert_with(Instant::now);
                } else {
                    transit.say(Kind::Leave, &[]);
                    transit.farewell.get_or_insert_with(Instant::now);
                }
                Vec::new()
            }
            Report::Started
            | Report::Doors
            | Report::Failed { .. }
            | Report::Serving
            | Report::Began
            | Report::Connected => Vec::new(),
        };
        // A supervisor that is gone closes the lifeline, which ends all this.
        if let Some(socket) = &self.report
            && let Err(_gone) = pond_sys::socket::send(socket, &report.encode(), &descriptors)
        {}
        drop(descriptors);
        // Kept here it would never end for whoever reads it.
        self.terminal = self.terminal.take().filter(|_| report != Report::Prepared);
        // The job is dead, by the word of pid 1; only its files are still to come, and nobody has to wait for them here.
        if transit.handing_over.is_some() {
            self.report = None;
        }
        Ok(())
    }

    /// As much as everybody takes now. What nobody takes any more is dropped.
    fn flush(&mut self, transit: &mut Transit) -> Result<(), RelayFault> {
        write_some(&mut self.stdout, &mut transit.to_stdout)?;
        write_some(&mut self.stderr, &mut transit.to_stderr)?;
        while !transit.to_engine.is_empty() && !transit.engine_ended {
            match rustix::io::write(&self.engine, &transit.to_engine) {
                Ok(length) => drop(transit.to_engine.drain(..length)),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                // Its own end of the stream says so, or pid 1 is dead.
                Err(_gone) => transit.to_engine.clear(),
            }
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
}

/// One that is dead already needs nothing.
pub(super) fn kill(process: &OwnedFd) -> Result<(), RelayFault> {
    match pidfd_send_signal(process, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(RelayFault::Kill(errno.into())),
    }
}

/// What this host sees, now that pid 1 has spoken and hence runs.
pub(super) fn outside(pid: Pid, executable: &str, nonce: &str, first_user: u32) -> io::Result<Outside> {
    let line = |path| Ok::<_, io::Error>(std::fs::read_to_string(path)?.trim().to_owned());
    let of = |path: &str| rustix::fs::stat(path).map(|stat| (stat.st_dev, stat.st_ino));
    let theirs = of(&format!("/proc/{}/exe", pid.as_raw_nonzero()))?;
    let program = if theirs == of(executable)? { Program::PidOne } else { Program::Another };
    let (boot_id, version) = (line("/proc/sys/kernel/random/boot_id")?, line("/proc/version")?);
    Ok(Outside { boot_id, version, program, nonce: seen(nonce, first_user)? })
}

/// Whether a process of this host was called as pid 1 of the container was. Only those of its own user are asked: what a process
/// was called with lies in its memory, and whoever owns that can make a reader wait.
fn seen(nonce: &str, user: u32) -> io::Result<Nonce> {
    let called = [PROGRAM, nonce].map(|word| format!("{word}\0")).concat();
    let owner = format!("\nUid:\t{user}\t");
    for entry in std::fs::read_dir("/proc")? {
        let process = entry?.path();
        // A process may end while it is looked at.
        let is_ours =
            std::fs::read_to_string(process.join("status")).is_ok_and(|status| status.contains(&owner));
        if is_ours && std::fs::read(process.join("cmdline")).is_ok_and(|words| words == called.as_bytes()) {
            return Ok(Nonce::Visible);
        }
    }
    Ok(Nonce::Hidden)
}

fn write_some(pipe: &mut Option<OwnedFd>, waiting: &mut Vec<u8>) -> Result<(), RelayFault> {
    while !waiting.is_empty() {
        let written = pipe.as_ref().map_or(Ok(waiting.len()), |pipe| rustix::io::write(pipe, waiting));
        match written {
            Ok(length) => drop(waiting.drain(..length)),
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::PIPE) => *pipe = None,
            Err(errno) => return Err(RelayFault::Relay(errno.into())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
