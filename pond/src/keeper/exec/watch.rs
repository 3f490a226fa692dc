//! The loop that stays with one program: waits for its output, its caller and pid 1 at once, and blocks on none of them.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pond_policy::life::Event;
use pond_sandbox::native::remedy;
use pond_wire::jail::{Report, Usage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{Winsize, tcsetwinsize};

use super::kept::Kept;
use super::line;
use crate::audit::Fate;
use crate::keeper::hub::{Ear, Hub};
use crate::keeper::journal::Detail;
use crate::keeper::protocol::{self, Answer, Exec, ExecEnd, Kind, PIECE, Refusal, Size};

const KILL: u8 = 9;
/// With this much waiting for the caller, or for the program, no more is taken.
const FULL: usize = 256 << 10;
/// How long a caller may take for the last words.
const FAREWELL: Duration = Duration::from_secs(30);
/// The exit code of a program that took too long.
const TIMED_OUT: u8 = 124;

/// Our ends of the program's pipes.
pub(super) struct Streams {
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// A program that was asked for.
pub(super) struct Program {
    pub(super) number: u64,
    pub(super) ear: Arc<Ear>,
    pub(super) streams: Option<Streams>,
    pub(super) kept: Kept,
}

/// Whoever called, and what is on its way to and from him.
struct Caller {
    stream: UnixStream,
    to: Vec<u8>,
    from: Vec<u8>,
}

struct Watch<'a> {
    hub: &'a Hub,
    number: u64,
    ear: &'a Ear,
    kept: Kept,
    outputs: Vec<(Kind, OwnedFd)>,
    input: Option<OwnedFd>,
    for_input: Vec<u8>,
    input_ended: bool,
    caller: Option<Caller>,
    started: Instant,
    deadline: Option<Instant>,
    timed_out: bool,
}

enum Over {
    Ended { exit_code: u8, signal: Option<u8>, usage: Usage },
    Failed { message: String },
}

impl Program {
    pub(super) fn run(self, hub: &Hub, wanted: &Exec, caller: Option<UnixStream>) {
        let caller = caller.filter(|stream| stream.set_nonblocking(true).is_ok());
        let started = Instant::now();
        let (input, outputs) = match self.streams {
            None => (None, Vec::new()),
            Some(Streams { stdin, stdout, stderr }) => {
                (stdin.filter(|_| wanted.input), vec![(Kind::Stdout, stdout), (Kind::Stderr, stderr)])
            }
        };
        let mut watch = Watch {
            hub,
            number: self.number,
            ear: &self.ear,
            kept: self.kept,
            outputs,
            input,
            for_input: Vec::new(),
            input_ended: !wanted.input,
            caller: caller.map(|stream| Caller { stream, to: Vec::new(), from: Vec::new() }),
            started,
            deadline: wanted.timeout_seconds.map(|seconds| started + Duration::from_secs(seconds)),
            timed_out: false,
        };
        let over = loop {
            match watch.turn() {
                Ok(None) => {}
                Ok(Some(over)) => break over,
                Err(fault) => {
                    watch.kill();
                    break Over::Failed { message: format!("watching the program: {fault}") };
                }
            }
        };
        watch.finish(wanted, over);
    }
}

impl Watch<'_> {
    /// One wait and what follows from it.
    fn turn(&mut self) -> io::Result<Option<Over>> {
        let ready = self.wait()?;
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) && !self.timed_out {
            self.timed_out = true;
            self.kill();
        }
        if ready.caller {
            self.hear_caller();
        }
        self.flush();
        self.feed()?;
        for kind in ready.outputs {
            self.read(kind)?;
        }
        if ready.ear { self.hear() } else { Ok(None) }
    }

    fn wait(&self) -> io::Result<Ready> {
        let is_full = self.caller.as_ref().is_some_and(|caller| caller.to.len() >= FULL);
        let mut fds = vec![PollFd::new(self.ear, PollFlags::IN)];
        let outputs: Vec<Kind> =
            if is_full { Vec::new() } else { self.outputs.iter().map(|(kind, _)| *kind).collect() };
        if !is_full {
            fds.extend(self.outputs.iter().map(|(_, output)| PollFd::new(output, PollFlags::IN)));
        }
        if let Some(caller) = &self.caller {
            let mut flags = PollFlags::RDHUP;
            flags.set(PollFlags::IN, self.for_input.len() < FULL);
            flags.set(PollFlags::OUT, !caller.to.is_empty());
            fds.push(PollFd::new(&caller.stream, flags));
        }
        if let Some(input) = self.input.as_ref().filter(|_| !self.for_input.is_empty()) {
            fds.push(PollFd::new(input, PollFlags::OUT));
        }
        let left = self.deadline.filter(|_| !self.timed_out);
        let left = left.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left + Duration::from_millis(1)).ok());
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut found = fds.iter().map(|fd| !fd.revents().is_empty());
        let ear = found.next().unwrap_or(false);
        let outputs = outputs.into_iter().filter(|_| found.next().unwrap_or(false)).collect();
        let caller = self.caller.is_some() && found.next().unwrap_or(false);
        Ok(Ready { ear, outputs, caller })
    }

    /// What pid 1 says of it.
    fn hear(&mut self) -> io::Result<Option<Over>> {
        while let Some((report, descriptors)) = self.ear.hear() {
            match report {
                Report::Began => {
                    if let Some(master) = descriptors.into_iter().next() {
                        self.attach(master)?;
                    }
                }
                Report::Failed { step, errno } => {
                    let why = io::Error::from_raw_os_error(errno);
                    let advice = remedy(step, errno).map(|advice| format!("; {advice}")).unwrap_or_default();
                    let message = format!("could not {}: {why}{advice}", step.describe());
                    return Ok(Some(Over::Failed { message }));
                }
                Report::Exited { code, usage } => {
                    return Ok(Some(Over::Ended { exit_code: code, signal: None, usage }));
                }
                Report::Signaled { signal, usage } => {
                    let exit_code = 128u8.saturating_add(signal);
                    return Ok(Some(Over::Ended { exit_code, signal: Some(signal), usage }));
                }
                Report::Started | Report::Doors | Report::Prepared | Report::Serving | Report::Connected => {}
            }
        }
        Ok(None)
    }

    fn attach(&mut self, master: OwnedFd) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&master, true)?;
        self.input = Some(master.try_clone()?);
        self.outputs.push((Kind::Terminal, master));
        Ok(())
    }

    fn read(&mut self, kind: Kind) -> io::Result<()> {
        let Some((_, output)) = self.outputs.iter().find(|(open, _)| *open == kind) else { return Ok(()) };
        let mut piece = vec![0; PIECE];
        let length = match rustix::io::read(output, &mut *piece) {
            // A terminal that nobody inside holds any more answers with an error.
            Ok(0) | Err(Errno::IO) => {
                self.outputs.retain(|(open, _)| *open != kind);
                return Ok(());
            }
            Err(Errno::INTR | Errno::AGAIN) => return Ok(()),
            read => read?,
        };
        let bytes = piece.get(..length).unwrap_or_default();
        // Whoever waits for it comes first; the files are whole before anybody hears of the end.
        if let Some(caller) = &mut self.caller {
            protocol::write_frame(&mut caller.to, kind, bytes)?;
        }
        self.flush();
        match kind {
            Kind::Stderr => self.kept.stderr(bytes),
            Kind::Say | Kind::Input | Kind::Stdout | Kind::Terminal | Kind::Resize => self.kept.stdout(bytes),
        }
        Ok(())
    }

    /// As much as he takes now.
    fn flush(&mut self) {
        let Some(caller) = &mut self.caller else { return };
        while !caller.to.is_empty() {
            match caller.stream.write(&caller.to) {
                Ok(length) => drop(caller.to.drain(..length)),
                Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => return,
                Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
                Err(_gone) => return self.leave(),
            }
        }
    }

    /// Whoever goes away ends what he started.
    fn leave(&mut self) {
        self.caller = None;
        self.kill();
    }

    fn hear_caller(&mut self) {
        let Some(caller) = &mut self.caller else { return };
        let mut piece = vec![0; PIECE];
        match caller.stream.read(&mut piece) {
            Ok(0) => return self.leave(),
            Ok(length) => caller.from.extend_from_slice(piece.get(..length).unwrap_or_default()),
            Err(fault) if [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&fault.kind()) => {
                return;
            }
            Err(_gone) => return self.leave(),
        }
        loop {
            let Some(caller) = &mut self.caller else { return };
            let mut rest = caller.from.as_slice();
            let before = rest.len();
            match protocol::read_frame(&mut rest) {
                Ok(Some((kind, bytes))) => {
                    let taken = before - rest.len();
                    caller.from.drain(..taken);
                    self.take(kind, &bytes);
                }
                // The rest of a frame is on its way.
                Ok(None) => return,
                Err(fault) if fault.kind() == io::ErrorKind::UnexpectedEof => return,
                Err(_nonsense) => return self.leave(),
            }
        }
    }

    fn take(&mut self, kind: Kind, bytes: &[u8]) {
        match kind {
            Kind::Input if bytes.is_empty() => self.input_ended = true,
            Kind::Input => self.for_input.extend_from_slice(bytes),
            Kind::Resize => {
                let master = self.outputs.iter().find(|(kind, _)| *kind == Kind::Terminal);
                if let (Some((_, master)), Ok(size)) = (master, serde_json::from_slice::<Size>(bytes)) {
                    let size =
                        Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
                    if let Err(_gone) = tcsetwinsize(master, size) {}
                }
            }
            Kind::Say | Kind::Stdout | Kind::Stderr | Kind::Terminal => {}
        }
    }

    fn feed(&mut self) -> io::Result<()> {
        while let Some(input) = self.input.as_ref().filter(|_| !self.for_input.is_empty()) {
            match rustix::io::write(input, &self.for_input) {
                Ok(length) => drop(self.for_input.drain(..length)),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                // It reads no more.
                Err(Errno::PIPE | Errno::IO) => {
                    self.for_input.clear();
                    self.input = None;
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        let is_terminal = self.outputs.iter().any(|(kind, _)| *kind == Kind::Terminal);
        if self.input_ended && self.for_input.is_empty() && !is_terminal {
            self.input = None;
        }
        Ok(())
    }

    fn kill(&self) {
        if let Err(_gone) = self.hub.ask(|serving| serving.signal(self.number, KILL)) {}
    }

    /// What is in the pipes is all there is of it: others that it started may go on, and hold them.
    fn drain(&mut self) -> io::Result<()> {
        for kind in [Kind::Stdout, Kind::Stderr, Kind::Terminal] {
            while let Some((_, output)) = self.outputs.iter().find(|(open, _)| *open == kind) {
                let now = Timespec { tv_sec: 0, tv_nsec: 0 };
                if poll(&mut [PollFd::new(output, PollFlags::IN)], Some(&now))? == 0 {
                    break;
                }
                self.read(kind)?;
            }
        }
        Ok(())
    }

    fn finish(mut self, wanted: &Exec, over: Over) {
        if let Err(_what_was_read_stays) = self.drain() {}
        let elapsed = self.started.elapsed();
        let (answer, exit_code) = match over {
            Over::Failed { message } => (Err(message), 125),
            Over::Ended { exit_code, signal, usage } => {
                let exit_code = if self.timed_out { TIMED_OUT } else { exit_code };
                let end = ExecEnd {
                    exec: self.number,
                    exit_code,
                    signal,
                    timed_out: self.timed_out,
                    cancelled: self.ear.is_cancelled.load(Ordering::SeqCst),
                    truncated: self.kept.truncated(),
                    elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
                    max_rss_kib: usage.max_rss_kib,
                    cpu_micros: usage.cpu_micros,
                };
                (Ok(end), exit_code)
            }
        };
        let (id, timed_out) = (self.hub.place.id(), self.timed_out);
        let fate = Fate::Ran { id, returncode: exit_code, elapsed, timed_out };
        if let Err(_full) = self.hub.audit.append(&line(self.hub, &wanted.argv), &fate) {}
        self.kept.finish(answer.clone());
        self.hub.forget(self.number);
        let detail = Detail { exec: Some(self.number), exit_code: Some(exit_code), ..Detail::default() };
        if let Err(_over) = self.hub.note(Event::ExecEnded, detail) {}
        let answer = answer
            .map_or_else(|message| Answer::Refused(Refusal::new("exec_failed", message)), Answer::Ended);
        if let Some(mut caller) = self.caller
            && protocol::say(&mut caller.to, &answer).is_ok()
        {
            say_goodbye(&mut caller);
        }
    }
}

struct Ready {
    ear: bool,
    outputs: Vec<Kind>,
    caller: bool,
}

/// All that is left for him, as long as he takes any of it.
fn say_goodbye(caller: &mut Caller) {
    let blocking = caller.stream.set_nonblocking(false);
    let patient = blocking.and_then(|()| caller.stream.set_write_timeout(Some(FAREWELL)));
    if patient.is_ok()
        && let Err(_gone) = caller.stream.write_all(&caller.to)
    {}
}
