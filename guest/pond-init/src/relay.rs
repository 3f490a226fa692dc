//! Pid 1 of a container: what [`crate::watch`] does, with the job's streams and every report carried in frames over the two
//! streams an engine gives it.
//!
//! Zone: hostile, and no control. The job holds only pipes to this process, so it can neither write a frame nor hear one. When
//! the stream from pond ends, this process ends, and the kernel kills everything in the container.

use std::os::fd::OwnedFd;

use pond_sys::fd::close;
use pond_sys::process::{Ended, exit_now};
use pond_sys::seccomp::{Filter, install};
use pond_wire::contained::{Header, INPUT_WINDOW, Kind, MAX_PIECE, WindowSize, frame};
use pond_wire::jail::{Report, Step};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::outcome;
use crate::pack::pack;

/// More than both ends of a pipe hold, whatever a job made of it: past this somebody still writes.
const LAST_WORDS: usize = 2 << 20;

/// How long a child's end may go unnoticed: gVisor, when it has much to do, does not always wake whoever waits for it.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

/// A job that was forked, and its streams. Pipes to and from the job do not block.
#[derive(Debug)]
pub struct Relay {
    pub job: Pid,
    pub child_events: OwnedFd,
    pub filter: Filter,
    pub from_pond: OwnedFd,
    pub to_pond: OwnedFd,
    pub input: Option<OwnedFd>,
    pub outputs: Vec<(Kind, OwnedFd)>,
    /// The job's terminal, where it has one; its other end is input and output.
    pub window: Option<Window>,
    /// A directory that pond gets when the job has ended, because it cannot look itself. Nothing but a mount can be there, and it is
    /// not opened before: gVisor would lead the job through whatever this process has open and the job may read.
    pub kept: Option<&'static str>,
}

/// The job's end of its terminal.
#[derive(Debug)]
pub struct Window {
    pub end: OwnedFd,
    pub announcer: Announcer,
}

/// Who tells programs that their terminal has another size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announcer {
    Kernel,
    /// gVisor's kernel does not.
    PidOne,
}

impl Window {
    pub fn resize(&self, WindowSize { rows, columns }: WindowSize) -> Result<(), Errno> {
        tcsetwinsize(&self.end, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?;
        match self.announcer {
            Announcer::Kernel => Ok(()),
            // Whoever did not ask to hear it does not.
            Announcer::PidOne => signal_everybody(Signal::WINCH),
        }
    }
}

/// What came from pond and is not yet the job's.
struct Inbox {
    raw: Vec<u8>,
    /// Bytes left of the input frame that is being read.
    rest: usize,
    /// No more than pond may have on its way.
    pending: Vec<u8>,
    /// Nothing comes after what is pending.
    is_complete: bool,
    /// Pond wants the job to end.
    is_stopped: bool,
    /// What the job's terminal is to become.
    size: Option<WindowSize>,
}

/// Relays until the job ends or pond is gone.
pub fn relay(mut relay: Relay) -> ! {
    // As large as they get: growing them later would take a call that the filter refuses.
    let raw = Vec::with_capacity(2 * (MAX_PIECE + Header::BYTES));
    let pending = Vec::with_capacity(INPUT_WINDOW);
    let mut inbox = Inbox { raw, rest: 0, pending, is_complete: false, is_stopped: false, size: None };
    if let Err(fault) = install(&relay.filter) {
        let errno = Errno::from_io_error(&fault).unwrap_or(Errno::IO);
        tell(&relay.to_pond, Report::Failed { step: Step::GuardInit, errno: errno.raw_os_error() });
        exit_now(1)
    }
    match relay.until_the_end(&mut inbox) {
        Ok(ended) => {
            relay.drain();
            tell(&relay.to_pond, outcome(ended));
            if let Some(root) = relay.kept
                && let Err(_told_by_what_is_missing) = relay.hand_over(root)
            {
                exit_now(1)
            }
            relay.await_farewell(&mut inbox)
        }
        Err(_pond_is_gone) => exit_now(0),
    }
}

/// Whether or not anybody hears it: whoever does not will see this process end.
pub fn tell(to_pond: &OwnedFd, report: Report) {
    say(to_pond, Kind::Report, &report.encode());
}

pub fn say(to_pond: &OwnedFd, kind: Kind, payload: &[u8]) {
    if let Some(bytes) = frame(kind, payload)
        && let Err(_gone) = write_all(to_pond, &bytes)
    {}
}

impl Relay {
    fn until_the_end(&mut self, inbox: &mut Inbox) -> Result<Ended, Errno> {
        loop {
            let [child, from_pond, to_job] = self.wait(inbox)?;
            if from_pond {
                inbox.read(&self.from_pond)?;
            }
            if from_pond || to_job {
                self.feed(inbox)?;
            }
            if let Some((window, size)) = self.window.as_ref().zip(inbox.size.take()) {
                window.resize(size)?;
            }
            for at in (0..self.outputs.len()).rev() {
                self.pass_on(at)?;
            }
            if inbox.is_stopped {
                end_everybody()?;
            }
            if child && let Some(ended) = self.reap()? {
                return Ok(ended);
            }
        }
    }

