//! A container that lasts: made as a job's is, from the same plan, storage and posture, with a pid 1 that serves many programs
//! until it is told to end.
//!
//! Its kernel is judged and its doors are open before anybody can ask it for anything. Letting go of it ends it, and it is removed
//! with everything in it; its record leads whoever comes later to what is left.

mod relay;
mod serve;

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use pond_wire::contained::{Evidence, Kind, MAX_PIECE, WindowSize, frame};
use pond_wire::jail::{ExecOrder, Report, Step};
use rustix::process::{Pid, Signal};

use super::canary::{Isolation, Outside, judge};
use super::engine::{Engine, EngineFault};
use super::frames::Frames;
use super::launch::{Connection, Container, ContainerFault, Wires};
use super::reap;
use super::relay::{RelayFault, outside};
use super::stage::Layer;
use crate::native::cgroup::{Foreign, Usage, kill_all_in};
use crate::native::{Ending, IdRange, LauncherFault, Streams, next_report};
pub use relay::Gone;
use relay::{Ends, Relay, Request, Teller};

/// How long pid 1 may take until it serves, on a loaded host.
const PATIENCE: Duration = Duration::from_secs(60);

/// More than the thread leaves unheard; and all that is ever said of one program.
const REQUESTS: usize = 64;
const REPORTS: usize = 4;
/// A keeper at the same container counts from one.
const OWN_NUMBERS: u64 = 1 << 63;

