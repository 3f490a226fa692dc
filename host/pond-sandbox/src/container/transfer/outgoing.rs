//! Sends a directory of this host as a tree, and remembers what it sent.
//!
//! By descriptor, never through a link. What changes meanwhile is either seen or not, as by any reader; a file that shrinks is a
//! refusal. Devices and mounts of others are left out: a job could not use them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use pond_wire::tree::{Entry, MAX_DEPTH, MAX_FILE, Moment, TreeCaps};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::{Leaf, Node, Sent, TransferFault, shown};

const PIECE: usize = 64 << 10;
const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// Who is to read the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Whoever owns it: modes are as they were.
    Owner,
    /// Somebody who does not: what its owner may read or execute, everybody may, and only its owner writes.
    Others,
}

/// Sends what is in `root`. Nothing that is left out counts as sent.
pub(crate) fn send(
    root: &OwnedFd,
    readers: Readers,
    caps: TreeCaps,
    to: &mut impl Write,
) -> Result<Sent, TransferFault> {
    let mut sending =
        Sending { to: io::BufWriter::with_capacity(PIECE, to), readers, caps, entries: 0, bytes: 0 };
    let root = openat(root, c".", READ | OFlags::DIRECTORY, Mode::empty())
        .map_err(|errno| TransferFault::Read { path: ".".to_owned(), source: errno.into() })?;
    let sent = sending.directory(&root, b"", 0)?;
    sending.to.flush().map_err(TransferFault::sending)?;
    Ok(sent)
}

struct Sending<W: Write> {
    to: io::BufWriter<W>,
    readers: Readers,
    caps: TreeCaps,
    entries: u64,
    bytes: u64,
}

impl<W: Write> Sending<W> {
    /// Calls itself for directories below, at most as deep as a tree may be.
    fn directory(&mut self, directory: &OwnedFd, path: &[u8], depth: usize) -> Result<Sent, TransferFault> {
        let failed = |errno: Errno| TransferFault::Read { path: shown(path), source: errno.into() };
        let mut names = Vec::new();
        for entry in Dir::read_from(directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        let mut sent = Sent::new();
        for name in names {
            let below = if path.is_empty() { name.clone() } else { [path, b"/", &name].concat() };
            if let Some(node) = self.entry(directory, &name, &below, depth + 1)? {
                sent.insert(name, node);
            }
        }
        let mode = self.mode(&fstat(directory).map_err(failed)?);
        self.say(&Entry::Leave { mode })?;
        Ok(sent)
    }

    fn entry(
        &mut self,
        directory: &OwnedFd,
        name: &[u8],
        path: &[u8],
        depth: usize,
    ) -> Result<Option<Node>, TransferFault> {
        let failed = |errno: Errno| TransferFault::Read { path: shown(path), source: errno.into() };
        let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            looked => looked.map_err(failed)?,
        };
        if depth > MAX_DEPTH {
            return Err(TransferFault::Depth(shown(path)));
        }
        let kind = FileType::from_raw_mode(stat.st_mode);
        if let FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown = kind {
            return Ok(None);
        }
        self.entries += 1;
        if self.entries > self.caps.entries {
            return Err(TransferFault::Entries(self.caps.entries));
        }
        let named = name.to_vec();
        let leaf = match kind {
            FileType::Directory => {
                let below =
                    openat(directory, name, READ | OFlags::DIRECTORY, Mode::empty()).map_err(failed)?;
                self.say(&Entry::Enter { name: named })?;
                return Ok(Some(Node::Directory(self.directory(&below, path, depth)?)));
            }
            FileType::RegularFile => {
                let file = openat(directory, name, READ, Mode::empty()).map_err(failed)?;
                self.file(named, File::from(file), path)?
            }
            FileType::Symlink => {
                let target = readlinkat(directory, name, Vec::new()).map_err(failed)?.into_bytes();
                self.say(&Entry::Link { name: named, target: target.clone() })?;
                Leaf::Link(target)
            }
            FileType::Fifo => {
                self.say(&Entry::Fifo { name: named })?;
                Leaf::Fifo
            }
            FileType::Socket => {
                self.say(&Entry::Socket { name: named })?;
                Leaf::Socket
            }
            FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => return Ok(None),
        };
        Ok(Some(Node::Leaf(leaf)))
    }

    fn file(&mut self, name: Vec<u8>, mut file: File, path: &[u8]) -> Result<Leaf, TransferFault> {
        let failed = |source| TransferFault::Read { path: shown(path), source };
        let stat = fstat(file.as_fd()).map_err(|errno| failed(errno.into()))?;
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if size > MAX_FILE {
            return Err(TransferFault::Size(shown(path)));
        }
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > self.caps.bytes {
            return Err(TransferFault::Bytes(self.caps.bytes));
        }
        let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or_default();
        let modified = Moment { seconds: stat.st_mtime, nanos };
        self.say(&Entry::File { name, mode: self.mode(&stat), modified, size })?;
        let mut digest = Sha256::new();
        let (mut left, mut piece) = (size, vec![0; PIECE]);
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE);
            let length = file.read(piece.get_mut(..wanted).unwrap_or_default()).map_err(failed)?;
            if length == 0 {
                return Err(TransferFault::Changed(shown(path)));
            }
            let bytes = piece.get(..length).unwrap_or_default();
            digest.update(bytes);
            self.to.write_all(bytes).map_err(TransferFault::sending)?;
            left = left.saturating_sub(u64::try_from(length).unwrap_or(u64::MAX));
        }
        Ok(Leaf::file(self.mode(&stat), digest))
    }

    fn mode(&self, stat: &Stat) -> u16 {
        let mode = u16::try_from(stat.st_mode & 0o777).unwrap_or_default();
        match self.readers {
            Readers::Owner => mode,
            Readers::Others => {
                let seen = mode & 0o500;
                mode & 0o700 | seen | seen >> 3 | seen >> 6
            }
        }
    }

    fn say(&mut self, entry: &Entry) -> Result<(), TransferFault> {
        let bytes = entry.encode().ok_or(TransferFault::Send(io::ErrorKind::InvalidData.into()))?;
        self.to.write_all(&bytes).map_err(TransferFault::sending)
    }
}
