//! Watches one running job to its end: relays its streams, keeps its bounds, and stops it when it must.
//!
//! Zone: host. Everything that arrives on the streams is hostile: it is counted, handed on in bounded pieces, never parsed. The
//! verdict comes from the launcher's reports and the control group's counters alone.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use pond_sandbox::native::{Ending, Over, Running, RunningFault};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

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
    #[error(transparent)]
    Running(#[from] RunningFault),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// Why pond itself ended a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    TimedOut,
    TooMuchOutput,
    Interrupted,
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
}

/// A job that ended.
#[derive(Debug)]
pub struct Ended {
    pub over: Over,
    pub stop: Option<Stop>,
    pub elapsed: Duration,
    pub output_bytes: u64,
}

/// Runs until the job and everything it started are gone. `sink` gets every piece of output in order, per stream.
pub fn supervise(
    mut running: Running,
    wiring: Wiring<'_>,
    bounds: Bounds,
    sink: impl FnMut(Stream, &[u8]) -> io::Result<()>,
) -> Result<Ended, SuperviseFault> {
    let started = Instant::now();
    let feeder = Feeder::new(running.streams.stdin.take(), wiring.input).map_err(SuperviseFault::Input)?;
    let mut watch =
        Watch { running, feeder, sink, bounds, started, stopped: None, output_bytes: 0, open: [true; 2] };
    let ending = loop {
        if let Some(ending) = watch.turn(wiring.interrupt)? {
            break ending;
        }
    };
    watch.drain()?;
    let elapsed = started.elapsed();
    let over = watch.running.finish(ending)?;
    Ok(Ended { over, stop: watch.stopped.map(|(stop, _)| stop), elapsed, output_bytes: watch.output_bytes })
}

struct Watch<'a, S> {
    running: Running,
    feeder: Feeder<'a>,
    sink: S,
    bounds: Bounds,
    started: Instant,
    stopped: Option<(Stop, Instant)>,
    output_bytes: u64,
    open: [bool; 2],
}

/// What became ready in one wait.
struct Ready {
    report: bool,
    output: [bool; 2],
    feed: bool,
    interrupt: bool,
}

impl<S: FnMut(Stream, &[u8]) -> io::Result<()>> Watch<'_, S> {
    /// One wait and what follows from it. Returns how the job ended when nobody can report on it any more.
    fn turn(&mut self, interrupt: Option<BorrowedFd<'_>>) -> Result<Option<Ending>, SuperviseFault> {
        let ready = self.wait(interrupt)?;
        if ready.feed {
            self.feeder.feed().map_err(SuperviseFault::Input)?;
        }
        self.relay(ready.output)?;
        if ready.interrupt {
            self.stop(Stop::Interrupted)?;
        }
        match self.stopped {
            None if self.started.elapsed() >= self.bounds.wall => self.stop(Stop::TimedOut)?,
            Some((_, since)) if since.elapsed() >= KILL_GRACE => return Err(SuperviseFault::Unkillable),
            Some(_) if !ready.report => self.running.kill()?,
            None | Some(_) => {}
        }
        if ready.report { Ok(self.running.take_report()?) } else { Ok(None) }
    }

    fn wait(&self, interrupt: Option<BorrowedFd<'_>>) -> Result<Ready, SuperviseFault> {
        let streams = &self.running.streams;
        let mut fds = vec![PollFd::from_borrowed_fd(self.running.reports(), PollFlags::IN)];
        let outputs = [streams.stdout.as_fd(), streams.stderr.as_fd()];
        for (fd, open) in outputs.into_iter().zip(self.open) {
            if open {
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
        }
        let feed = self.feeder.interest();
        fds.extend(feed.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
        let listening = interrupt.filter(|_| self.stopped.is_none());
        fds.extend(listening.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        match poll(&mut fds, Some(&self.patience())) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(SuperviseFault::Poll(errno.into())),
        }
        let mut results = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut next = |asked: bool| asked && results.next().unwrap_or(false);
        Ok(Ready {
            report: next(true),
            output: [next(self.open[0]), next(self.open[1])],
            feed: next(feed.is_some()),
            interrupt: next(listening.is_some()),
        })
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

    fn relay(&mut self, ready: [bool; 2]) -> Result<(), SuperviseFault> {
        for (index, stream) in [Stream::Stdout, Stream::Stderr].into_iter().enumerate() {
            if ready.get(index).copied().unwrap_or(false) && self.read(stream)? == 0 {
                self.open = match stream {
                    Stream::Stdout => [false, self.open[1]],
                    Stream::Stderr => [self.open[0], false],
                };
            }
        }
        Ok(())
    }

    fn read(&mut self, stream: Stream) -> Result<usize, SuperviseFault> {
        let source = match stream {
            Stream::Stdout => &self.running.streams.stdout,
            Stream::Stderr => &self.running.streams.stderr,
        };
        let mut piece = [0; PIECE];
        let length = loop {
            match rustix::io::read(source, &mut piece) {
                Err(Errno::INTR) => {}
                other => break other.map_err(|errno| SuperviseFault::Output(errno.into()))?,
            }
        };
        let room = self.bounds.output_bytes.saturating_sub(self.output_bytes);
        let kept = length.min(usize::try_from(room).unwrap_or(usize::MAX));
        self.output_bytes += length as u64;
        (self.sink)(stream, piece.get(..kept).unwrap_or_default()).map_err(SuperviseFault::Sink)?;
        if kept < length && self.stopped.is_none() {
            self.stop(Stop::TooMuchOutput)?;
        }
        Ok(length)
    }

    /// Everything that could write is dead, so what is in the pipes is all there will be.
    fn drain(&mut self) -> Result<(), SuperviseFault> {
        for (open, stream) in self.open.into_iter().zip([Stream::Stdout, Stream::Stderr]) {
            while open && self.read(stream)? > 0 {}
        }
        Ok(())
    }

    fn stop(&mut self, why: Stop) -> Result<(), SuperviseFault> {
        self.stopped = Some((why, Instant::now()));
        Ok(self.running.kill()?)
    }
}

/// Copies input to the job without ever blocking on a job that does not read.
struct Feeder<'a> {
    to: Option<OwnedFd>,
    from: Option<BorrowedFd<'a>>,
    pending: Vec<u8>,
}

impl<'a> Feeder<'a> {
    fn new(to: Option<OwnedFd>, from: Option<BorrowedFd<'a>>) -> io::Result<Self> {
        let to = to.filter(|_| from.is_some());
        if let Some(pipe) = &to {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(Self { to, from, pending: Vec::new() })
    }

    fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let to = self.to.as_ref()?;
        if self.pending.is_empty() {
            self.from.map(|from| (from, PollFlags::IN))
        } else {
            Some((to.as_fd(), PollFlags::OUT))
        }
    }

    fn feed(&mut self) -> io::Result<()> {
        let (Some(to), Some(from)) = (&self.to, self.from) else { return Ok(()) };
        if self.pending.is_empty() {
            let mut piece = [0; PIECE];
            match rustix::io::read(from, &mut piece) {
                Ok(0) => self.to = None,
                Ok(length) => self.pending.extend(piece.iter().take(length)),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
            return Ok(());
        }
        match rustix::io::write(to, &self.pending) {
            Ok(length) => drop(self.pending.drain(..length)),
            Err(Errno::INTR | Errno::AGAIN) => {}
            // The job closed its input, which is its right.
            Err(Errno::PIPE) => self.to = None,
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }
}