#[derive(Debug, thiserror::Error)]
pub enum KeepFault {
    #[error(transparent)]
    Container(#[from] ContainerFault),
    #[error(transparent)]
    Launcher(#[from] LauncherFault),
    #[error("pid 1 of the container could not {}", .step.describe())]
    Step { step: Step, source: io::Error },
    #[error("pid 1 of the container ended before it served")]
    NotServing,
    #[error("connecting a program's streams")]
    Connect(#[source] io::Error),
    #[error("the container is not there any more")]
    Gone,
    #[error("the thread that stays with the container ended badly")]
    Attendant,
}

impl KeepFault {
    fn into_container(self) -> ContainerFault {
        match self {
            Self::Container(fault) => fault,
            Self::Launcher(fault) => fault.into(),
            other @ (Self::Step { .. }
            | Self::NotServing
            | Self::Connect(_)
            | Self::Gone
            | Self::Attendant) => ContainerFault::Pipes(io::Error::other(other.to_string())),
        }
    }
}

impl From<RelayFault> for KeepFault {
    fn from(fault: RelayFault) -> Self {
        ContainerFault::from(fault).into()
    }
}

impl From<io::Error> for KeepFault {
    fn from(fault: io::Error) -> Self {
        Self::Connect(fault)
    }
}

/// How a container that lasted came to its end.
#[derive(Debug)]
pub struct Finished {
    pub gone: Gone,
    /// Why the container is still there, with nothing alive in it.
    pub left: Option<EngineFault>,
}

/// A container that serves. Letting go of it ends it and waits until it is gone.
#[derive(Debug)]
pub struct Kept {
    id: String,
    first: Pid,
    line: Line,
    next: AtomicU64,
    isolation: Isolation,
    command: Vec<String>,
    doors: Mutex<Vec<OwnedFd>>,
    layer: Layer,
    groups: Foreign,
    attendant: Mutex<Option<JoinHandle<Result<Finished, ContainerFault>>>>,
    process: OwnedFd,
    /// Until somebody else holds it for as long.
    range: Option<IdRange>,
}

/// The way to the thread that stays with the container.
#[derive(Debug, Clone)]
struct Line {
    requests: SyncSender<Request>,
    bell: Arc<UnixStream>,
}

impl Line {
    fn ask(&self, request: Request) -> Result<(), KeepFault> {
        self.requests.send(request).map_err(|_| KeepFault::Gone)?;
        // A bell that is full has rung.
        match (&*self.bell).write(&[1]) {
            Err(fault) if fault.kind() != io::ErrorKind::WouldBlock => Err(KeepFault::Gone),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// A program that was asked for. Letting go of it does not end it.
#[derive(Debug)]
pub struct Process {
    number: u64,
    /// Until they are taken; one with a terminal has none.
    pub streams: Option<Streams>,
    /// A stream that stands for the program's terminal, until it is taken.
    pub terminal: Option<OwnedFd>,
    reports: Receiver<Report>,
    line: Line,
}

impl Process {
    /// How it ended, if it does within this time. A program whose container ends is lost.
    pub fn wait(&self, within: Duration) -> Option<Ending> {
        let deadline = std::time::Instant::now() + within;
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            return match self.reports.recv_timeout(left) {
                Ok(Report::Exited { code, usage }) => Some(Ending::Exited { code, usage }),
                Ok(Report::Signaled { signal, usage }) => Some(Ending::Signaled { signal, usage }),
                Ok(Report::Failed { step, errno }) => Some(Ending::NotLaunched { step, errno }),
                Ok(
                    Report::Started
                    | Report::Doors
                    | Report::Prepared
                    | Report::Serving
                    | Report::Began
                    | Report::Connected,
                ) => continue,
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Ending::Lost),
            };
        }
    }

    /// To everything that did not leave its group.
    pub fn signal(&self, signal: Signal) -> Result<(), KeepFault> {
        let signal = u8::try_from(signal.as_raw()).map_err(|_| KeepFault::Gone)?;
        self.line.ask(Request::Signal { number: self.number, signal })
    }

    pub fn resize(&self, size: WindowSize) -> Result<(), KeepFault> {
        self.line.ask(Request::Size { number: self.number, size })
    }
}

impl Kept {
    /// The engine's name for it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its first process as this host sees it.
    pub fn first(&self) -> Pid {
        self.first
    }

    /// What was seen of its kernel before anything ran in it.
    pub fn isolation(&self) -> &Isolation {
        &self.isolation
    }

    /// The listeners of its gateway, once.
    pub fn take_doors(&self) -> Vec<OwnedFd> {
        self.doors.lock().map(|mut doors| std::mem::take(&mut *doors)).unwrap_or_default()
    }

    /// What its programs see as their working directory, on this host.
    pub fn view(&self) -> BorrowedFd<'_> {
        self.layer.view.as_fd()
    }

    /// What it uses.
    pub fn usage(&self) -> Result<Usage, KeepFault> {
        Ok(self.groups.usage().map_err(RelayFault::Counters)?)
    }

    /// What it runs of itself, where it is a companion.
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// Whoever guards its way out serves: programs may be started.
    pub fn begin(&self) -> Result<(), KeepFault> {
        self.line.ask(Request::Go)
    }

    pub fn start(&self, exec: ExecOrder) -> Result<Process, KeepFault> {
        let Wires { ours, streams, terminal } = Wires::new(exec.console)?;
        let ends = Ends { stdin: ours.stdin, stdout: ours.stdout, stderr: ours.stderr, size: None };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (told, reports) = sync_channel(REPORTS);
        let told = Teller::Process(told);
        self.line.ask(Request::Start { number, exec: Box::new(exec), ends, told })?;
        Ok(Process { number, streams, terminal, reports, line: self.line.clone() })
    }

    /// Ends it, and returns when it is gone.
    pub fn stop(&self) -> Result<Finished, KeepFault> {
        if let Err(_gone_already) = self.line.ask(Request::Stop) {}
        let attendant = self.attendant.lock().unwrap_or_else(PoisonError::into_inner).take();
        let joined = attendant.and_then(|thread| thread.join().ok());
        Ok(joined.ok_or(KeepFault::Attendant)??)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // What it could not remove, the record still names.
        if let Err(_told_by_the_record) = self.stop() {}
    }
}

impl Container {
    /// From a container that runs to one that serves.
    pub(super) fn settle(&self, mut made: Connection) -> Result<Kept, KeepFault> {
        let mut frames = Frames::default();
        frames.push(&made.early).map_err(RelayFault::from)?;
        let (inside, outside) = self.greet(&mut made, &mut frames)?;
        let doors = self.doors(&made)?;
        made.streams.set_read_timeout(None)?;
        made.streams.set_nonblocking(true)?;
        let (bell, rung) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        rung.set_nonblocking(true)?;
        let (requests, asked) = sync_channel(REQUESTS);
        let process = made.process.try_clone()?;
        let relay = Relay { engine: made.streams, process, requests: asked, bell: rung, frames };
        let (engine, container) =
            (self.engine().again().map_err(ContainerFault::from)?, made.container.clone());
        let thread = std::thread::Builder::new().name("kept".to_owned());
        let attendant = thread.spawn(move || {
            // This thread must not be the one that a signal for pond ends.
            drop(pond_sys::signal::interrupts());
            attend(relay, &engine, &container)
        })?;
        let isolation = Isolation {
            runtime: self.runtime_name().to_owned(),
            container: made.container.clone(),
            image: made.image,
            kernel: made.order.kernel,
            inside,
            host_boot_id: outside.boot_id,
            host_sees: outside.program,
            nonce: outside.nonce,
        };
        Ok(Kept {
            id: made.container,
            first: made.pid,
            line: Line { requests, bell: Arc::new(bell) },
            next: AtomicU64::new(OWN_NUMBERS),
            isolation,
            command: made.command,
            doors: doors.into(),
            layer: made.layer,
            groups: made.groups,
            attendant: Mutex::new(Some(attendant)),
            process: made.process,
            range: Some(made.range),
        })
    }

    /// Its order, and its word that it is prepared; before that, that its kernel is the one that was promised.
    fn greet(&self, made: &mut Connection, frames: &mut Frames) -> Result<(Evidence, Outside), KeepFault> {
        let order = serde_json::to_vec(&made.order).map_err(ContainerFault::Request)?;
        let too_large = || KeepFault::Connect(io::ErrorKind::FileTooLarge.into());
        made.streams.set_nonblocking(false)?;
        made.streams.set_read_timeout(Some(PATIENCE))?;
        made.streams.write_all(&frame(Kind::Order, &order).ok_or_else(too_large)?)?;
        let mut seen = None;
        loop {
            match frames.next().map_err(RelayFault::from)? {
                None => {
                    let mut piece = vec![0; MAX_PIECE];
                    let length = made.streams.read(&mut piece)?;
                    if length == 0 {
                        return Err(KeepFault::NotServing);
                    }
                    frames.push(piece.get(..length).unwrap_or_default()).map_err(RelayFault::from)?;
                }
                Some((Kind::Evidence, payload)) => {
                    let inside = serde_json::from_slice(&payload).map_err(RelayFault::Evidence)?;
                    let outside = outside(made.pid, made.program, &made.nonce, made.first_user);
                    let outside = outside.map_err(RelayFault::Relay)?;
                    judge(made.order.kernel, &inside, &outside).map_err(RelayFault::from)?;
                    seen = Some((inside, outside));
                }
                Some((_, payload)) => match Report::decode(&payload).map_err(RelayFault::from)? {
                    Report::Prepared => return seen.ok_or(KeepFault::NotServing),
                    Report::Failed { step, errno } => {
                        return Err(KeepFault::Step { step, source: io::Error::from_raw_os_error(errno) });
                    }
                    Report::Started
                    | Report::Doors
                    | Report::Exited { .. }
                    | Report::Signaled { .. }
                    | Report::Serving
                    | Report::Began
                    | Report::Connected => {
                        return Err(KeepFault::NotServing);
                    }
                },
            }
        }
    }

    /// The listeners of a gateway in the container's network, as many as the plan has. Whoever goes in to open them brings its
    /// loopback up, which not every runtime does.
    fn doors(&self, made: &Connection) -> Result<Vec<OwnedFd>, KeepFault> {
        let (ours, theirs) = pond_sys::socket::pair()?;
        self.launcher().visit(&made.order.plan, theirs.as_fd(), made.process.as_fd())?;
        drop(theirs);
        match next_report(&ours)? {
            Some((Report::Doors, doors)) => Ok(doors),
            None if made.order.plan.doors.is_empty() => Ok(Vec::new()),
            Some((Report::Failed { step, errno }, _)) => {
                Err(KeepFault::Step { step, source: io::Error::from_raw_os_error(errno) })
            }
            Some((
                Report::Started
                | Report::Prepared
                | Report::Exited { .. }
                | Report::Signaled { .. }
                | Report::Serving
                | Report::Began
                | Report::Connected,
                _,
            ))
            | None => Err(KeepFault::NotServing),
        }
    }
}

/// Stays with a container to its end, and sees it removed.
fn attend(relay: Relay, engine: &Engine, container: &str) -> Result<Finished, ContainerFault> {
    let gone = relay.run();
    let left = match reap::remove(engine, container) {
        Ok(()) => None,
        Err(fault) => {
            kill_all_in(container).map_err(RelayFault::Kill)?;
            Some(fault)
        }
    };
    Ok(Finished { gone: gone?, left })
}
