//! Pid 1 of a container that lasts: runs what its keeper asks for, each program confined as the one job of a run is, relays their
//! streams, and says how each ended.
//!
//! Zone: hostile. As the pid 1 of one job it holds no key, no capability and nothing that a program of its user may read, and runs
//! under the same filter as they do; it is no control. Programs hold pipes and terminals of their own and neither of the
//! engine's streams. A frame that is not understood ends everything: whoever asks has lost count.

use std::os::fd::OwnedFd;

use pond_init::{Window, outcome, say};
use pond_sys::process::{Ended, exit_now, fork_plainly, reap_any};
use pond_sys::seccomp;
use pond_wire::contained::serving::{EXEC_WINDOW, count, numbered, of_exec};
use pond_wire::contained::{Header, Kind, MAX_PIECE, Order, WindowSize};
use pond_wire::jail::{Console, ExecOrder, JailPlan, Report, Step};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::{Ends, Streams, announcer, confine};
use crate::check::program_is_sound;
use crate::fault::{At, Failure};
use crate::{job, terminal};

/// Programs at the same time. A keeper asks for fewer; this is for the day it is wrong.
const MOST: usize = 128;

/// How long a child's end may go unnoticed: gVisor, when it has much to do, does not always wake whoever waits for it.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

/// More than a pipe holds, whatever a program made of it: past this somebody whom it left behind still writes.
const LAST_WORDS: usize = 2 << 20;

/// One program, from its birth until its end is told.
struct Running {
    number: u64,
    pid: Pid,
    /// What it said of a failure before it became the program; the end of it, once it has.
    birth: OwnedFd,
    input: Option<OwnedFd>,
    pending: Vec<u8>,
    /// Nothing comes after what is pending.
    is_fed: bool,
    outputs: Vec<(Kind, OwnedFd)>,
    /// How much more of its output the keeper has room for.
    room: usize,
    window: Option<Window>,
    has_ended: bool,
    last_words: usize,
}

struct Serving<'a> {
    order: &'a Order,
    streams: &'a Streams,
    filter: &'a seccomp::Filter,
    raw: Vec<u8>,
    running: Vec<Running>,
}

/// Serves until the keeper is gone. When this process exits the kernel kills everything in the container.
pub(super) fn serve(order: &Order, streams: &Streams, child_events: &OwnedFd) -> ! {
    let filter = seccomp::compile(seccomp::Profile::Workload);
    if let Err(failure) = seccomp::install(&filter).at(Step::GuardInit) {
        pond_init::tell(&streams.to_pond, failure.report());
        exit_now(1)
    }
    let mut serving = Serving { order, streams, filter: &filter, raw: Vec::new(), running: Vec::new() };
    loop {
        if let Err(_nobody_is_there) = serving.turn(child_events) {
            exit_now(0)
        }
    }
}

