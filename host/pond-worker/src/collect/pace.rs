//! A collection that takes long is watched: whoever asked for it hears how far it has come, and may end it.

use std::io::{self, Read};
use std::ops::ControlFlow;

use super::CollectFault;

/// How far a collection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Entries looked at, and bytes of files read or about to be.
    Reading { entries: u64, bytes: u64 },
    /// Changes that are in the patch, or were found not to fit.
    WritingPatch { done: usize, of: usize },
}

/// Told again and again how far it is; answers whether to go on. Called often, so it should cost little.
pub type Watch<'a> = &'a dyn Fn(Progress) -> ControlFlow<()>;

/// For whoever waits however long it takes.
pub const PATIENT: Watch<'static> = &|_| ControlFlow::Continue(());

#[derive(Debug, thiserror::Error)]
#[error("stopped")]
struct Stopped;

/// Asks between any two pieces of a file.
pub(crate) struct Paced<'a, R> {
    pub(crate) inner: R,
    pub(crate) watch: Watch<'a>,
    pub(crate) progress: Progress,
}

impl<R: Read> Read for Paced<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match (self.watch)(self.progress) {
            ControlFlow::Continue(()) => self.inner.read(buffer),
            ControlFlow::Break(()) => Err(io::Error::other(Stopped)),
        }
    }
}

/// A copy that failed because it was ended is no fault of either side.
pub(crate) fn or_stopped(
    source: io::Error,
    otherwise: impl FnOnce(io::Error) -> CollectFault,
) -> CollectFault {
    if source.get_ref().is_some_and(|inner| inner.is::<Stopped>()) {
        CollectFault::Stopped
    } else {
        otherwise(source)
    }
}
