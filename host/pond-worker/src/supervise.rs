//! Watches one running job to its end: relays its streams, keeps its bounds, and stops it when it must.
//!
//! Zone: host. Everything that arrives on the streams is hostile: it is counted, handed on in bounded pieces, never parsed. The
//! verdict comes from the launcher's reports and the control group's counters alone. Nothing here waits for whoever watches the
//! job: while they do not keep up, the job's output is left where it is, and the clock and the interrupt go on.

mod feeder;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use pond_sandbox::native::{Ending, Over, Running, RunningFault};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};

use crate::terminal::{TerminalFault, UserTerminal};
use feeder::{Fed, Feeder, Presses, Source};

/// How long a killed job may take to be gone before that is an error in itself.
const KILL_GRACE: Duration = Duration::from_secs(5);
const PIECE: usize = 64 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum SuperviseFault {
    #[error("waiting for the job")]
    Poll(#[source] io::Error),
    #[error("reading the job's output")]
    Output(#[source] io::Error),
    #[error("handing the job's output on")]
    Sink(#[source] io::Error),
    #[error("feeding the job's input")]
    Input(#[source] io::Error),
    #[error("the job is still alive {} s after it was killed", KILL_GRACE.as_secs())]
    Unkillable,
    #[error("connecting the job's terminal")]
    Connect(#[source] io::Error),
    #[error(transparent)]
    Terminal(#[from] TerminalFault),
    #[error(transparent)]
    Running(#[from] RunningFault),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
    /// Both, as a terminal mixes them.
    Terminal,
}

/// Why pond itself ended a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    TimedOut,
    TooMuchOutput,
    Interrupted,
    /// Nobody reads what it writes.
    Unread,
}

#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub wall: Duration,
    pub output_bytes: u64,
}

/// What the job is connected to on this side.
#[derive(Debug, Clone, Copy)]
pub struct Wiring<'a> {
    /// Copied to the job's standard input; without it the job reads end-of-file.
    pub input: Option<BorrowedFd<'a>>,
    /// Readable when somebody wants the job to stop.
    pub interrupt: Option<BorrowedFd<'a>>,
    /// The person's terminal that the job's own stands for; its keys are the input.
    pub terminal: Option<&'a UserTerminal>,
    /// A stream named here is read only while its descriptor is readable: whoever watches it keeps up.
    pub rooms: &'a [(Stream, OwnedFd)],
}

/// A job that ended.
#[derive(Debug)]
pub struct Ended {
    pub over: Over,
    pub stop: Option<Stop>,
    pub elapsed: Duration,
    pub output_bytes: u64,
    /// Streams of which something was not handed on.
    pub cut: Vec<Stream>,
    /// Why the job's input ended before its end, if it did.
    pub input_fault: Option<io::Error>,
}

/// Runs until the job and everything it started are gone. `sink` gets every piece of output in order, per stream, and must not
/// wait. What it returns the job gets to hear, as if typed: pond's own answers to what a job asks its terminal. A broken pipe ends
/// the job, as it does where no pond stands between the two.
pub fn supervise(
    mut running: Running,
    wiring: Wiring<'_>,
    bounds: Bounds,
    sink: impl FnMut(Stream, &[u8]) -> io::Result<String>,
) -> Result<Ended, SuperviseFault> {
    let started = Instant::now();
    let source = wiring.terminal.map_or(Source::Pipe, |_| Source::Keyboard(Presses::default()));
    let mut feeder = Feeder::new(wiring.input, source);
    let mut outputs = Vec::new();
    if let Some(streams) = running.streams.take() {
        feeder.connect(streams.stdin).map_err(SuperviseFault::Input)?;
        // A job can open its own end of a pipe again and take out what it wrote, between our wait and our reading.
        for output in [&streams.stdout, &streams.stderr] {
            ioctl_fionbio(output, true).map_err(|errno| SuperviseFault::Output(errno.into()))?;
        }
        outputs.extend([(Stream::Stdout, streams.stdout), (Stream::Stderr, streams.stderr)]);
    }
    let terminal = wiring.terminal;
    let rooms = wiring.rooms;
    let mut watch = Watch {
        running,
        feeder,
        outputs,
        terminal,
        rooms,
        sink,
        bounds,
        started,
        stopped: None,
        output_bytes: 0,
        cut: Vec::new(),
        input_fault: None,
    };
    // Whoever waited for the doors may have taken the report that brought it.
    if let Some(master) = watch.running.terminal.take() {
        watch.attach(master)?;
    }
    let ending = loop {
        if let Some(ending) = watch.turn(wiring.interrupt)? {
            break ending;
        }
    };
    watch.drain()?;
    let elapsed = started.elapsed();
    let Watch { stopped, output_bytes, cut, input_fault, running, .. } = watch;
    let over = running.finish(ending)?;
    Ok(Ended { over, stop: stopped.map(|(stop, _)| stop), elapsed, output_bytes, cut, input_fault })
}

struct Watch<'a, S> {
    running: Running,
    feeder: Feeder<'a>,
    /// Those that have not ended.
    outputs: Vec<(Stream, OwnedFd)>,
    terminal: Option<&'a UserTerminal>,
    rooms: &'a [(Stream, OwnedFd)],
    sink: S,
    bounds: Bounds,
    started: Instant,
    stopped: Option<(Stop, Instant)>,
    output_bytes: u64,
    cut: Vec<Stream>,
    input_fault: Option<io::Error>,
}

/// What became ready in one wait.
struct Ready {
    report: bool,
    outputs: Vec<Stream>,
    source: bool,
    target: bool,
    interrupt: bool,
    changed: bool,
}

/// What one read of an output gave.
enum Got {
    Bytes,
    Nothing,
    End,
}

impl<S: FnMut(Stream, &[u8]) -> io::Result<String>> Watch<'_, S> {
    /// One wait and what follows from it. Returns how the job ended when nobody can report on it any more.
    fn turn(&mut self, interrupt: Option<BorrowedFd<'_>>) -> Result<Option<Ending>, SuperviseFault> {
        let ready = self.wait(interrupt)?;
        let left = self.feed(&ready)?;
        for stream in ready.outputs {
            if let Got::End = self.read(stream)? {
                self.outputs.retain(|(open, _)| *open != stream);
            }
        }
        if ready.changed {
            self.resize()?;
        }
        if ready.interrupt || left == Fed::Leave && self.stopped.is_none() {
            self.stop(Stop::Interrupted)?;
        }
        match self.stopped {
            None if self.started.elapsed() >= self.bounds.wall => self.stop(Stop::TimedOut)?,
            Some((_, since)) if since.elapsed() >= KILL_GRACE => return Err(SuperviseFault::Unkillable),
            Some(_) if !ready.report => self.running.kill()?,
            None | Some(_) => {}
        }
        if !ready.report {
            return Ok(None);
        }
        let ending = self.running.take_report()?;
        if let Some(master) = self.running.terminal.take() {
            self.attach(master)?;
        }
        Ok(ending)
    }

    fn wait(&self, interrupt: Option<BorrowedFd<'_>>) -> Result<Ready, SuperviseFault> {
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let source = self.feeder.source();
        let target = self.feeder.target();
        let listening = interrupt.filter(|_| self.stopped.is_none());
        let full: Vec<Option<BorrowedFd<'_>>> =
            self.outputs.iter().map(|(stream, _)| self.full(*stream)).collect::<Result<_, _>>()?;
        let mut fds = vec![readable(self.running.reports())];
        let waits = self.outputs.iter().zip(&full).map(|((_, output), full)| full.unwrap_or(output.as_fd()));
        fds.extend(waits.map(readable));
        fds.extend(source.map(readable));
        fds.extend(target.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)));
        fds.extend(listening.map(readable));
        fds.extend(self.terminal.map(|terminal| readable(terminal.changes())));
        match poll(&mut fds, Some(&self.patience())) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(SuperviseFault::Poll(errno.into())),
        }
        let mut results = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut next = |asked: bool| asked && results.next().unwrap_or(false);
        let report = next(true);
        let outputs = self.outputs.iter().zip(&full).filter(|(_, full)| next(true) && full.is_none());
        Ok(Ready {
            report,
            outputs: outputs.map(|((stream, _), _)| *stream).collect(),
            source: next(source.is_some()),
            target: next(target.is_some()),
            interrupt: next(listening.is_some()),
            changed: next(self.terminal.is_some()),
        })
    }

    /// What becomes readable when this stream's watcher takes more again; nothing while they do.
    fn full(&self, stream: Stream) -> Result<Option<BorrowedFd<'_>>, SuperviseFault> {
        let Some((_, room)) = self.rooms.iter().find(|(of, _)| *of == stream) else { return Ok(None) };
        match poll(&mut [PollFd::new(room, PollFlags::IN)], Some(&Timespec::default())) {
            Ok(0) => Ok(Some(room.as_fd())),
            Ok(_) | Err(Errno::INTR) => Ok(None),
            Err(errno) => Err(SuperviseFault::Poll(errno.into())),
        }
    }

    fn feed(&mut self, ready: &Ready) -> Result<Fed, SuperviseFault> {
        let fed = match ready.source.then(|| self.feeder.read()) {
            None => Fed::GoOn,
            Some(Ok(fed)) => fed,
            // What the job made of the input it got is not lost for that.
            Some(Err(fault)) => {
                self.input_fault.get_or_insert(fault);
                self.feeder.end()
            }
        };
        if ready.target {
            self.feeder.write().map_err(SuperviseFault::Input)?;
        }
        Ok(fed)
    }

    /// The job's terminal has arrived: input goes there, output comes from there, and it is as large as the person's.
    fn attach(&mut self, master: OwnedFd) -> Result<(), SuperviseFault> {
        let input = master.try_clone().map_err(SuperviseFault::Connect)?;
        self.feeder.connect(input).map_err(SuperviseFault::Connect)?;
        self.outputs.push((Stream::Terminal, master));
        self.resize()
    }

    fn resize(&self) -> Result<(), SuperviseFault> {
        let Some(person) = self.terminal else { return Ok(()) };
        let size = person.renew()?;
        for (_, master) in self.outputs.iter().filter(|(stream, _)| *stream == Stream::Terminal) {
            self.running.resize(master.as_fd(), size)?;
        }
        Ok(())
    }

    /// Until the deadline, or a short while when the job is being killed.
    fn patience(&self) -> Timespec {
        let left = match self.stopped {
            None => self.bounds.wall.saturating_sub(self.started.elapsed()),
            Some(_) => Duration::from_millis(50),
        };
        // A sliver is added so that the wait does not end just before the deadline.
        let left = left + Duration::from_millis(1);
        Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        }
    }

    fn read(&mut self, stream: Stream) -> Result<Got, SuperviseFault> {
        let Some((_, source)) = self.outputs.iter().find(|(open, _)| *open == stream) else {
            return Ok(Got::End);
        };
        // Not zeroed first: touching memory costs more than most pieces do.
        let mut piece = Vec::with_capacity(PIECE);
        let length = match rustix::io::read(source, spare_capacity(&mut piece)) {
            // A terminal that nobody inside holds any more answers with an error.
            Ok(0) | Err(Errno::IO) => return Ok(Got::End),
            Err(Errno::INTR | Errno::AGAIN) => return Ok(Got::Nothing),
            other => other.map_err(|errno| SuperviseFault::Output(errno.into()))?,
        };
        let room = self.bounds.output_bytes.saturating_sub(self.output_bytes);
        let kept = length.min(usize::try_from(room).unwrap_or(usize::MAX));
        self.output_bytes += length as u64;
        match (self.sink)(stream, piece.get(..kept).unwrap_or_default()) {
            Ok(answers) => self.feeder.answer(&answers),
            Err(fault) if fault.kind() == io::ErrorKind::BrokenPipe => {
                if self.stopped.is_none() {
                    self.stop(Stop::Unread)?;
                }
            }
            Err(fault) => return Err(SuperviseFault::Sink(fault)),
        }
        if kept < length && !self.cut.contains(&stream) {
            self.cut.push(stream);
        }
        if kept < length && self.stopped.is_none() {
            self.stop(Stop::TooMuchOutput)?;
        }
        Ok(Got::Bytes)
    }

    /// Everything that could write is dead or dying, so what is in the pipes is all there will be.
    fn drain(&mut self) -> Result<(), SuperviseFault> {
        while let Some((stream, source)) = self.outputs.first() {
            let stream = *stream;
            let grace = Timespec { tv_sec: KILL_GRACE.as_secs().cast_signed(), tv_nsec: 0 };
            match poll(&mut [PollFd::new(source, PollFlags::IN)], Some(&grace)) {
                Ok(0) => return Err(SuperviseFault::Unkillable),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(SuperviseFault::Poll(errno.into())),
            }
            if let Got::End = self.read(stream)? {
                self.outputs.remove(0);
            }
        }
        Ok(())
    }

    fn stop(&mut self, why: Stop) -> Result<(), SuperviseFault> {
        self.stopped = Some((why, Instant::now()));
        Ok(self.running.kill()?)
    }
}
