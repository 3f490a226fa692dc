//! How others call a keeper: the command line, and whatever serves an API. Each call is one connection.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use pond_wire::jail::MAX_PLAN_BYTES;
use serde::Serialize;

use super::protocol::{self, Answer, Kind, Refusal, Request};
use super::{NAME, Order, Told, desk};
use crate::run::OWN_EXECUTABLE;

/// A keeper that was started and has not been told what for. Letting go of it ends it.
#[derive(Debug)]
pub(crate) struct Starting {
    stream: UnixStream,
    process: Child,
}

impl Starting {
    /// In a session of its own: whoever asked may leave.
    #[expect(clippy::disallowed_methods, reason = "a keeper outlives the command that asked for it")]
    pub(crate) fn start() -> anyhow::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let process = Command::new(OWN_EXECUTABLE)
            .arg0("pond")
            .arg(NAME)
            .process_group(0)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting the sandbox's keeper")?;
        Ok(Self { stream: ours, process })
    }

    /// Says what it is to keep.
    pub(crate) fn order(&mut self, order: &Order) -> anyhow::Result<()> {
        Ok(protocol::say(&mut self.stream, order)?)
    }

    /// What it says next.
    pub(crate) fn hear(&mut self) -> anyhow::Result<Told> {
        match protocol::read_frame(&mut self.stream)? {
            Some((Kind::Say, text)) => Ok(serde_json::from_slice(&text)?),
            Some(_) | None => bail!("the sandbox's keeper ended without a word"),
        }
    }

    /// It was refused and ends by itself.
    pub(crate) fn await_end(mut self) -> io::Result<()> {
        drop(self.stream);
        self.process.wait().map(drop)
    }
}

/// A connection to the keeper of one sandbox.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) stream: UnixStream,
}

impl Call {
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        Ok(Self { stream: desk::call(directory)? })
    }

    pub(crate) fn say(&mut self, request: &impl Serialize) -> io::Result<()> {
        protocol::say(&mut self.stream, request)
    }

    /// A request with a descriptor that belongs to it.
    pub(crate) fn say_with(&mut self, request: &Request, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let mut frame = Vec::new();
        protocol::say(&mut frame, request)?;
        debug_assert!(frame.len() as u64 <= MAX_PLAN_BYTES, "it fits one packet");
        pond_sys::socket::send(self.stream.as_fd(), &frame, &[descriptor])
    }

    pub(crate) fn frame(&mut self) -> io::Result<Option<(Kind, Vec<u8>)>> {
        protocol::read_frame(&mut self.stream)
    }

    /// One answer.
    pub(crate) fn answer(&mut self) -> anyhow::Result<Answer> {
        match self.frame()? {
            Some((Kind::Say, text)) => Ok(serde_json::from_slice(&text)?),
            Some(_) | None => Err(lost().into()),
        }
    }
}

/// The keeper went away in the middle of a call.
pub(crate) fn lost() -> Refusal {
    Refusal::new("sandbox_lost", "the sandbox's keeper ended; `pond sandbox ls` says what became of it")
}
