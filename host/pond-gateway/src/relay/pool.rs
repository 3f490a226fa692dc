//! Memory that only moving bytes need: buffers for the copy loop and pipes for splicing, kept for the next tunnel.
//!
//! Invariant: what is given back is empty. The number of pipes is bounded, because an unprivileged user's pipes share
//! 64 MiB of kernel memory and shrink beyond it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::pipe::PipeFlags;

const BUFFER: usize = 64 << 10;
const KEPT_BUFFERS: usize = 64;
/// As much as one direction may hold.
pub(super) const PIPE: usize = 256 << 10;
const MAX_PIPES: usize = 64;

/// Shared by all tunnels of a gateway.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    buffers: Mutex<Vec<Box<[u8]>>>,
    pipes: Mutex<Pipes>,
}

#[derive(Debug, Default)]
struct Pipes {
    idle: Vec<Pipe>,
    made: usize,
}

/// A pipe of `PIPE` bytes.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) reader: OwnedFd,
    pub(super) writer: OwnedFd,
}

/// A pipe on loan. Unless it is `give`n back it is closed, with whatever it holds.
#[derive(Debug)]
pub(super) struct Loan<'a> {
    pool: &'a Pool,
    pipe: Option<Pipe>,
}

impl Pool {
    pub(crate) fn shared() -> Arc<Self> {
        Arc::default()
    }

    pub(super) fn buffer(&self) -> Box<[u8]> {
        let kept = self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(|| vec![0; BUFFER].into_boxed_slice())
    }

    pub(super) fn give_back(&self, buffer: Box<[u8]>) {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if buffers.len() < KEPT_BUFFERS {
            buffers.push(buffer);
        }
    }

    /// A pipe, when there is one to be had at full size.
    pub(super) fn pipe(&self) -> Option<Loan<'_>> {
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipe) = pipes.idle.pop() {
            return Some(Loan { pool: self, pipe: Some(pipe) });
        }
        if pipes.made >= MAX_PIPES {
            return None;
        }
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        rustix::pipe::fcntl_setpipe_size(&writer, PIPE).ok()?;
        pipes.made += 1;
        Some(Loan { pool: self, pipe: Some(Pipe { reader, writer }) })
    }

    fn pipes(&self) -> std::sync::MutexGuard<'_, Pipes> {
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loan<'_> {
    pub(super) fn pipe(&self) -> Option<&Pipe> {
        self.pipe.as_ref()
    }

    /// Gives an empty pipe back for the next tunnel.
    pub(super) fn give(mut self) {
        if let Some(pipe) = self.pipe.take() {
            self.pool.pipes().idle.push(pipe);
        }
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        if self.pipe.take().is_some() {
            self.pool.pipes().made -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    //! What is lent comes back, or is closed.
    use super::*;

    #[test]
    fn c83_pipes_are_bounded_in_size_and_number() {
        let pool = Pool::default();
        let mut loans: Vec<_> = std::iter::from_fn(|| pool.pipe()).collect();
        assert_eq!((loans.len(), pool.pipe().is_none()), (MAX_PIPES, true));
        let size = loans[0].pipe().map(|pipe| rustix::pipe::fcntl_getpipe_size(&pipe.writer));
        assert_eq!(size, Some(Ok(PIPE)));
        loans.pop().unwrap().give();
        assert_eq!((pool.pipes().idle.len(), pool.pipes().made), (1, MAX_PIPES));
        drop(loans);
        assert_eq!((pool.pipes().idle.len(), pool.pipes().made), (1, 1));
    }

    #[test]
    fn buffers_are_kept_up_to_a_bound() {
        let pool = Pool::default();
        for _ in 0..KEPT_BUFFERS + 5 {
            pool.give_back(vec![0; BUFFER].into_boxed_slice());
        }
        assert_eq!(pool.buffers.lock().unwrap().len(), KEPT_BUFFERS);
        assert_eq!(pool.buffer().len(), BUFFER);
    }
}
