//! How a launch fails: a step and the kernel's reason, small enough to cross a socket.

use std::io;

use pond_wire::jail::{Report, Step};
use rustix::io::Errno;

/// Faults of the launcher process itself; a fault of one launch is a `Failure`.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("this program is started by pond, not by hand")]
    NoSocket(#[source] io::Error),
    #[error("dropping what was inherited")]
    Scrub(#[source] io::Error),
    #[error("receiving a request")]
    Receive(#[source] io::Error),
}

/// A step of one launch that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) step: Step,
    pub(crate) errno: Errno,
}

impl Failure {
    pub(crate) fn report(self) -> Report {
        Report::Failed { step: self.step, errno: self.errno.raw_os_error() }
    }
}

/// Names the step a kernel call belongs to.
pub(crate) trait At<T> {
    fn at(self, step: Step) -> Result<T, Failure>;
}

impl<T> At<T> for Result<T, Errno> {
    fn at(self, step: Step) -> Result<T, Failure> {
        self.map_err(|errno| Failure { step, errno })
    }
}

impl<T> At<T> for Result<T, io::Error> {
    fn at(self, step: Step) -> Result<T, Failure> {
        self.map_err(|fault| Failure { step, errno: Errno::from_io_error(&fault).unwrap_or(Errno::IO) })
    }
}
