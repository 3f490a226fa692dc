//! Copies input to the job without ever blocking on a job that does not read.
//!
//! From a pipe nothing is read before the job took what came before. A keyboard is always read, so that the person can leave
//! whatever the job does with its terminal; what a job does not take beyond a bound is dropped, as a terminal does.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;

use super::PIECE;

/// Ctrl-], pressed this often in a row within this time, ends the job.
const LEAVE_KEY: u8 = 0x1d;
const LEAVE_PRESSES: u32 = 3;
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

/// What the input meant, besides what the job is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fed {
    GoOn,
    /// The person asked pond to end the job, or their terminal is gone.
    Leave,
}

pub(super) struct Feeder<'a> {
    to: Option<OwnedFd>,
    from: Option<BorrowedFd<'a>>,
    pending: Vec<u8>,
    source: Source,
}

pub(super) enum Source {
    Pipe,
    Keyboard(Presses),
}

impl<'a> Feeder<'a> {
    pub(super) fn new(from: Option<BorrowedFd<'a>>, source: Source) -> Self {
        Self { to: None, from, pending: Vec::new(), source }
    }

    /// Gives the job's end; without anything to copy it is closed, and the job reads end-of-file.
    pub(super) fn connect(&mut self, to: OwnedFd) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&to, true)?;
        self.to = Some(to).filter(|_| self.from.is_some());
        Ok(())
    }

    /// Readable when [`read`](Self::read) has something to do.
    pub(super) fn source(&self) -> Option<BorrowedFd<'a>> {
        self.from.filter(|_| match self.source {
            Source::Pipe => self.to.is_some() && self.pending.is_empty(),
            Source::Keyboard(_) => true,
        })
    }

    /// Writable when [`write`](Self::write) has something to do.
    pub(super) fn target(&self) -> Option<BorrowedFd<'_>> {
        self.to.as_ref().filter(|_| !self.pending.is_empty()).map(AsFd::as_fd)
    }

    pub(super) fn read(&mut self) -> io::Result<Fed> {
        let Some(from) = self.from else { return Ok(Fed::GoOn) };
        let mut piece = Vec::with_capacity(PIECE);
        match rustix::io::read(from, spare_capacity(&mut piece)) {
            Ok(0) => Ok(self.end()),
            Ok(_) => Ok(self.take(&piece)),
            Err(Errno::INTR | Errno::AGAIN) => Ok(Fed::GoOn),
            Err(Errno::IO) if matches!(self.source, Source::Keyboard(_)) => Ok(self.end()),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn write(&mut self) -> io::Result<()> {
        let Some(to) = &self.to else { return Ok(()) };
        match rustix::io::write(to, &self.pending) {
            Ok(length) => drop(self.pending.drain(..length)),
            Err(Errno::INTR | Errno::AGAIN) => {}
            // The job closed its input, which is its right.
            Err(Errno::PIPE | Errno::IO) => self.to = None,
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    /// Queues what pond itself says to the job, all of it or, when the job reads nothing, none.
    pub(super) fn answer(&mut self, text: &str) {
        if self.to.is_some() && self.pending.len() + text.len() <= PIECE {
            self.pending.extend_from_slice(text.as_bytes());
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Fed {
        let room = PIECE.saturating_sub(self.pending.len());
        self.pending.extend(bytes.iter().take(room));
        match &mut self.source {
            Source::Pipe => Fed::GoOn,
            Source::Keyboard(presses) => presses.saw(bytes, Instant::now()),
        }
    }

    /// The end of a pipe is the job's end-of-file. A keyboard has no end: nobody is there any more.
    pub(super) fn end(&mut self) -> Fed {
        self.from = None;
        match self.source {
            Source::Pipe => {
                self.to = None;
                Fed::GoOn
            }
            Source::Keyboard(_) => Fed::Leave,
        }
    }
}

/// Presses of the leave key, in a row.
#[derive(Debug, Default)]
pub(super) struct Presses {
    count: u32,
    since: Option<Instant>,
}

impl Presses {
    fn saw(&mut self, bytes: &[u8], now: Instant) -> Fed {
        for byte in bytes {
            let is_late = self.since.is_some_and(|since| now.duration_since(since) > LEAVE_WITHIN);
            if *byte != LEAVE_KEY {
                *self = Self::default();
            } else if is_late || self.count == 0 {
                *self = Self { count: 1, since: Some(now) };
            } else {
                self.count += 1;
            }
            if self.count == LEAVE_PRESSES {
                return Fed::Leave;
            }
        }
        Fed::GoOn
    }
}

#[cfg(test)]
mod tests {
    //! The way out of a job that holds the keyboard, and that nothing else is one.
    use super::*;

    #[test]
    fn three_presses_in_a_row_and_in_time_leave() {
        let start = Instant::now();
        let after = |millis: u64| start + Duration::from_millis(millis);
        type Press = (&'static [u8], u64);
        let cases: [(&[Press], Fed); 5] = [
            (&[(b"\x1d", 0), (b"\x1d", 300), (b"\x1d", 600)], Fed::Leave),
            (&[(b"\x1d\x1d\x1d", 0)], Fed::Leave),
            (&[(b"\x1d\x1d", 0)], Fed::GoOn),
            (&[(b"\x1d\x1dx\x1d", 0)], Fed::GoOn),
            (&[(b"\x1d", 0), (b"\x1d", 300), (b"\x1d", 1600)], Fed::GoOn),
        ];
        for (presses, expected) in cases {
            let mut keyboard = Presses::default();
            let last = presses.iter().map(|(bytes, at)| keyboard.saw(bytes, after(*at))).last();
            assert_eq!(last, Some(expected), "{presses:?}");
        }
    }

    #[test]
    fn a_job_that_asks_without_end_is_answered_within_bounds() {
        let (keys, _typed) = rustix::pipe::pipe().unwrap();
        let (reads, to) = rustix::pipe::pipe().unwrap();
        let mut feeder = Feeder::new(Some(keys.as_fd()), Source::Keyboard(Presses::default()));
        feeder.answer("nobody is there yet");
        feeder.connect(to).unwrap();
        for _ in 0..PIECE {
            feeder.answer("\x1b[0n");
        }
        assert_eq!(feeder.pending.len(), PIECE);
        feeder.write().unwrap();
        let mut heard = [0; 8];
        assert_eq!(rustix::io::read(&reads, &mut heard).unwrap(), 8);
        assert_eq!(&heard, b"\x1b[0n\x1b[0n");
    }

    #[test]
    fn a_keyboard_is_read_though_the_job_takes_nothing() {
        let (from, keys) = rustix::pipe::pipe().unwrap();
        let mut feeder = Feeder::new(Some(from.as_fd()), Source::Keyboard(Presses::default()));
        for _ in 0..3 {
            rustix::io::write(&keys, &[b'x'; PIECE / 2]).unwrap();
            assert_eq!(feeder.read().unwrap(), Fed::GoOn);
            assert!(feeder.pending.len() <= PIECE && feeder.source().is_some());
        }
        rustix::io::write(&keys, b"\x1d\x1d\x1d").unwrap();
        assert_eq!(feeder.read().unwrap(), Fed::Leave);
    }
}
