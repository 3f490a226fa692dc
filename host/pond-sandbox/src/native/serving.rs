//! The asking side of pid 1 of a sandbox that lasts: programs to run, signals for them, connections inside, and what pid 1 says.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pond_wire::jail::{Answer, Ask, ExecOrder};

use super::launch::pipe_of;
use super::launcher::{self, LauncherFault, sealed};
use super::running::{Ending, Over, Running, RunningFault};

#[derive(Debug, thiserror::Error)]
pub enum ServingFault {
    #[error("the sandbox does not serve")]
    NotServing,
    #[error(transparent)]
    Talk(#[from] LauncherFault),
    #[error("asking pid 1 of the sandbox")]
    Ask(#[source] io::Error),
    #[error(transparent)]
    Running(#[from] RunningFault),
}

/// A sandbox that takes requests. Dropping it ends everything in it: the lifeline closes with it.
#[derive(Debug)]
pub struct Serving {
    running: Running,
    root: OwnedFd,
    root_at: &'static str,
    owner: u32,
}

impl Serving {
    /// Once [`Running::is_serving`] says so.
    pub fn new(mut running: Running) -> Result<Self, ServingFault> {
        match (running.is_serving(), running.root.take()) {
            (true, Some(root)) => {
                let (owner, root_at) = (running.owner(), running.root_at);
                Ok(Self { owner, root, root_at, running })
            }
            (true | false, _) => Err(ServingFault::NotServing),
        }
    }

    /// A pipe whose reading end belongs to the job's user.
    pub fn pipe(&self) -> io::Result<(OwnedFd, OwnedFd)> {
        pipe_of(self.owner)
    }

    /// Has a program run. `streams` are its three, or none where the order asks for a terminal.
    pub fn start(
        &self,
        exec: u64,
        order: &ExecOrder,
        streams: &[BorrowedFd<'_>],
    ) -> Result<(), ServingFault> {
        let order = sealed(order)?;
        let descriptors: Vec<_> = [order.as_fd()].into_iter().chain(streams.iter().copied()).collect();
        self.ask(Ask::Start { exec }, &descriptors)
    }

    pub fn signal(&self, exec: u64, signal: u8) -> Result<(), ServingFault> {
        self.ask(Ask::Signal { exec, signal }, &[])
    }

    pub fn connect(&self, call: u64, port: u16) -> Result<(), ServingFault> {
        self.ask(Ask::Connect { call, port }, &[])
    }

    fn ask(&self, ask: Ask, descriptors: &[BorrowedFd<'_>]) -> Result<(), ServingFault> {
        pond_sys::socket::send(self.running.reports(), &ask.encode(), descriptors).map_err(ServingFault::Ask)
    }

    /// What pid 1 says next, for ever if need be; nothing when it is gone.
    pub fn hear(&self) -> Result<Option<(Answer, Vec<OwnedFd>)>, ServingFault> {
        Ok(launcher::next(self.running.reports(), Answer::decode)?)
    }

    /// The root as it is seen inside. What is below it is hostile.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// A path inside as it is below that root; nothing where the root does not reach.
    pub fn below_root<'p>(&self, path: &'p str) -> Option<&'p str> {
        path.strip_prefix(self.root_at).filter(|below| below.starts_with('/'))
    }

    /// The part of what programs see that can be reached from here; empty where that is all of it.
    pub fn reachable(&self) -> &'static str {
        self.root_at
    }

    /// The id that the user inside has on this host.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Kills everything inside, at once.
    pub fn kill(&self) -> Result<(), ServingFault> {
        Ok(self.running.kill()?)
    }

    /// Makes sure that nothing of it is left but its disk.
    pub fn finish(self) -> Result<Over, ServingFault> {
        let Self { running, root, .. } = self;
        drop(root);
        Ok(running.finish(Ending::Lost)?)
    }
}

impl AsFd for Serving {
    /// Readable when pid 1 says something, or is gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.running.reports()
    }
}
