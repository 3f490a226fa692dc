//! Writes what came out of a container into the upper layer, as far as it differs from what went in.
//!
//! HOSTILE INPUT, taken apart by `pond_wire::tree`. Everything is made by descriptor below the upper layer, whose quota holds;
//! nothing is opened that was not made here. A content that is the same leaves no trace, what is missing becomes a whiteout, and
//! nobody follows, opens or executes anything of it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pond_wire::tree::{Decoder, Entry, Event, MAX_FILE, TreeCaps};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, SeekFrom, fchmod, ftruncate, linkat, mkdirat, mknodat, openat, seek,
    symlinkat, unlinkat,
};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::{Leaf, Node, Sent, TransferFault};

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A tree that is arriving.
#[derive(Debug)]
pub(crate) struct Incoming {
    decoder: Decoder,
    /// The directories that were entered, the root first.
    open: Vec<Level>,
    file: Option<Arriving>,
}

#[derive(Debug)]
struct Level {
    name: Vec<u8>,
    /// Once something in it differs.
    upper: Option<OwnedFd>,
    /// What went into this directory and has not come out yet.
    missing: Sent,
}

/// A file whose content is not all there; it has no name yet.
#[derive(Debug)]
struct Arriving {
    name: Vec<u8>,
    mode: u16,
    size: u64,
    left: u64,
    digest: Sha256,
    spool: File,
    before: Option<Node>,
}

impl Incoming {
    pub(crate) fn new(upper: OwnedFd, sent: Sent, caps: TreeCaps) -> Self {
        let root = Level { name: Vec::new(), upper: Some(upper), missing: sent };
        Self { decoder: Decoder::new(caps), open: vec![root], file: None }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.decoder.is_over()
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), TransferFault> {
        self.decoder.push(bytes);
        while let Some(event) = self.decoder.next_event()? {
            let kept = match event {
                Event::Entry(entry) => self.entry(entry),
                Event::Content(bytes) => self.content(&bytes),
                Event::End => self.leave(),
            };
            kept.map_err(|errno| TransferFault::Keep(errno.into()))?;
        }
        Ok(())
    }

    fn entry(&mut self, entry: Entry) -> Result<(), Errno> {
        match entry {
            Entry::Enter { name } => self.enter(name),
            Entry::Leave { .. } => self.leave(),
            Entry::File { name, mode, size, .. } => {
                let before = self.came(&name)?;
                let (spool, digest) = (self.spool()?, Sha256::new());
                self.file = Some(Arriving { name, mode, size, left: size, digest, spool, before });
                self.finish()
            }
            Entry::Link { name, target } => {
                let leaf = Leaf::Link(target.clone());
                self.unless_same(&name, leaf, |here, name| symlinkat(&target, here, name))
            }
            Entry::Fifo { name } => self.unless_same(&name, Leaf::Fifo, special(FileType::Fifo)),
            Entry::Socket { name } => self.unless_same(&name, Leaf::Socket, special(FileType::Socket)),
            // As large as it takes to be refused as too large.
            Entry::Large { name } => {
                self.came(&name)?;
                let spool = self.spool()?;
                ftruncate(&spool, MAX_FILE + 1)?;
                self.place(&name, &spool)
            }
        }
    }

    fn enter(&mut self, name: Vec<u8>) -> Result<(), Errno> {
        let level = match self.came(&name)? {
            Some(Node::Directory(missing)) => Level { name, upper: None, missing },
            // Where a leaf was, or nothing: whether or not there is something in it.
            Some(Node::Leaf(_)) | None => {
                self.open.push(Level { name, upper: None, missing: Sent::new() });
                self.here()?;
                return Ok(());
            }
        };
        self.open.push(level);
        Ok(())
    }

    /// The end of a directory: what did not come out of it is gone.
    fn leave(&mut self) -> Result<(), Errno> {
        let Some(level) = self.open.last_mut() else { return Err(Errno::BADMSG) };
        for name in std::mem::take(&mut level.missing).into_keys() {
            let here = self.here()?;
            clear(here, &name)?;
            mknodat(here, &name, FileType::CharacterDevice, Mode::empty(), 0)?;
        }
        self.open.pop();
        Ok(())
    }

    /// What went in under this name.
    fn came(&mut self, name: &[u8]) -> Result<Option<Node>, Errno> {
        let level = self.open.last_mut().ok_or(Errno::BADMSG)?;
        Ok(level.missing.remove(name))
    }

