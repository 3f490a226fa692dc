//! The signals that tell a role which stays to end, by descriptor.
//!
//! Not by the runtime's own way: tokio's feature `signal` makes every runtime of this program open a socket pair, that of the
//! gateway too, whose lock-down kills it for that. A signal goes to any thread that does not hold it off, so it is held off before there
//! is a second one.

use std::os::fd::OwnedFd;

use anyhow::Context;
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

/// What the kernel says of one signal.
const SIGNAL_BYTES: usize = 128;

/// Held off from now on, by this thread and all that it starts.
#[derive(Debug)]
pub(crate) struct Signals(OwnedFd);

impl Signals {
    /// To be called before a runtime starts threads.
    pub(crate) fn heed() -> anyhow::Result<Self> {
        pond_sys::signal::interrupts().map(Self).context("holding off signals")
    }

    /// To be waited for; called inside a runtime.
    #[expect(
        deprecated,
        reason = "its successor is unsafe, and a descriptor that is owned here is closed nowhere else"
    )]
    pub(crate) fn arriving(self) -> anyhow::Result<Arriving> {
        AsyncFd::new(self.0).map(Arriving).context("waiting for signals")
    }
}

#[derive(Debug)]
pub(crate) struct Arriving(AsyncFd<OwnedFd>);

impl Arriving {
    /// Waits for one signal and takes it.
    pub(crate) async fn next(&self) {
        while !self.has_come().await {}
    }

    async fn has_come(&self) -> bool {
        let Ok(mut ready) = self.0.readable().await else { return true };
        let mut signal = [0; SIGNAL_BYTES];
        match rustix::io::read(&self.0, &mut signal) {
            Err(Errno::AGAIN) => {
                ready.clear_ready();
                false
            }
            Ok(_) | Err(_) => true,
        }
    }
}