    /// Ends whoever the job left behind, and only then looks at what it made.
    fn hand_over(&self, root: &str) -> Result<(), Errno> {
        loop {
            end_everybody()?;
            match pond_sys::process::reap_any() {
                Ok(Some(_)) => {}
                Ok(None) => self.await_a_child()?,
                // Everything inside descends from this process: without a child there is nobody.
                Err(fault) if Errno::from_io_error(&fault) == Some(Errno::CHILD) => break,
                Err(fault) => return Err(Errno::from_io_error(&fault).unwrap_or(Errno::IO)),
            }
        }
        let mut frames = Pieces { to_pond: &self.to_pond, gathered: Vec::with_capacity(MAX_PIECE) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty())?;
        pack(&root, |bytes| frames.push(bytes))?;
        frames.flush()
    }

    fn await_a_child(&self) -> Result<(), Errno> {
        let moment = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        match poll(&mut [PollFd::new(&self.child_events, PollFlags::empty())], Some(&moment)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Which of child, pond and the job's input want something.
    fn wait(&self, inbox: &Inbox) -> Result<[bool; 3], Errno> {
        let mut ready =
            vec![PollFd::new(&self.child_events, PollFlags::IN), PollFd::new(&self.from_pond, PollFlags::IN)];
        let input = self.input.as_ref().filter(|_| !inbox.pending.is_empty());
        ready.extend(input.map(|input| PollFd::new(input, PollFlags::OUT)));
        ready.extend(self.outputs.iter().map(|(_, output)| PollFd::new(output, PollFlags::IN)));
        match poll(&mut ready, Some(&LOOK_AGAIN)) {
            Ok(0) => return Ok([true, false, false]),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let mut told = ready.iter().map(|fd| !fd.revents().is_empty());
        let mut next = |asked: bool| asked && told.next().unwrap_or(false);
        let (child, from_pond) = (next(true), next(true));
        Ok([child, from_pond, next(input.is_some())])
    }

    /// Gives the job what it takes now. Input that nobody can take any more is dropped.
    fn feed(&mut self, inbox: &mut Inbox) -> Result<(), Errno> {
        while !inbox.pending.is_empty() {
            let written = match &self.input {
                Some(input) => rustix::io::write(input, &inbox.pending),
                None => Ok(inbox.pending.len()),
            };
            match written {
                Ok(length) => {
                    inbox.pending.drain(..length);
                    let taken = u32::try_from(length).map_err(|_| Errno::OVERFLOW)?;
                    say(&self.to_pond, Kind::Taken, &taken.to_le_bytes());
                }
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(Errno::PIPE) => self.close_input(),
                Err(errno) => return Err(errno),
            }
        }
        if inbox.is_complete {
            self.close_input();
        }
        Ok(())
    }

    /// One piece of one of the job's outputs. Returns how much it was; an output that has ended is let go.
    fn pass_on(&mut self, at: usize) -> Result<usize, Errno> {
        let Some((kind, output)) = self.outputs.get(at) else { return Ok(0) };
        let mut piece = [0; MAX_PIECE];
        match rustix::io::read(output, &mut piece) {
            // A terminal that nobody inside holds any more answers with an error.
            Ok(0) | Err(Errno::IO) => {
                close(self.outputs.remove(at).1);
                Ok(0)
            }
            Ok(length) => {
                let bytes = frame(*kind, piece.get(..length).unwrap_or_default()).ok_or(Errno::MSGSIZE)?;
                write_all(&self.to_pond, &bytes)?;
                Ok(length)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(errno) => Err(errno),
        }
    }

    /// What the job had written before it ended. Whoever it left behind may go on writing, but not for long.
    fn drain(&mut self) {
        for at in (0..self.outputs.len()).rev() {
            let mut passed = 0;
            while let Ok(length @ 1..) = self.pass_on(at) {
                passed += length;
                if passed > LAST_WORDS {
                    break;
                }
            }
        }
    }

    fn close_input(&mut self) {
        if let Some(input) = self.input.take() {
            close(input);
        }
    }

    fn reap(&self) -> Result<Option<Ended>, Errno> {
        crate::reap(&self.child_events, self.job)
    }

    /// Pond reads the counters of the control group while there still is one.
    fn await_farewell(&self, inbox: &mut Inbox) -> ! {
        loop {
            inbox.pending.clear();
            if inbox.read(&self.from_pond).is_err() {
                exit_now(0)
            }
        }
    }
}

impl Inbox {
    fn read(&mut self, from_pond: &OwnedFd) -> Result<(), Errno> {
        let mut bytes = [0; MAX_PIECE];
        match rustix::io::read(from_pond, &mut bytes) {
            Ok(0) => return Err(Errno::PIPE),
            Ok(length) => self.raw.extend(bytes.get(..length).unwrap_or_default()),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno),
        }
        self.sort()
    }

    /// Takes frames apart. The farewell, and what pond never sends here, end it.
    fn sort(&mut self) -> Result<(), Errno> {
        loop {
            let length = self.rest.min(self.raw.len());
            self.pending.extend(self.raw.drain(..length));
            self.rest -= length;
            if self.rest > 0 {
                return Ok(());
            }
            let Some(header) = self.raw.first_chunk::<{ Header::BYTES }>() else { return Ok(()) };
            let Header { kind, length } = Header::decode(*header).map_err(|_| Errno::BADMSG)?;
            if kind == Kind::Size && self.raw.len() < Header::BYTES + length {
                return Ok(());
            }
            self.raw.drain(..Header::BYTES);
            match kind {
                Kind::Size => {
                    let bytes: Vec<u8> = self.raw.drain(..length).collect();
                    self.size = Some(WindowSize::decode(&bytes).ok_or(Errno::BADMSG)?);
                }
                Kind::Input => self.rest = length,
                Kind::InputEnd => self.is_complete = true,
                Kind::Stop => self.is_stopped = true,
                Kind::Leave => return Err(Errno::PIPE),
                Kind::Order
                | Kind::Go
                | Kind::Stdout
                | Kind::Stderr
                | Kind::Report
                | Kind::Evidence
                | Kind::Taken
                | Kind::Kept
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
                | Kind::ExecOver => return Err(Errno::BADMSG),
            }
        }
    }
}

fn end_everybody() -> Result<(), Errno> {
    signal_everybody(Signal::KILL)
}

/// Everybody but this process; that there is nobody is no error.
fn signal_everybody(signal: Signal) -> Result<(), Errno> {
    match kill_process_group(Pid::INIT, signal) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Gathers what is sent into frames that are worth sending.
struct Pieces<'a> {
    to_pond: &'a OwnedFd,
    gathered: Vec<u8>,
}

impl Pieces<'_> {
    fn push(&mut self, mut bytes: &[u8]) -> Result<(), Errno> {
        while !bytes.is_empty() {
            let room = MAX_PIECE - self.gathered.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.gathered.extend(now);
            bytes = later;
            if self.gathered.len() == MAX_PIECE {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Errno> {
        let bytes = frame(Kind::Kept, &self.gathered).ok_or(Errno::MSGSIZE)?;
        self.gathered.clear();
        write_all(self.to_pond, &bytes)
    }
}

pub(crate) fn write_all(to: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
