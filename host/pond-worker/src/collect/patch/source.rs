//! Where the patch takes its two sides from: new contents from the run's own store, base contents from the base tree,
//! each checked against the digest the walk recorded.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use sha1::Digest as _;

use crate::beneath;
use crate::collect::CollectFault;
use crate::collect::change::{Leaf, Mode};
use crate::digest::Digest;
use crate::object::{self, Store};
use crate::path::{RelPath, quoted};

/// Larger files are shown as binary literals.
const TEXT_BYTES: u64 = 1 << 20;
/// More lines than this are shown as binary literals, which bounds the work of one diff.
const TEXT_LINES: usize = 65_536;

#[derive(Debug)]
pub(in crate::collect) struct Contents<'a> {
    pub(in crate::collect) lower: BorrowedFd<'a>,
    pub(in crate::collect) store: &'a Store,
}

/// One side of a file's diff.
#[derive(Debug)]
pub(super) enum Side {
    Absent,
    Text(Vec<u8>),
    /// Binary or large: streamed, never held.
    Opaque(Opaque),
}

#[derive(Debug)]
pub(super) struct Opaque {
    file: File,
    pub(super) size: u64,
}

impl Contents<'_> {
    pub(super) fn result(&self, leaf: Option<Leaf>) -> Result<Side, CollectFault> {
        let Some(leaf) = leaf else { return Ok(Side::Absent) };
        let side = self.store.read(leaf.sha256).and_then(|file| Side::read(file, leaf.size));
        side.map_err(|source| CollectFault::Store { source })
    }

    pub(super) fn base(&self, path: &RelPath, leaf: Option<Leaf>) -> Result<Side, CollectFault> {
        let Some(leaf) = leaf else { return Ok(Side::Absent) };
        let failed = |source: io::Error| CollectFault::Read { path: path.to_string(), source };
        let moved = |errno| CollectFault::read_base(path.as_bytes(), errno);
        let side = if leaf.mode == Mode::Link {
            let handle = beneath::open_handle(self.lower, path.as_bytes()).map_err(moved)?;
            Side::Text(beneath::link_target(handle.as_fd()).map_err(moved)?)
        } else {
            let file = beneath::open_file(self.lower, path.as_bytes()).map_err(moved)?;
            Side::read(File::from(file), leaf.size).map_err(failed)?
        };
        if side.digest().map_err(failed)? == Some(leaf.sha256) {
            Ok(side)
        } else {
            Err(CollectFault::Moved { path: quoted("", path.as_bytes()) })
        }
    }
}

impl Side {
    fn read(mut file: File, size: u64) -> io::Result<Self> {
        if size > TEXT_BYTES {
            return Ok(Self::Opaque(Opaque { file, size }));
        }
        let mut bytes = Vec::new();
        Read::by_ref(&mut file).take(TEXT_BYTES + 1).read_to_end(&mut bytes)?;
        let lines = bytes.iter().filter(|&&byte| byte == b'\n').count();
        if bytes.contains(&0) || lines > TEXT_LINES {
            return Ok(Self::Opaque(Opaque { file, size }));
        }
        Ok(Self::Text(bytes))
    }

    /// The content when it can take part in a line diff.
    pub(super) fn text(&self) -> Option<&[u8]> {
        match self {
            Self::Absent => Some(b""),
            Self::Text(bytes) => Some(bytes),
            Self::Opaque(_) => None,
        }
    }

    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Absent => 0,
            Self::Text(bytes) => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            Self::Opaque(opaque) => opaque.size,
        }
    }

    pub(super) fn copy_to(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Absent => Ok(()),
            Self::Text(bytes) => out.write_all(bytes),
            Self::Opaque(opaque) => {
                let mut file = &opaque.file;
                io::Seek::rewind(&mut file)?;
                object::copy(&mut file.take(opaque.size), out).map(drop)
            }
        }
    }

    fn digest(&self) -> io::Result<Option<Digest>> {
        match self {
            Self::Absent => Ok(None),
            Self::Text(bytes) => Ok(Some(Digest::of(bytes))),
            Self::Opaque(opaque) => {
                let mut file = &opaque.file;
                io::Seek::rewind(&mut file)?;
                object::digest_of(&mut file, opaque.size).map(|read| Some(read.digest))
            }
        }
    }

    /// The name git gives this content: required with binary literals, useful for three-way merges otherwise.
    pub(super) fn git_id(&self) -> io::Result<String> {
        if let Self::Absent = self {
            return Ok("0".repeat(40));
        }
        let mut state = Blob(sha1::Sha1::new());
        write!(state, "blob {}\0", self.size())?;
        self.copy_to(&mut state)?;
        Ok(state.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

struct Blob(sha1::Sha1);

impl Write for Blob {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
