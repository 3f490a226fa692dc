//! The content store of a run: each changed file once, under `objects/<sha256>`, hashed while it is copied.
//!
//! Contents come from the job; names come from us. Holes stay holes, so a sparse file costs what it holds. A reader
//! always re-hashes what it takes out.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode};

use crate::beneath;
use crate::digest::{Digest, Hashing};

const DIRECTORY: &str = "objects";
/// No digest is spelled like this, so a copy that was cut short is never taken for an object.
const INCOMING: &[u8] = b"incoming";
const CHUNK: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Store {
    dir: OwnedFd,
}

/// A copy that has its digest and waits to be kept or discarded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Incoming {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

impl Store {
    pub(crate) fn create(run: BorrowedFd<'_>) -> io::Result<Self> {
        rustix::fs::mkdirat(run, DIRECTORY, Mode::RWXU)?;
        Self::open(run)
    }

    pub(crate) fn open(run: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self { dir: beneath::open_dir(run, DIRECTORY.as_bytes())? })
    }

    /// Removes the whole store, if there is one.
    pub(crate) fn remove(run: BorrowedFd<'_>) -> io::Result<()> {
        let store = match Self::open(run) {
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        beneath::each_name(store.as_fd(), io::Error::from, |name| {
            Ok(rustix::fs::unlinkat(&store.dir, name, AtFlags::empty())?)
        })?;
        Ok(rustix::fs::unlinkat(run, DIRECTORY, AtFlags::REMOVEDIR)?)
    }

    /// Copies everything `source` yields, up to and including one byte more than `limit`, so growth is noticed.
    pub(crate) fn take_in(&self, source: &mut impl Read, limit: u64) -> io::Result<Incoming> {
        let file = File::from(beneath::create_file(&self.dir, INCOMING, Mode::RUSR | Mode::WUSR)?);
        let mut target = Hashing::new(Sparse { file, end: 0 });
        let size = copy(&mut source.take(limit.saturating_add(1)), &mut target)?;
        Ok(Incoming { digest: target.finish()?, size })
    }

    pub(crate) fn keep(&self, incoming: &Incoming) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.dir, INCOMING, &self.dir, incoming.digest.to_string())?)
    }

    pub(crate) fn discard(&self) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.dir, INCOMING, AtFlags::empty())?)
    }

    pub(crate) fn read(&self, digest: Digest) -> io::Result<File> {
        Ok(File::from(beneath::open_file(&self.dir, digest.to_string().as_bytes())?))
    }

    /// Streams an object into `target`; an object that is no longer its digest is `InvalidData`.
    pub(crate) fn copy_out(&self, digest: Digest, target: impl Write) -> io::Result<()> {
        let mut target = Hashing::new(target);
        copy(&mut self.read(digest)?, &mut target)?;
        if target.finish()? == digest { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// A small object, whole. The caller knows its size is bounded.
    pub(crate) fn bytes(&self, digest: Digest) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.copy_out(digest, &mut bytes)?;
        Ok(bytes)
    }
}

/// Copies in fixed chunks: full ones, so that [`Sparse`] sees aligned blocks.
pub(crate) fn copy(source: &mut impl Read, target: &mut impl Write) -> io::Result<u64> {
    let mut chunk = Vec::with_capacity(CHUNK);
    let mut total = 0;
    loop {
        chunk.clear();
        let read = source.by_ref().take(u64::try_from(CHUNK).unwrap_or(u64::MAX)).read_to_end(&mut chunk)?;
        if read == 0 {
            return Ok(total);
        }
        target.write_all(&chunk)?;
        total += u64::try_from(read).unwrap_or(u64::MAX);
    }
}

/// Writes a file and leaves holes where whole chunks are zero.
#[derive(Debug)]
pub(crate) struct Sparse {
    pub(crate) file: File,
    pub(crate) end: u64,
}

impl Write for Sparse {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() == CHUNK && bytes.iter().all(|&byte| byte == 0) {
            self.file.seek(SeekFrom::Current(i64::try_from(CHUNK).unwrap_or(i64::MAX)))?;
        } else {
            self.file.write_all(bytes)?;
        }
        self.end += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.set_len(self.end)
    }
}

/// The digest of a stream, without keeping it.
pub(crate) fn digest_of(source: &mut impl Read, limit: u64) -> io::Result<Incoming> {
    let mut target = Hashing::new(io::sink());
    let size = copy(&mut source.take(limit.saturating_add(1)), &mut target)?;
    Ok(Incoming { digest: target.finish()?, size })
}

impl AsFd for Store {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn holes_survive_and_tampering_is_noticed() {
        let run = tempfile::tempdir().unwrap();
        let fd = File::open(run.path()).unwrap();
        let store = Store::create(fd.as_fd()).unwrap();
        let source = File::create_new(run.path().join("source")).unwrap();
        source.set_len(8 << 20).unwrap();
        let incoming = store.take_in(&mut File::open(run.path().join("source")).unwrap(), 8 << 20).unwrap();
        store.keep(&incoming).unwrap();
        let object = run.path().join("objects").join(incoming.digest.to_string());
        let meta = object.metadata().unwrap();
        assert_eq!((meta.len(), meta.blocks(), incoming.size), (8 << 20, 0, 8 << 20));

        std::fs::write(&object, b"swapped").unwrap();
        assert_eq!(store.bytes(incoming.digest).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
