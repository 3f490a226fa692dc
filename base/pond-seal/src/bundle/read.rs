//! Decrypting a bundle while it is read.

use std::io::{self, Read};

use aead_stream::StreamPrimitive;
use aead_stream::aead::Payload;
use zeroize::Zeroizing;

use super::{BundleFault, DataKey, HEADER_BYTES, MAGIC, SEALED_BYTES, Stream};

/// Reads a bundle out of `inner`. What is wrong with the bundle is a [`BundleFault`] inside the `io::Error`.
#[expect(missing_debug_implementations, reason = "it holds a key and plain text")]
pub struct Decrypting<R> {
    inner: R,
    stream: Stream,
    header: Vec<u8>,
    state: State,
    position: u32,
    /// One encrypted chunk and the byte after it.
    sealed: Vec<u8>,
    plain: Zeroizing<Vec<u8>>,
    /// How much of `plain` was handed out.
    given: usize,
    left: u64,
    most: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Within,
    Ended,
    Failed,
}

impl<R: Read> Decrypting<R> {
    /// Reads the header. The bundle may hold `most` plain bytes.
    pub fn new(mut inner: R, key: &DataKey, most: u64) -> io::Result<Self> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        fill(&mut inner, &mut header, HEADER_BYTES)?;
        let prefix = header.strip_prefix(&MAGIC).and_then(|prefix| prefix.try_into().ok());
        let stream = key.stream(prefix.ok_or_else(|| error(BundleFault::Header))?);
        let (sealed, plain) = (Vec::with_capacity(SEALED_BYTES + 1), Zeroizing::new(Vec::new()));
        let state = State::Within;
        Ok(Self { inner, stream, header, state, position: 0, sealed, plain, given: 0, left: most, most })
    }

    /// Decrypts one more chunk. Whatever goes wrong, the reader stays failed, so that nobody takes a part for the whole.
    fn advance(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Within => {}
            State::Ended => {
                self.state = State::Ended;
                return Ok(());
            }
            State::Failed => return Err(error(BundleFault::Failed)),
        }
        fill(&mut self.inner, &mut self.sealed, SEALED_BYTES + 1)?;
        let last = self.sealed.len() <= SEALED_BYTES;
        let chunk = self.sealed.get(..SEALED_BYTES).unwrap_or(&self.sealed);
        self.plain = self.open(chunk, last).ok_or_else(|| error(self.wrong(chunk, last)))?;
        self.given = 0;
        let length = u64::try_from(self.plain.len()).unwrap_or(u64::MAX);
        let Some(left) = self.left.checked_sub(length) else {
            self.plain.clear();
            return Err(error(BundleFault::TooLarge(self.most)));
        };
        self.left = left;
        self.sealed.drain(..SEALED_BYTES.min(self.sealed.len()));
        let next = self.position.checked_add(1);
        self.position = next.ok_or_else(|| error(BundleFault::Chunk(self.position)))?;
        self.state = if last { State::Ended } else { State::Within };
        Ok(())
    }

    fn open(&self, chunk: &[u8], last: bool) -> Option<Zeroizing<Vec<u8>>> {
        let payload = Payload { msg: chunk, aad: &self.header };
        self.stream.decrypt(self.position, last, payload).ok().map(Zeroizing::new)
    }

    /// A bundle that ends with nothing, or with a chunk that others should follow, was cut.
    fn wrong(&self, chunk: &[u8], last: bool) -> BundleFault {
        match last && (chunk.is_empty() || self.open(chunk, false).is_some()) {
            true => BundleFault::Cut,
            false => BundleFault::Chunk(self.position),
        }
    }
}

impl<R: Read> Read for Decrypting<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.given == self.plain.len() && self.state != State::Ended && !out.is_empty() {
            self.advance()?;
        }
        let rest = self.plain.get(self.given..).unwrap_or_default();
        let count = rest.len().min(out.len());
        for (to, from) in out.iter_mut().zip(rest) {
            *to = *from;
        }
        self.given += count;
        Ok(count)
    }
}

/// Reads until `into` has `most` bytes or the source ends.
fn fill(source: &mut impl Read, into: &mut Vec<u8>, most: usize) -> io::Result<()> {
    let missing = u64::try_from(most.saturating_sub(into.len())).unwrap_or(u64::MAX);
    source.take(missing).read_to_end(into).map(drop)
}

fn error(fault: BundleFault) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, fault)
}

impl BundleFault {
    /// What was wrong with a bundle, where an error of reading is about the bundle.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}
