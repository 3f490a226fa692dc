//! The host's end of the streams of a container that lasts: one thread that carries many programs' bytes between the engine's
//! socket and their pipes, and what pid 1 says of them to whoever waits.
//!
//! Zone: host. Pid 1 shares the programs' fate, so its frames are bounded and refused when not understood. Nothing here blocks: a
//! program whose reader does not keep up is left to wait by its window, and no other for it. When everybody who could ask is
//! gone, so is the container.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::{Duration, Instant};

use pond_wire::contained::serving::{EXEC_WINDOW, count, numbered, of_exec};
use pond_wire::contained::{Kind, MAX_PIECE, WindowSize, frame};
use pond_wire::jail::{Answer, ExecOrder, Report};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::tcgetwinsize;

use super::super::frames::{Frames, FramesFault, Heard};
use super::super::relay::{RelayFault, kill, pour, pour_to_engine};

/// How long pid 1 may take to end once it was told to.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long an engine may take to tell of what a dead container had said.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What the thread is asked for.
#[derive(Debug)]
pub(super) enum Request {
    /// Programs may be started from now on.
    Go,
    Start {
        number: u64,
        exec: Box<ExecOrder>,
        ends: Ends,
        told: Teller,
    },
    Signal {
        number: u64,
        signal: u8,
    },
    Size {
        number: u64,
        size: WindowSize,
    },
    /// End everything.
    Stop,
}

/// The thread's ends of one program's streams. They do not block.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: Option<OwnedFd>,
    /// Where the ends are a terminal's that stands for the one inside: how large it is.
    pub(super) size: Option<(u16, u16)>,
}

/// Who is told of a program.
#[derive(Debug)]
pub(super) enum Teller {
    Process(SyncSender<Report>),
    /// By an answer; that the program began, together with its terminal.
    Keeper {
        socket: Arc<OwnedFd>,
        exec: u64,
        master: Option<OwnedFd>,
    },
}

impl Teller {
    /// Whoever does not wait for it any more does not hear it.
    fn tell(&mut self, report: Report) {
        match self {
            // There is room for all that is ever said of one.
            Self::Process(told) => if let Err(_nobody) = told.try_send(report) {},
            Self::Keeper { socket, exec, master } => {
                let master = master.take_if(|_| report == Report::Began);
                let descriptors: Vec<_> = master.iter().map(AsFd::as_fd).collect();
                let answer = Answer { id: *exec, report }.encode();
                if let Err(_gone) = pond_sys::socket::send(&**socket, &answer, &descriptors) {}
            }
        }
    }
}

/// One program as it is connected here.
struct Wired {
    stdin: Option<OwnedFd>,
    /// Input that went out and is not the program's yet.
    outstanding: usize,
    outlets: [Outlet; 2],
    size: Option<(u16, u16)>,
    told: Teller,
    has_begun: bool,
    has_ended: bool,
    /// Nothing more comes from it.
    is_over: bool,
    /// How it ended, until whoever keeps it has all that it said before.
    last: Option<Report>,
}

#[derive(Default)]
struct Outlet {
    to: Option<OwnedFd>,
    waiting: Vec<u8>,
}

/// Why a container that lasted is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// It was told to end.
    Stopped,
    /// It ended by itself: its pid 1 was killed, by the kernel or by somebody.
    Died,
    /// The engine let go of it.
    CutOff,
}

pub(super) struct Relay {
    pub(super) engine: UnixStream,
    pub(super) process: OwnedFd,
    pub(super) requests: Receiver<Request>,
    /// Readable when there is a request, and ended when nobody can make one any more.
    pub(super) bell: UnixStream,
    pub(super) frames: Frames,
}

struct Transit {
    to_engine: Vec<u8>,
    programs: BTreeMap<u64, Wired>,
    stopping: Option<Instant>,
    dead_since: Option<Instant>,
    engine_ended: bool,
}

impl Relay {
    /// Runs until pid 1 is dead and what it had said is handed on.
    pub(super) fn run(mut self) -> Result<Gone, RelayFault> {
        let programs = BTreeMap::new();
        let mut transit = Transit {
            to_engine: Vec::new(),
            programs,
            stopping: None,
            dead_since: None,
            engine_ended: false,
        };
        loop {
            match self.turn(&mut transit) {
                Ok(None) => {}
                Ok(Some(gone)) => {
                    transit.programs.values_mut().for_each(Wired::tell_the_last);
                    return Ok(gone);
                }
                Err(fault) => {
                    self.kill()?;
                    return Err(fault);
                }
            }
        }
    }

