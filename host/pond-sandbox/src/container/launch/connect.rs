//! The step from a container that runs to a job that is waited for: its streams, its doors, its order, and the thread that
//! attends it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use pond_wire::contained::{Kernel, Kind, Order, frame};
use pond_wire::jail::{Console, Duty};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use super::super::probe::Loopback;
use super::super::relay::{FileId, Relay, RelayFault, Transit};
use super::super::stage::Layer;
use super::super::transfer::Incoming;
use super::attend::attend;
use super::{Container, ContainerFault};
use crate::native::cgroup::Foreign;
use crate::native::{Death, Ends, IdRange, Running, Streams};

/// A container that runs, and everything that belongs to it.
pub(in crate::container) struct Connection {
    pub(in crate::container) container: String,
    pub(in crate::container) image: String,
    pub(in crate::container) streams: UnixStream,
    pub(in crate::container) early: Vec<u8>,
    pub(in crate::container) pid: Pid,
    pub(in crate::container) process: OwnedFd,
    pub(in crate::container) groups: Foreign,
    pub(in crate::container) order: Order,
    pub(in crate::container) layer: Layer,
    pub(in crate::container) range: IdRange,
    /// Pond's own file as this container has it.
    pub(in crate::container) program: FileId,
    pub(in crate::container) nonce: String,
    pub(in crate::container) first_user: u32,
    pub(in crate::container) incoming: Option<Incoming>,
    /// What a companion runs of itself.
    pub(in crate::container) command: Vec<String>,
}

impl Container {
    pub(super) fn connect(&self, made: Connection) -> Result<Running, ContainerFault> {
        let wires = Wires::new(made.order.plan.console).map_err(ContainerFault::Pipes)?;
        let Wires { ours, streams, terminal } = wires;
        let lifeline = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| ContainerFault::Pipes(errno.into()))?;
        let (report, theirs) = pond_sys::socket::pair().map_err(ContainerFault::Pipes)?;
        let plan = &made.order.plan;
        // gVisor leaves the loopback of its network down; whoever goes in to open doors brings it up.
        let is_down = self.runtime.kernel == Kernel::Gvisor && self.runtime.loopback == Loopback::Namespace;
        if !plan.doors.is_empty() || is_down {
            self.launcher.visit(plan, theirs.as_fd(), made.process.as_fd())?;
        }
        let order = serde_json::to_vec(&made.order).map_err(ContainerFault::Request)?;
        let mut transit = Transit::default();
        let too_large = || ContainerFault::Pipes(io::ErrorKind::FileTooLarge.into());
        transit.to_engine = frame(Kind::Order, &order).ok_or_else(too_large)?;
        transit.frames.push(&made.early).map_err(RelayFault::from)?;
        made.streams.set_nonblocking(true).map_err(ContainerFault::Pipes)?;
        let relay = Relay {
            engine: made.streams,
            process: made.process.try_clone().map_err(ContainerFault::Pipes)?,
            pid: made.pid,
            groups: made.groups,
            report: Some(theirs),
            lifeline: Some(lifeline.0),
            stdin: Some(ours.stdin),
            stdout: Some(ours.stdout),
            stderr: ours.stderr,
            terminal,
            layer: made.layer,
            start: plan.start,
            kernel: made.order.kernel,
            program: made.program,
            nonce: made.nonce,
            first_user: made.first_user,
            incoming: made.incoming,
        };
        let death = if relay.incoming.is_some() { Death::HandOver } else { Death::AtOnce };
        let engine = self.engine.again()?;
        let (container, runtime, image) = (made.container, self.runtime.name.clone(), made.image);
        let thread = std::thread::Builder::new().name("container".to_owned());
        let thread = thread.spawn(move || {
            // Signals are for the thread that waits for them: this one would be ended by some, and lose the others.
            drop(pond_sys::signal::interrupts());
            drop(pond_sys::signal::terminal_changes());
            attend(relay, transit, &engine, &container, (runtime, image))
        });
        let thread = thread.map_err(ContainerFault::Pipes)?;
        let ends = Ends { streams, lifeline: lifeline.1, report };
        Ok(Running::contained(ends, made.process, thread, death, made.range, Duty::Once))
    }
}

/// Both sides of the job's streams, on this side of the container.
pub(in crate::container) struct Wires {
    pub(in crate::container) ours: Ours,
    /// The supervisor's: pipes, or a terminal that is announced later.
    pub(in crate::container) streams: Option<Streams>,
    pub(in crate::container) terminal: Option<OwnedFd>,
}

/// The relay's, which do not block.
pub(in crate::container) struct Ours {
    pub(in crate::container) stdin: OwnedFd,
    pub(in crate::container) stdout: OwnedFd,
    pub(in crate::container) stderr: Option<OwnedFd>,
}

impl Wires {
    pub(in crate::container) fn new(console: Console) -> io::Result<Self> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let (ours, streams, terminal) = match console {
            Console::Pipes => {
                let (stdin, stdout, stderr) = (pipe()?, pipe()?, pipe()?);
                let streams = Streams { stdin: stdin.1, stdout: stdout.0, stderr: stderr.0 };
                (Ours { stdin: stdin.0, stdout: stdout.1, stderr: Some(stderr.1) }, Some(streams), None)
            }
            // Its size travels as a word of the supervisor's.
            Console::Terminal { .. } => {
                let (ours, theirs) = UnixStream::pair()?;
                let stdin = ours.try_clone()?.into();
                (Ours { stdin, stdout: ours.into(), stderr: None }, None, Some(theirs.into()))
            }
        };
        for end in [&ours.stdin, &ours.stdout].into_iter().chain(&ours.stderr) {
            rustix::io::ioctl_fionbio(end, true)?;
        }
        Ok(Self { ours, streams, terminal })
    }
}
