//! Encrypting a bundle while it is written.

use std::io::{self, Write};

use aead_stream::StreamPrimitive;
use aead_stream::aead::Payload;
use zeroize::Zeroizing;

use super::{BundleFault, CHUNK_BYTES, DataKey, MAGIC, PREFIX_BYTES, Stream};
use crate::random;

/// Writes an encrypted bundle to `inner`. Without [`Encrypting::finish`] there is no last chunk and thus no bundle.
#[expect(missing_debug_implementations, reason = "it holds a key and plain text")]
pub struct Encrypting<W> {
    inner: W,
    stream: Stream,
    header: Vec<u8>,
    position: u32,
    plain: Zeroizing<Vec<u8>>,
}

impl<W: Write> Encrypting<W> {
    pub fn new(mut inner: W, key: &DataKey) -> io::Result<Self> {
        let prefix = random::bytes::<PREFIX_BYTES>();
        let prefix = prefix.map_err(|fault| io::Error::other(BundleFault::Random(fault)))?;
        let header = [MAGIC.as_slice(), prefix.as_slice()].concat();
        inner.write_all(&header)?;
        let plain = Zeroizing::new(Vec::with_capacity(CHUNK_BYTES));
        Ok(Self { inner, stream: key.stream(&prefix), header, position: 0, plain })
    }

    /// Writes the last chunk, and gives back what the bundle was written to.
    pub fn finish(mut self) -> io::Result<W> {
        self.chunk(true)?;
        self.inner.flush()?;
        Ok(self.inner)
    }

    fn chunk(&mut self, last: bool) -> io::Result<()> {
        let payload = Payload { msg: &self.plain, aad: &self.header };
        let sealed = self.stream.encrypt(self.position, last, payload);
        let full = || io::Error::from(io::ErrorKind::FileTooLarge);
        self.inner.write_all(&sealed.map_err(|_| full())?)?;
        self.plain.clear();
        // A position is never used twice.
        self.position = self.position.checked_add(1).ok_or_else(full)?;
        Ok(())
    }
}

impl<W: Write> Write for Encrypting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A full chunk waits for the byte after it: until then it may be the last.
        if self.plain.len() == CHUNK_BYTES && !bytes.is_empty() {
            self.chunk(false)?;
        }
        let room = CHUNK_BYTES.saturating_sub(self.plain.len());
        let taken = bytes.get(..room).unwrap_or(bytes);
        self.plain.extend_from_slice(taken);
        Ok(taken.len())
    }

    /// Flushes whole chunks only: where a chunk ends is part of the format.
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
