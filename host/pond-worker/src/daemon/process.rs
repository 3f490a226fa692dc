//! A process of the daemon's, waited for by its descriptor. The runtime's own way would bring its signal handling into every
//! program that links it, and the gateway's lockdown does not stand for that.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::unix::AsyncFd;

/// A process that is killed when this value goes.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// Readable when it has ended.
    ended: AsyncFd<OwnedFd>,
}

impl Process {
    #[expect(
        deprecated,
        reason = "its successor is unsafe, and a descriptor that is owned here is closed nowhere else"
    )]
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        // A person's Ctrl-C is for the daemon, which decides what becomes of its jobs.
        let mut child = command.process_group(0).spawn()?;
        let watched = pidfd_open(Pid::from_child(&child), PidfdFlags::NONBLOCK).map_err(io::Error::from);
        match watched.and_then(AsyncFd::new) {
            Ok(ended) => Ok(Self { child, ended }),
            Err(fault) => {
                child.kill()?;
                child.wait()?;
                Err(fault)
            }
        }
    }

    /// Whether it has not ended.
    pub(super) fn is_there(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            self.ended.readable().await?.clear_ready();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended is neither killed nor waited for again.
        if let Ok(()) = self.child.kill()
            && let Err(_reaped) = self.child.wait()
        {}
    }
}
