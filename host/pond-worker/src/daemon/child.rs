//! The process that runs one job: pond's own executable, told what to do over its standard input. Closing that ends the job; a
//! process that does not go is killed, and its sandbox with it. One waits ahead of the next job: starting takes longer than
//! anything else a daemon does for a job, and who waits knows nothing yet.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::watch;

use pond_wire::orch::Wanted;

use super::hold::Course;
use super::process::Process;
use crate::order::{self, JobAnswer, JobOrder, MOST_LINE, NamedSecret};

/// How long a job that was told to end may take for its result.
const GRACE: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum ChildFault {
    #[error("starting a process for the job")]
    Start(#[source] io::Error),
    #[error("telling the job's process what to do")]
    Order(#[source] io::Error),
    #[error("listening to the job's process")]
    Listen(#[source] io::Error),
    #[error("the job's process ended without an answer")]
    Silent,
    #[error("the job's process did not end within {} s and was killed", GRACE.as_secs())]
    Killed,
}

/// A process at work, and what of it is to be read.
pub(super) struct Working {
    process: Process,
    socket: UnixStream,
}

pub(super) struct Output {
    pub(super) stdout: Receiver,
    pub(super) stderr: Receiver,
    /// Where more money and bytes are announced.
    pub(super) lent: Sender,
}

/// What the job has cost until now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Spent {
    pub(super) cost_microcents: u64,
    pub(super) egress_bytes: u64,
    /// A call waits for this.
    pub(super) wanted: Option<Wanted>,
    /// Connections wait for so many bytes in all.
    pub(super) wanted_egress_bytes: Option<u64>,
}

impl Spent {
    /// Whether something of the job waits for an answer.
    pub(super) fn wants(&self) -> bool {
        self.wanted.is_some() || self.wanted_egress_bytes.is_some()
    }
}

/// A process that has no order yet.
#[derive(Debug)]
pub(super) struct Waiting {
    process: Process,
    socket: std::os::unix::net::UnixStream,
}

/// Room for one that waits.
#[derive(Debug, Default)]
pub struct Spare(Mutex<Option<Waiting>>);

impl Spare {
    /// The one that waits, or a new one. What it makes ready lies in the state directory of jobs.
    pub(super) fn take(&self, executable: &Path, state: &Path) -> Result<Waiting, ChildFault> {
        let waits = self.room().take();
        if let Some(mut waiting) = waits
            && waiting.process.is_there()
        {
            return Ok(waiting);
        }
        Waiting::start(executable, state)
    }

    /// Has one wait. Where none can be started, that is told to the job that needs it.
    pub(super) fn fill(&self, executable: &Path, state: &Path) {
        let mut room = self.room();
        if room.is_none() {
            *room = Waiting::start(executable, state).ok();
        }
    }

    /// Returns when the one that waits has put away what it made ready.
    pub(super) async fn clear(&self) {
        let waits = self.room().take();
        if let Some(Waiting { mut process, socket }) = waits {
            drop(socket);
            // One that does not go is killed, and what it leaves is swept.
            if let Err(_killed) = tokio::time::timeout(GRACE, process.wait()).await {}
        }
    }

    fn room(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where the daemon starts a process: pond itself, per job"
    )]
    fn start(executable: &Path, state: &Path) -> Result<Self, ChildFault> {
        let (socket, theirs) = std::os::unix::net::UnixStream::pair().map_err(ChildFault::Start)?;
        let mut command = Command::new(executable);
        let command = command.arg("job").arg(state).stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
        let process = Process::start(command).map_err(ChildFault::Start)?;
        Ok(Self { process, socket })
    }

    pub(super) async fn begin(
        self,
        order: JobOrder,
        secrets: Vec<NamedSecret>,
    ) -> Result<(Working, Output), ChildFault> {
        let Self { process, socket } = self;
        let (stdout, stdout_end) = pipe().map_err(ChildFault::Start)?;
        let (stderr, stderr_end) = pipe().map_err(ChildFault::Start)?;
        let (lent_end, lent) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|errno| ChildFault::Start(errno.into()))?;
        let lent = Sender::from_owned_fd(lent).map_err(ChildFault::Start)?;
        let sent = tokio::task::spawn_blocking(move || {
            let ends = [stdout_end.as_fd(), stderr_end.as_fd(), lent_end.as_fd()];
            order::send(&socket, &order, &secrets, ends).map(|()| socket)
        });
        let socket = sent.await.map_err(io::Error::other).flatten().map_err(ChildFault::Order)?;
        socket.set_nonblocking(true).map_err(ChildFault::Listen)?;
        let socket = UnixStream::from_std(socket).map_err(ChildFault::Listen)?;
        Ok((Working { process, socket }, Output { stdout, stderr, lent }))
    }
}

fn pipe() -> io::Result<(Receiver, OwnedFd)> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok((Receiver::from_owned_fd(reader)?, writer))
}

impl Working {
    /// Waits for the job's end. As soon as it shall not go on it is told so, and killed if that does not help.
    pub(super) async fn attend(
        mut self,
        mut course: watch::Receiver<Course>,
        spent: &watch::Sender<Spent>,
    ) -> Result<JobAnswer, ChildFault> {
        let (reader, mut writer) = self.socket.split();
        let answer = answers(BufReader::new(reader), spent);
        tokio::pin!(answer);
        let told = tokio::select! {
            answer = &mut answer => Some(answer),
            _ = course.wait_for(|course| *course != Course::Go) => None,
        };
        let answer = match told {
            Some(answer) => answer,
            None => {
                writer.shutdown().await.map_err(ChildFault::Listen)?;
                match tokio::time::timeout(GRACE, &mut answer).await {
                    Ok(answer) => answer,
                    Err(_) => Err(ChildFault::Killed),
                }
            }
        };
        // One that does not go is killed when this value is dropped.
        match tokio::time::timeout(GRACE, self.process.wait()).await {
            Ok(_) | Err(_) => answer,
        }
    }
}

/// Reads answers to the last one.
async fn answers(
    mut from: impl AsyncBufReadExt + Unpin,
    spent: &watch::Sender<Spent>,
) -> Result<JobAnswer, ChildFault> {
    loop {
        let mut line = Vec::new();
        let most = u64::try_from(MOST_LINE).unwrap_or(u64::MAX);
        match (&mut from).take(most).read_until(b'\n', &mut line).await {
            // It was killed with something of ours unread.
            Err(fault) if fault.kind() == io::ErrorKind::ConnectionReset => return Err(ChildFault::Silent),
            Err(fault) => return Err(ChildFault::Listen(fault)),
            Ok(0) => return Err(ChildFault::Silent),
            Ok(_) => {}
        }
        match serde_json::from_slice(&line).map_err(|fault| ChildFault::Listen(fault.into()))? {
            JobAnswer::Spent { cost_microcents, egress_bytes } => {
                spent.send_modify(|spent| *spent = Spent { cost_microcents, egress_bytes, ..*spent });
            }
            JobAnswer::Short { least_microcents, most_microcents } => {
                let wanted = Wanted { least_microcents, most_microcents };
                spent.send_modify(|spent| spent.wanted = Some(wanted));
            }
            JobAnswer::ShortBytes { moved } => {
                spent.send_modify(|spent| {
                    spent.egress_bytes = spent.egress_bytes.max(moved);
                    spent.wanted_egress_bytes = Some(moved.saturating_add(1));
                });
            }
            answer @ (JobAnswer::Ended { .. } | JobAnswer::Failed { .. }) => return Ok(answer),
        }
    }
}