    fn turn(&mut self, transit: &mut Transit) -> Result<Option<Gone>, RelayFault> {
        let Ready { engine, bell, dead, inputs } = self.wait(transit)?;
        if dead {
            transit.dead_since.get_or_insert_with(Instant::now);
        }
        if bell {
            self.hear_keeper(transit)?;
        }
        for number in inputs {
            transit.take_input(number)?;
        }
        if engine {
            transit.engine_ended |= self.frames.hear(&self.engine)? == Heard::TheEnd;
        }
        while let Some((kind, payload)) = self.frames.next()? {
            transit.sort(kind, &payload)?;
        }
        transit.measure();
        transit.flush(&self.engine)?;
        if transit.stopping.is_some_and(|since| since.elapsed() > FAREWELL) {
            self.kill()?;
        }
        Ok(match (transit.dead_since, transit.stopping) {
            (None, None) if transit.engine_ended => {
                self.kill()?;
                Some(Gone::CutOff)
            }
            (None, _) => None,
            (Some(since), stopping) => {
                let is_heard = transit.engine_ended || since.elapsed() > LAST_WORDS;
                let is_told = transit.programs.values().all(Wired::is_flushed);
                let gone = if stopping.is_some() { Gone::Stopped } else { Gone::Died };
                (is_heard && (is_told || since.elapsed() > LAST_WORDS)).then_some(gone)
            }
        })
    }

    fn wait(&self, transit: &Transit) -> Result<Ready, RelayFault> {
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, !transit.to_engine.is_empty());
        let (has_engine, lives) = (!transit.engine_ended, transit.dead_since.is_none());
        let mut fds = Vec::new();
        fds.extend(has_engine.then(|| PollFd::new(&self.engine, flags)));
        fds.extend(transit.stopping.is_none().then(|| PollFd::new(&self.bell, PollFlags::IN)));
        fds.extend(lives.then(|| PollFd::new(&self.process, PollFlags::IN)));
        let takes = |wired: &&Wired| transit.to_engine.is_empty() && wired.has_window();
        let inputs = transit.programs.iter().filter(|(_, wired)| takes(wired));
        let inputs: Vec<(u64, &OwnedFd)> =
            inputs.filter_map(|(number, wired)| Some((*number, wired.stdin.as_ref()?))).collect();
        fds.extend(inputs.iter().map(|(_, stdin)| PollFd::new(*stdin, PollFlags::IN)));
        let waiting = transit.programs.values().flat_map(|wired| &wired.outlets);
        let waiting = waiting.filter(|outlet| !outlet.waiting.is_empty());
        fds.extend(waiting.filter_map(|outlet| Some(PollFd::new(outlet.to.as_ref()?, PollFlags::OUT))));
        let moment = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        let has_terminal = transit.programs.values().any(|wired| wired.size.is_some());
        let looks_again = has_terminal || transit.stopping.or(transit.dead_since).is_some();
        match poll(&mut fds, looks_again.then_some(&moment)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(RelayFault::Relay(errno.into())),
        }
        let mut told = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut next = |asked: bool| asked && told.next().unwrap_or(false);
        let (engine, bell, dead) = (next(has_engine), next(transit.stopping.is_none()), next(lives));
        let inputs = inputs.iter().filter(|_| next(true)).map(|(number, _)| *number).collect();
        Ok(Ready { engine, bell, dead, inputs })
    }

    fn hear_keeper(&mut self, transit: &mut Transit) -> Result<(), RelayFault> {
        let mut rings = [0; 256];
        let is_over = match rustix::io::read(&self.bell, &mut rings) {
            Ok(0) | Err(Errno::CONNRESET) => true,
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => false,
            Err(errno) => return Err(RelayFault::Relay(errno.into())),
        };
        loop {
            match self.requests.try_recv() {
                Ok(request) => transit.obey(request),
                Err(TryRecvError::Empty) if !is_over => return Ok(()),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {
                    transit.stop();
                    return Ok(());
                }
            }
        }
    }

    fn kill(&self) -> Result<(), RelayFault> {
        kill(&self.process)
    }
}

/// What became ready in one wait.
struct Ready {
    engine: bool,
    bell: bool,
    dead: bool,
    inputs: Vec<u64>,
}

impl Wired {
    fn has_window(&self) -> bool {
        !self.has_ended && self.outstanding + MAX_PIECE <= EXEC_WINDOW
    }

    fn is_flushed(&self) -> bool {
        self.outlets.iter().all(|outlet| outlet.waiting.is_empty() || outlet.to.is_none())
    }
}

impl Transit {
    fn say(&mut self, kind: Kind, number: u64, bytes: &[u8]) {
        self.to_engine.extend(numbered(kind, number, bytes).unwrap_or_default());
    }

    fn stop(&mut self) {
        if self.stopping.is_none() {
            self.stopping = Some(Instant::now());
            self.to_engine.extend(frame(Kind::Leave, &[]).unwrap_or_default());
        }
    }

    fn obey(&mut self, request: Request) {
        match request {
            Request::Go => self.to_engine.extend(frame(Kind::Go, &[]).unwrap_or_default()),
            Request::Start { number, exec, ends, told } => {
                // A program too large for a frame is never told of, and its teller goes: whoever waits hears that.
                let Some(start) =
                    serde_json::to_vec(&*exec).ok().and_then(|exec| numbered(Kind::ExecStart, number, &exec))
                else {
                    return;
                };
                self.to_engine.extend(start);
                let outlet = |to| Outlet { to, waiting: Vec::new() };
                let outlets = [outlet(Some(ends.stdout)), outlet(ends.stderr)];
                let (stdin, size) = (Some(ends.stdin), ends.size);
                let wired = Wired {
                    stdin,
                    outstanding: 0,
                    outlets,
                    size,
                    told,
                    has_begun: false,
                    has_ended: false,
                    is_over: false,
                    last: None,
                };
                self.programs.insert(number, wired);
            }
            Request::Signal { number, signal } => self.say(Kind::ExecSignal, number, &[signal]),
            Request::Size { number, size } => self.say(Kind::ExecSize, number, &size.encode()),
            Request::Stop => self.stop(),
        }
    }

