//! SIGINT and SIGTERM for what serves: set aside before the first thread starts, and read from a descriptor.
//!
//! Tokio's own signals are not used: with them linked, every runtime makes a pair of sockets, which the gateway's filter forbids.

use std::os::fd::OwnedFd;

use anyhow::Context;
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

/// More than the kernel says about one signal.
const SIGNAL_BYTES: usize = 128;

/// Signals of a process that has one thread yet; those it starts from here on leave them alone too.
#[derive(Debug)]
pub(crate) struct SetAside(OwnedFd);

#[derive(Debug)]
pub(crate) struct Signals(AsyncFd<OwnedFd>);

impl SetAside {
    pub(crate) fn new() -> anyhow::Result<Self> {
        pond_sys::signal::interrupts().map(Self).context("setting signals aside")
    }

    /// Inside a runtime.
    #[expect(
        deprecated,
        reason = "its successor is unsafe, and a descriptor that is owned here is closed nowhere else"
    )]
    pub(crate) fn listen(self) -> anyhow::Result<Signals> {
        AsyncFd::new(self.0).map(Signals).context("listening for signals")
    }
}

impl Signals {
    /// Waits for one signal and takes it.
    pub(crate) async fn next(&self) {
        loop {
            let Ok(mut ready) = self.0.readable().await else { return };
            let mut signal = [0; SIGNAL_BYTES];
            match rustix::io::read(&self.0, &mut signal) {
                Err(Errno::AGAIN) => ready.clear_ready(),
                Ok(_) | Err(_) => return,
            }
        }
    }
}