impl Serving<'_> {
    /// One wait and what follows from it.
    fn turn(&mut self, child_events: &OwnedFd) -> Result<(), Errno> {
        let (child, asked) = self.wait(child_events)?;
        if asked {
            self.hear()?;
        }
        if child {
            self.reap(child_events)?;
        }
        let to_pond = &self.streams.to_pond;
        for running in &mut self.running {
            running.feed(to_pond)?;
            running.pass_on(to_pond)?;
        }
        self.bury()
    }

    fn wait(&self, child_events: &OwnedFd) -> Result<(bool, bool), Errno> {
        let mut ready = vec![
            PollFd::new(child_events, PollFlags::IN),
            PollFd::new(&self.streams.from_pond, PollFlags::IN),
        ];
        let hungry = self.running.iter().filter(|running| !running.pending.is_empty());
        ready.extend(hungry.filter_map(|running| Some(PollFd::new(running.input.as_ref()?, PollFlags::OUT))));
        let heard = self.running.iter().filter(|running| running.room > 0);
        let outputs = heard.flat_map(|running| &running.outputs);
        ready.extend(outputs.map(|(_, output)| PollFd::new(output, PollFlags::IN)));
        match poll(&mut ready, Some(&LOOK_AGAIN)) {
            Ok(0) => return Ok((true, false)),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let mut told = ready.iter().map(|fd| !fd.revents().is_empty());
        Ok((told.next().unwrap_or(false), told.next().unwrap_or(false)))
    }

    fn hear(&mut self) -> Result<(), Errno> {
        let mut bytes = [0; MAX_PIECE];
        match rustix::io::read(&self.streams.from_pond, &mut bytes) {
            Ok(0) => return Err(Errno::PIPE),
            Ok(length) => self.raw.extend(bytes.get(..length).unwrap_or_default()),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno),
        }
        while let Some(header) = self.raw.first_chunk::<{ Header::BYTES }>() {
            let Header { kind, length } = Header::decode(*header).map_err(|_| Errno::BADMSG)?;
            let whole = Header::BYTES + length;
            if self.raw.len() < whole {
                return Ok(());
            }
            let payload: Vec<u8> = self.raw.drain(..whole).skip(Header::BYTES).collect();
            self.obey(kind, &payload)?;
        }
        Ok(())
    }

    /// What is said of an exec that has ended meanwhile goes nowhere.
    fn obey(&mut self, kind: Kind, payload: &[u8]) -> Result<(), Errno> {
        let strange = Errno::BADMSG;
        if kind == Kind::Leave {
            return Err(Errno::PIPE);
        }
        let (number, bytes) = of_exec(payload).ok_or(strange)?;
        let known = self.running.iter_mut().find(|running| running.number == number);
        match (kind, known) {
            (Kind::ExecStart, None) => self.start(number, bytes),
            (Kind::ExecInput, Some(running)) => running.pending.extend(bytes),
            (Kind::ExecInputEnd, Some(running)) => running.is_fed = true,
            (Kind::ExecRoom, Some(running)) => running.room += count(bytes).ok_or(strange)?,
            (Kind::ExecSignal, Some(running)) => running.signal(*bytes.first().ok_or(strange)?),
            (Kind::ExecSize, Some(running)) => {
                let size = WindowSize::decode(bytes).ok_or(strange)?;
                running.window.as_ref().map_or(Ok(()), |window| window.resize(size))?;
            }
            (
                Kind::ExecInput | Kind::ExecInputEnd | Kind::ExecRoom | Kind::ExecSignal | Kind::ExecSize,
                None,
            ) => {}
            (
                Kind::ExecStart
                | Kind::ExecStdout
                | Kind::ExecStderr
                | Kind::ExecTaken
                | Kind::ExecReport
                | Kind::ExecOver
                | Kind::Order
                | Kind::Go
                | Kind::Input
                | Kind::InputEnd
                | Kind::Stop
                | Kind::Size
                | Kind::Leave
                | Kind::Stdout
                | Kind::Stderr
                | Kind::Report
                | Kind::Evidence
                | Kind::Taken
                | Kind::Kept,
                _,
            ) => return Err(strange),
        }
        Ok(())
    }

    fn start(&mut self, number: u64, bytes: &[u8]) {
        match self.attempt(number, bytes) {
            Ok(running) => {
                self.running.push(running);
                tell(&self.streams.to_pond, number, Report::Began);
            }
            Err(failure) => tell(&self.streams.to_pond, number, failure.report()),
        }
    }

    fn attempt(&self, number: u64, bytes: &[u8]) -> Result<Running, Failure> {
        let invalid = Failure { step: Step::CheckPlan, errno: Errno::INVAL };
        let order: ExecOrder = serde_json::from_slice(bytes).map_err(|_| invalid)?;
        let console = order.console;
        let program = order.over(&self.order.plan.program);
        let has_size = match console {
            Console::Pipes => true,
            Console::Terminal { rows, columns } => rows > 0 && columns > 0,
        };
        if !program_is_sound(&program) || !has_size {
            return Err(invalid);
        }
        let plan = JailPlan { program, ..self.order.plan.clone() };
        if self.running.len() >= MOST {
            return Err(Failure { step: Step::ForkJob, errno: Errno::AGAIN });
        }
        let Ends { input, outputs, theirs } = Ends::new(terminal::open_on(console, self.order.kernel)?)?;
        let (birth, told) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).at(Step::ForkJob)?;
        let Some(pid) = fork_plainly().at(Step::ForkJob)? else {
            let order = Order { plan, ..self.order.clone() };
            let failure = match confine(&order, &theirs, self.filter, self.streams) {
                Ok(program) => job::exec(&order.plan.program, &program),
                Err(failure) => failure,
            };
            if let Err(_nobody_reads) = rustix::io::write(&told, &failure.report().encode()) {}
            exit_now(1)
        };
        for ours in outputs.iter().map(|(_, output)| output).chain([&input]) {
            rustix::io::ioctl_fionbio(ours, true).at(Step::ForkJob)?;
        }
        let announcer = announcer(self.order.kernel);
        Ok(Running {
            number,
            pid,
            birth,
            input: Some(input),
            pending: Vec::new(),
            is_fed: false,
            outputs: outputs.into_iter().map(|(kind, output)| (of_kind(kind), output)).collect(),
            room: EXEC_WINDOW,
            window: theirs.terminal().map(|end| Window { end, announcer }),
            has_ended: false,
            last_words: 0,
        })
    }

    /// Of all that ended, its own and the orphans of programs.
    fn reap(&mut self, child_events: &OwnedFd) -> Result<(), Errno> {
        let mut discard = [0; 512];
        match rustix::io::read(child_events, &mut discard) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        loop {
            match reap_any() {
                Ok(Some(ended)) => self.note(ended),
                Ok(None) => return Ok(()),
                Err(fault) => match Errno::from_io_error(&fault) {
                    Some(Errno::CHILD | Errno::INTR) => return Ok(()),
                    other => return Err(other.unwrap_or(Errno::IO)),
                },
            }
        }
    }

    fn note(&mut self, ended: Ended) {
        let is_it = |running: &&mut Running| running.pid.as_raw_nonzero().get() == ended.pid;
        if let Some(running) = self.running.iter_mut().find(is_it) {
            running.has_ended = true;
            let report = running.failure().unwrap_or_else(|| outcome(ended));
            tell(&self.streams.to_pond, running.number, report);
        }
    }

    /// Lets those go that have ended and have no more to say.
    fn bury(&mut self) -> Result<(), Errno> {
        let (over, going): (Vec<Running>, Vec<Running>) =
            std::mem::take(&mut self.running).into_iter().partition(Running::is_over);
        self.running = going;
        for running in over {
            say_of(&self.streams.to_pond, Kind::ExecOver, running.number, &[]);
        }
        Ok(())
    }
}