    fn unless_same(
        &mut self,
        name: &[u8],
        leaf: Leaf,
        make: impl FnOnce(BorrowedFd<'_>, &[u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if self.came(name)? == Some(Node::Leaf(leaf)) {
            return Ok(());
        }
        let here = self.here()?;
        clear(here, name)?;
        make(here, name)
    }

    fn content(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let Some(file) = &mut self.file else { return Err(Errno::BADMSG) };
        file.digest.update(bytes);
        let length = u64::try_from(bytes.len()).map_err(|_| Errno::FBIG)?;
        file.left = file.left.saturating_sub(length);
        // A hole that went in as one must not fill the disk on its way out.
        if bytes.iter().all(|byte| *byte == 0) {
            let ahead = i64::try_from(length).map_err(|_| Errno::FBIG)?;
            seek(&file.spool, SeekFrom::Current(ahead))?;
        } else {
            let written = (&file.spool).write_all(bytes);
            written.map_err(|fault| Errno::from_io_error(&fault).unwrap_or(Errno::IO))?;
        }
        self.finish()
    }

    fn finish(&mut self) -> Result<(), Errno> {
        let Some(file) = self.file.take_if(|file| file.left == 0) else { return Ok(()) };
        let Arriving { name, mode, size, digest, spool, before, .. } = file;
        let executable = mode & 0o100 != 0;
        if before == Some(Node::Leaf(Leaf::file(mode, digest))) {
            return Ok(());
        }
        ftruncate(&spool, size)?;
        fchmod(&spool, Mode::from_raw_mode(if executable { 0o755 } else { 0o644 }))?;
        self.place(&name, &spool)
    }

    /// A file without a name, on the disk whose quota holds.
    fn spool(&self) -> Result<File, Errno> {
        let root = self.open.first().and_then(|root| root.upper.as_ref()).ok_or(Errno::BADMSG)?;
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(root, c".", flags, Mode::RUSR | Mode::WUSR).map(File::from)
    }

    fn place(&mut self, name: &[u8], spool: &File) -> Result<(), Errno> {
        let here = self.here()?;
        clear(here, name)?;
        linkat(spool, c"", here, name, AtFlags::EMPTY_PATH)
    }

    /// The directory entered last, in the upper layer.
    fn here(&mut self) -> Result<BorrowedFd<'_>, Errno> {
        let made = self.open.iter().rposition(|level| level.upper.is_some()).ok_or(Errno::BADMSG)?;
        for at in made + 1..self.open.len() {
            let above = self.open.get(at - 1).and_then(|level| level.upper.as_ref()).ok_or(Errno::BADMSG)?;
            let name = self.open.get(at).map(|level| level.name.as_slice()).ok_or(Errno::BADMSG)?;
            let below = directory(above.as_fd(), name)?;
            self.open.get_mut(at).ok_or(Errno::BADMSG)?.upper = Some(below);
        }
        self.open.last().and_then(|level| level.upper.as_ref()).map(AsFd::as_fd).ok_or(Errno::BADMSG)
    }
}

fn special(kind: FileType) -> impl FnOnce(BorrowedFd<'_>, &[u8]) -> Result<(), Errno> {
    move |here, name| mknodat(here, name, kind, Mode::RUSR | Mode::WUSR, 0)
}

/// A directory of this name, in place of anything else that has it.
fn directory(above: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    match openat(above, name, DIRECTORY, Mode::empty()) {
        Ok(there) => return Ok(there),
        Err(Errno::NOENT) => {}
        Err(Errno::NOTDIR | Errno::LOOP) => clear(above, name)?,
        Err(errno) => return Err(errno),
    }
    mkdirat(above, name, Mode::from_raw_mode(0o755))?;
    openat(above, name, DIRECTORY, Mode::empty())
}

/// Takes away what pond itself had put into the upper layer before the job began, such as a git configuration.
fn clear(here: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    match unlinkat(here, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR) => {
            let path = Path::new("/proc/self/fd").join(here.as_raw_fd().to_string());
            std::fs::remove_dir_all(path.join(OsStr::from_bytes(name)))
                .map_err(|fault| Errno::from_io_error(&fault).unwrap_or(Errno::IO))
        }
        Err(errno) => Err(errno),
    }
}