    /// A terminal says to nobody on this side that it has another size.
    fn measure(&mut self) {
        let mut changed = Vec::new();
        for (number, wired) in &mut self.programs {
            let now = wired.stdin.as_ref().and_then(|terminal| tcgetwinsize(terminal).ok());
            let now = now.map(|size| (size.ws_row, size.ws_col));
            if let (Some(before), Some(now)) = (wired.size, now)
                && before != now
            {
                wired.size = Some(now);
                changed.push((*number, WindowSize { rows: now.0, columns: now.1 }));
            }
        }
        for (number, size) in changed {
            self.say(Kind::ExecSize, number, &size.encode());
        }
    }

    fn take_input(&mut self, number: u64) -> Result<(), RelayFault> {
        let Some(wired) = self.programs.get_mut(&number) else { return Ok(()) };
        let Some(stdin) = &wired.stdin else { return Ok(()) };
        let mut piece = [0; MAX_PIECE];
        match rustix::io::read(stdin, &mut piece) {
            Ok(0) | Err(Errno::CONNRESET | Errno::IO) => {
                wired.stdin = None;
                self.say(Kind::ExecInputEnd, number, &[]);
            }
            Ok(length) => {
                wired.outstanding += length;
                self.say(Kind::ExecInput, number, piece.get(..length).unwrap_or_default());
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(RelayFault::Relay(errno.into())),
        }
        Ok(())
    }

    /// What pid 1 says of a program that nobody knows goes nowhere.
    fn sort(&mut self, kind: Kind, payload: &[u8]) -> Result<(), RelayFault> {
        let strange = || RelayFault::Frame(FramesFault::Direction);
        let (number, bytes) = of_exec(payload).ok_or_else(strange)?;
        let Some(wired) = self.programs.get_mut(&number) else { return Ok(()) };
        match kind {
            Kind::ExecStdout => wired.hear(0, bytes).ok_or_else(strange),
            Kind::ExecStderr => wired.hear(1, bytes).ok_or_else(strange),
            Kind::ExecTaken => {
                wired.outstanding = wired.outstanding.saturating_sub(count(bytes).ok_or_else(strange)?);
                Ok(())
            }
            Kind::ExecReport => {
                let report = Report::decode(bytes)?;
                wired.has_ended |= report != Report::Began;
                // One that could not be started has nothing to say.
                wired.is_over |= matches!(report, Report::Failed { .. }) && !wired.has_begun;
                wired.has_begun |= report == Report::Began;
                wired.hear_of(report);
                Ok(())
            }
            Kind::ExecOver => {
                wired.is_over = true;
                Ok(())
            }
            Kind::Report
            | Kind::Evidence
            | Kind::Stdout
            | Kind::Stderr
            | Kind::Taken
            | Kind::Kept
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
            | Kind::ExecRoom => Err(strange()),
        }
    }

    /// As much as everybody takes now.
    fn flush(&mut self, engine: &UnixStream) -> Result<(), RelayFault> {
        let mut taken = Vec::new();
        for (number, wired) in &mut self.programs {
            for outlet in &mut wired.outlets {
                taken.push((*number, pour(&mut outlet.to, &mut outlet.waiting)?));
            }
        }
        for (number, length) in taken.into_iter().filter(|(_, length)| *length > 0) {
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            self.say(Kind::ExecRoom, number, &length.to_le_bytes());
        }
        // Its pipes end for whoever reads them, once it is over and all of it is said.
        let done = |wired: &Wired| wired.is_over && wired.is_flushed();
        self.programs.values_mut().filter(|wired| done(wired)).for_each(Wired::tell_the_last);
        self.programs.retain(|_, wired| !done(wired));
        if !self.engine_ended {
            pour_to_engine(engine, &mut self.to_engine);
        }
        Ok(())
    }
}

impl Wired {
    /// A keeper takes a program's end for the end of what it said, so that comes first.
    fn hear_of(&mut self, report: Report) {
        match &self.told {
            Teller::Keeper { .. } if report != Report::Began => self.last = Some(report),
            Teller::Keeper { .. } | Teller::Process(_) => self.told.tell(report),
        }
    }

    fn tell_the_last(&mut self) {
        if let Some(report) = self.last.take() {
            self.told.tell(report);
        }
    }

    /// More than the window is more than pid 1 may say.
    fn hear(&mut self, outlet: usize, bytes: &[u8]) -> Option<()> {
        let outlet = self.outlets.get_mut(outlet)?;
        outlet.waiting.extend(bytes);
        (outlet.waiting.len() <= EXEC_WINDOW).then_some(())
    }
}