fn tell(to_pond: &OwnedFd, number: u64, report: Report) {
    say_of(to_pond, Kind::ExecReport, number, &report.encode());
}

/// Whether or not anybody hears it: whoever does not will see this process end.
fn say_of(to_pond: &OwnedFd, kind: Kind, number: u64, bytes: &[u8]) {
    if numbered(kind, number, bytes).is_some() {
        say(to_pond, kind, &[&number.to_le_bytes(), bytes].concat());
    }
}

/// What one of many says.
fn of_kind(kind: Kind) -> Kind {
    if kind == Kind::Stderr { Kind::ExecStderr } else { Kind::ExecStdout }
}

impl Running {
    /// Why it did not become the program, if it did not.
    fn failure(&self) -> Option<Report> {
        let mut bytes = [0; Report::BYTES];
        match rustix::io::read(&self.birth, &mut bytes) {
            Ok(length) if length == bytes.len() => Report::decode(&bytes).ok(),
            Ok(_) | Err(_) => None,
        }
    }

    /// Gives it what it takes now. Input that nobody can take any more is dropped.
    fn feed(&mut self, to_pond: &OwnedFd) -> Result<(), Errno> {
        while !self.pending.is_empty() {
            let written = match &self.input {
                Some(input) => rustix::io::write(input, &self.pending),
                None => Ok(self.pending.len()),
            };
            match written {
                Ok(length) => {
                    self.pending.drain(..length);
                    let taken = u32::try_from(length).map_err(|_| Errno::OVERFLOW)?;
                    say_of(to_pond, Kind::ExecTaken, self.number, &taken.to_le_bytes());
                }
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(Errno::PIPE | Errno::IO) => self.input = None,
                Err(errno) => return Err(errno),
            }
        }
        if self.is_fed {
            self.input = None;
        }
        Ok(())
    }

    /// A piece of each of its outputs, as far as there is room. One that has ended is let go.
    fn pass_on(&mut self, to_pond: &OwnedFd) -> Result<(), Errno> {
        for at in (0..self.outputs.len()).rev() {
            let Some((kind, output)) = self.outputs.get(at) else { continue };
            let mut piece = [0; MAX_PIECE];
            let most = self.room.min(MAX_PIECE);
            let slot = piece.get_mut(..most).unwrap_or_default();
            if slot.is_empty() {
                return Ok(());
            }
            match rustix::io::read(output, slot) {
                // A terminal that nobody inside holds any more answers with an error.
                Ok(0) | Err(Errno::IO) => drop(self.outputs.remove(at)),
                Ok(length) => {
                    say_of(to_pond, *kind, self.number, piece.get(..length).unwrap_or_default());
                    self.room -= length;
                    self.last_words += if self.has_ended { length } else { 0 };
                }
                Err(Errno::AGAIN) if self.has_ended => drop(self.outputs.remove(at)),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.has_ended && (self.outputs.is_empty() || self.last_words > LAST_WORDS)
    }

    /// To everything that did not leave the group of its first process, which is not waited for yet: its number is still its own.
    fn signal(&self, signal: u8) {
        let Some(signal) = Signal::from_named_raw(signal.into()).filter(|_| !self.has_ended) else {
            return;
        };
        // Between its birth and its own session it is in the group of pid 1, and there it is alone to be meant.
        if kill_process_group(self.pid, signal).is_err()
            && let Err(_gone) = kill_process(self.pid, signal)
        {}
    }
}
