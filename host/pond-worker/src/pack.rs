//! A checkout as a stream: what a job shall see of it, on its way to a worker, with the hash that names it.
//!
//! HOSTILE INPUT: the checkout may come from anyone. Everything is opened by descriptor beneath its root, links travel as
//! links, and special files, other mounts and unreadable entries are left out and named, as a snapshot does. Git's own files
//! travel without their credentials, as `pond run` shows them. What the hash is over is exactly what was written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pond_sandbox::checkout::{Checkout, CheckoutFault};
use pond_seal::Digest;
use pond_seal::tree::{Entry as Named, Listing, TreeFault as NamingFault};
use pond_wire::tree::{Entry, MAX_DEPTH, MAX_FILE, Moment, TreeCaps};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::beneath;
use crate::digest::Hashing;
use crate::path::{join, quoted};

/// What a whole source may have.
pub const CAPS: TreeCaps = TreeCaps::SOURCE;
const PIECE: usize = 64 << 10;
const NAMED: usize = 20;

/// What was packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// Over the tree as a job will see it.
    pub input: Digest,
    pub entries: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// How many entries are left out: special files, other mounts, unreadable ones.
    pub skipped: u64,
    /// The first of them, printable.
    pub skipped_names: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum PackFault {
    #[error("keeping credentials out of the source")]
    Checkout(#[from] CheckoutFault),
    #[error("the source has more than {} entries; name a smaller directory", CAPS.entries)]
    TooManyEntries,
    #[error("the source holds more than {} GiB; name a smaller directory", CAPS.bytes >> 30)]
    TooManyBytes,
    #[error("{0} lies more than {MAX_DEPTH} deep")]
    TooDeep(String),
    #[error("{0} is larger than {MAX_FILE} bytes, which is the most a file of a source may have")]
    TooLarge(String),
    #[error("{0} changed while it was read; try again")]
    Unsteady(String),
    #[error("read {path} of the source")]
    Read { path: String, source: io::Error },
    #[error("send the source")]
    Write(#[source] io::Error),
    #[error("name the source by its hash")]
    Hash(#[from] NamingFault),
}

/// Writes the tree of `checkout` to `to`.
pub fn pack(checkout: &Checkout, to: impl Write) -> Result<Packed, PackFault> {
    let replaced = checkout.without_credentials()?;
    tree(
        checkout.as_fd(),
        replaced.into_iter().map(|file| (file.path.into_bytes(), file.content)).collect(),
        to,
    )
}

/// Writes the tree of a directory of pond's own, such as a job's result, to `to`.
pub fn pack_result(directory: BorrowedFd<'_>, to: impl Write) -> Result<Packed, PackFault> {
    tree(directory, Replaced::new(), to)
}

/// What goes in place of a file's own content, by path.
type Replaced = BTreeMap<Vec<u8>, String>;

fn tree(root: BorrowedFd<'_>, replaced: Replaced, to: impl Write) -> Result<Packed, PackFault> {
    let root = beneath::open_dir(root, b"").map_err(|errno| reading(b".", errno.into()))?;
    let packed =
        Packed { input: Digest::of(b""), entries: 0, bytes: 0, skipped: 0, skipped_names: Vec::new() };
    let to = io::BufWriter::with_capacity(PIECE, to);
    let mut packing = Packing { to, replaced, listing: Listing::default(), packed };
    packing.directory(&root, b"", 0)?;
    packing.to.flush().map_err(PackFault::Write)?;
    Ok(Packed { input: packing.listing.finish()?, ..packing.packed })
}

struct Packing<W: Write> {
    to: io::BufWriter<W>,
    replaced: Replaced,
    listing: Listing,
    packed: Packed,
}

impl<W: Write> Packing<W> {
    /// Calls itself for directories below, at most as deep as a tree may be.
    fn directory(&mut self, directory: &OwnedFd, path: &[u8], depth: usize) -> Result<(), PackFault> {
        let failed = |errno: Errno| reading(path, errno.into());
        let mut names = Vec::new();
        beneath::each_name(directory.as_fd(), failed, |name| {
            names.push(name.to_owned());
            Ok(())
        })?;
        names.sort_unstable();
        for name in names {
            let below = join(path, name.to_bytes());
            let stat = match beneath::stat(directory, &name) {
                // Gone since it was listed.
                Err(Errno::NOENT) => continue,
                looked => looked.map_err(|errno| reading(&below, errno.into()))?,
            };
            if depth >= MAX_DEPTH {
                return Err(PackFault::TooDeep(quoted("", &below)));
            }
            self.entry(directory, name.to_bytes(), &below, &stat, depth + 1)?;
        }
        let stat = rustix::fs::fstat(directory).map_err(failed)?;
        self.say(&Entry::Leave { mode: mode(&stat) })
    }

    fn entry(
        &mut self,
        directory: &OwnedFd,
        name: &[u8],
        path: &[u8],
        stat: &Stat,
        depth: usize,
    ) -> Result<(), PackFault> {
        let failed = |errno: Errno| reading(path, errno.into());
        match beneath::kind(stat) {
            FileType::Directory => {
                let below = match beneath::open_dir(directory, name) {
                    Err(errno) if is_left_out(errno) => return self.skip(path),
                    opened => opened.map_err(failed)?,
                };
                self.admit(path, Named::Directory)?;
                self.say(&Entry::Enter { name: name.to_vec() })?;
                self.directory(&below, path, depth)
            }
            FileType::RegularFile => {
                let file = match beneath::open_file(directory, name) {
                    Err(errno) if is_left_out(errno) => return self.skip(path),
                    opened => File::from(opened.map_err(failed)?),
                };
                match self.replaced.get(path).cloned() {
                    Some(content) => self.file(name, path, stat, content.len(), &mut content.as_bytes()),
                    None => self.own_file(name, path, file),
                }
            }
            FileType::Symlink => {
                let target = match rustix::fs::readlinkat(directory, name, Vec::new()) {
                    Err(Errno::NOENT | Errno::INVAL) => return self.skip(path),
                    read => read.map_err(failed)?.into_bytes(),
                };
                self.admit(path, Named::Link { target: target.clone() })?;
                self.say(&Entry::Link { name: name.to_vec(), target })
            }
            FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Fifo
            | FileType::Socket
            | FileType::Unknown => self.skip(path),
        }
    }

    fn own_file(&mut self, name: &[u8], path: &[u8], mut file: File) -> Result<(), PackFault> {
        let stat = rustix::fs::fstat(&file).map_err(|errno| reading(path, errno.into()))?;
        if beneath::kind(&stat) != FileType::RegularFile {
            return Err(PackFault::Unsteady(quoted("", path)));
        }
        let size = usize::try_from(beneath::size(&stat)).unwrap_or(usize::MAX);
        self.file(name, path, &stat, size, &mut file)
    }

    fn file(
        &mut self,
        name: &[u8],
        path: &[u8],
        stat: &Stat,
        size: usize,
        content: &mut impl Read,
    ) -> Result<(), PackFault> {
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        if size > MAX_FILE {
            return Err(PackFault::TooLarge(quoted("", path)));
        }
        self.packed.bytes = self.packed.bytes.saturating_add(size);
        if self.packed.bytes > CAPS.bytes {
            return Err(PackFault::TooManyBytes);
        }
        let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or_default();
        let modified = Moment { seconds: stat.st_mtime, nanos };
        self.say(&Entry::File { name: name.to_vec(), mode: mode(stat), modified, size })?;
        let sha256 = self.content(path, size, content)?;
        self.admit(path, Named::File { executable: mode(stat) & 0o100 != 0, size, sha256 })
    }

    fn content(&mut self, path: &[u8], size: u64, content: &mut impl Read) -> Result<Digest, PackFault> {
        let mut to = Hashing::new(&mut self.to);
        let (mut left, mut piece) = (size, vec![0; PIECE]);
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE);
            let length = content
                .read(piece.get_mut(..wanted).unwrap_or_default())
                .map_err(|source| reading(path, source))?;
            if length == 0 {
                return Err(PackFault::Unsteady(quoted("", path)));
            }
            to.write_all(piece.get(..length).unwrap_or_default()).map_err(PackFault::Write)?;
            left = left.saturating_sub(u64::try_from(length).unwrap_or(u64::MAX));
        }
        to.finish().map_err(PackFault::Write)
    }

    fn admit(&mut self, path: &[u8], entry: Named) -> Result<(), PackFault> {
        self.packed.entries += 1;
        if self.packed.entries > CAPS.entries {
            return Err(PackFault::TooManyEntries);
        }
        self.listing.add(path.to_vec(), entry);
        Ok(())
    }

    fn say(&mut self, entry: &Entry) -> Result<(), PackFault> {
        let bytes = entry.encode().ok_or(PackFault::Write(io::ErrorKind::InvalidData.into()))?;
        self.to.write_all(&bytes).map_err(PackFault::Write)
    }

    fn skip(&mut self, path: &[u8]) -> Result<(), PackFault> {
        self.packed.skipped += 1;
        if self.packed.skipped_names.len() < NAMED {
            self.packed.skipped_names.push(quoted("", path));
        }
        Ok(())
    }
}

/// Another mount, not for us to read, or gone or replaced since it was looked at.
fn is_left_out(errno: Errno) -> bool {
    matches!(errno, Errno::ACCESS | Errno::PERM | Errno::XDEV | Errno::NXIO) || beneath::is_absent(errno)
}

fn mode(stat: &Stat) -> u16 {
    u16::try_from(stat.st_mode & 0o777).unwrap_or_default()
}

fn reading(path: &[u8], source: io::Error) -> PackFault {
    PackFault::Read { path: quoted("", path), source }
}

#[cfg(test)]
mod tests;
