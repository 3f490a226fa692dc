//! Between a model's connection and the client library, which takes a bare line feed for the end of a line: a head that has
//! one, or a carriage return alone, reads differently to others, and ends the answer here. Zone: host; every byte is the
//! upstream's. Invariant: no head reaches the library unless each of its lines ends in CR LF.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Where the status begins: `HTTP/1.1 200`.
const STATUS_AT: usize = 10;

/// A stream whose heads are looked at while they pass.
#[derive(Debug)]
pub(crate) struct StrictHeads<S> {
    stream: S,
    due: HeadDue,
    lines: Lines,
}

/// Whether the next bytes are a head; set when a request is sent.
#[derive(Debug, Clone)]
pub(crate) struct HeadDue(Arc<AtomicBool>);

#[derive(Debug, Default)]
struct Lines {
    whole: usize,
    /// Bytes of the line that is not whole.
    length: usize,
    after_cr: bool,
    /// The status is 1xx, so another head follows.
    informational: bool,
}

impl HeadDue {
    pub(crate) fn expect(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl<S> StrictHeads<S> {
    pub(crate) fn new(stream: S) -> (Self, HeadDue) {
        let due = HeadDue(Arc::default());
        (Self { stream, due: due.clone(), lines: Lines::default() }, due)
    }

    fn look(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.due.0.load(Ordering::Acquire) {
            return Ok(());
        }
        for byte in bytes {
            if self.lines.step(*byte)? {
                self.due.0.store(false, Ordering::Release);
                return Ok(());
            }
        }
        Ok(())
    }
}

impl Lines {
    /// Whether `byte` ends the last head of an answer.
    fn step(&mut self, byte: u8) -> io::Result<bool> {
        match (byte, self.after_cr) {
            (b'\n', true) if self.length == 0 && self.whole == 0 => return Err(ambiguous()),
            (b'\n', true) => return Ok(self.end_line()),
            (_, true) | (b'\n', false) => return Err(ambiguous()),
            (b'\r', false) => self.after_cr = true,
            (_, false) => {
                self.length += 1;
                if self.whole == 0 && self.length == STATUS_AT {
                    self.informational = byte == b'1';
                }
            }
        }
        Ok(false)
    }

    fn end_line(&mut self) -> bool {
        let is_last = self.length == 0;
        let ends = is_last && !self.informational;
        *self = match is_last {
            true => Self::default(),
            false => Self { whole: self.whole + 1, informational: self.informational, ..Self::default() },
        };
        ends
    }
}

fn ambiguous() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "a line of the answer's head is empty or does not end in CR LF",
    )
}

impl<S: AsyncRead + Unpin> AsyncRead for StrictHeads<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        Poll::Ready(self.look(buffer.filled().get(before..).unwrap_or_default()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StrictHeads<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
