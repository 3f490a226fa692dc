//! Files into a sandbox that lasts, and out of it, by descriptor alone.
//!
//! HOSTILE INPUT: everything below the sandbox's root was arranged by what runs in it, and may be rearranged meanwhile. No link is
//! followed on either way, magic or not; nothing special is opened; what comes out belongs to who asked, without setuid, and a link in
//! it that leads out of what was copied is left behind and named.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, openat2};
use rustix::io::Errno;

use crate::beneath;
use crate::object::{self, Sparse};
use crate::path::RelPath;
use crate::snapshot::{self, Copied, Manner, Outward, SnapshotFault};

/// Mounts are crossed: the workspace is one. Links never are.
const STRAIGHT: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
/// Places of the kernel's, which hold no files.
const NO_FILES: [&str; 3] = ["proc", "dev", "sys"];
const MOST_BYTES: u64 = 16 << 30;

#[derive(Debug, thiserror::Error)]
pub enum CarryFault {
    #[error(
        "{0:?} is no path inside: it is absolute, without `.` and `..`, and not below /proc, /dev or /sys"
    )]
    Path(String),
    #[error("{0} is there already; remove it first, or choose another name")]
    Exists(String),
    #[error("there is no {0} that could be reached without following a link")]
    Absent(String),
    #[error("{0} is neither a file nor a directory")]
    Special(String),
    #[error("{0} is a directory, and one file is asked for")]
    Directory(String),
    #[error("{0} is larger than {1} bytes")]
    TooLarge(String, u64),
    #[error("{0:?} is no pattern that could be left out")]
    Pattern(String),
    #[error("{path}")]
    Io { path: String, source: io::Error },
    #[error(transparent)]
    Tree(#[from] SnapshotFault),
}

/// Copies what lies behind `source` to this path below a sandbox's root. Directories above it are made; a file there is replaced, a
/// directory is not.
pub fn bring_in(
    root: BorrowedFd<'_>,
    target: &str,
    source: BorrowedFd<'_>,
    owner: u32,
    exclude: &[String],
) -> Result<Copied, CarryFault> {
    let path = inside(target)?;
    let (above, name) = path.split();
    let failed = |errno: Errno| fault(target, errno);
    let owner = (Uid::from_raw(owner), Gid::from_raw(owner));
    let parent = make_above(root, above, owner).map_err(failed)?;
    let stat = rustix::fs::fstat(source).map_err(failed)?;
    match beneath::kind(&stat) {
        FileType::Directory => {
            let directory = match make_directory(&parent, name, owner) {
                // What the document placed there itself is an empty directory.
                Err(Errno::EXIST) => {
                    empty(&parent, name).ok_or_else(|| CarryFault::Exists(target.to_owned()))?
                }
                made => made.map_err(failed)?,
            };
            let left_out = patterns(exclude)?;
            let manner = Manner { owner: Some(owner), left_out, outward: Outward::Refuse };
            Ok(snapshot::copy(source, directory.as_fd(), &manner)?)
        }
        FileType::RegularFile if beneath::size(&stat) > MOST_BYTES => {
            Err(CarryFault::TooLarge("the source".to_owned(), MOST_BYTES))
        }
        FileType::RegularFile => {
            let bytes = replace(source, &parent, name, owner, stat.st_mode & 0o777)
                .map_err(|source| CarryFault::Io { path: target.to_owned(), source })?;
            let bytes = bytes.ok_or_else(|| CarryFault::TooLarge("the source".to_owned(), MOST_BYTES))?;
            Ok(Copied { entries: 1, bytes, ..Copied::default() })
        }
        FileType::Symlink
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Fifo
        | FileType::Socket
        | FileType::Unknown => Err(CarryFault::Special("the source".to_owned())),
    }
}

/// Copies this path of a sandbox into a directory of the host, under a name that is not there yet. It belongs to whom that directory
/// belongs. With `most`, only a file is copied, and nothing of one that is larger.
pub fn take_out(
    root: BorrowedFd<'_>,
    source: &str,
    into: BorrowedFd<'_>,
    name: &str,
    most: Option<u64>,
) -> Result<Copied, CarryFault> {
    let path = inside(source)?;
    let plain = RelPath::from_bytes(name.as_bytes()).ok().filter(|name| name.split().0.is_empty());
    let name = plain.ok_or_else(|| CarryFault::Path(name.to_owned()))?;
    let name = name.as_bytes();
    let failed = |errno: Errno| fault(source, errno);
    let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = openat2(root, path.as_bytes(), look, Mode::empty(), STRAIGHT).map_err(failed)?;
    let kind = beneath::kind(&rustix::fs::fstat(&handle).map_err(failed)?);
    let stat = rustix::fs::fstat(into).map_err(failed)?;
    let owner = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    let (at, flags) = match kind {
        FileType::Directory => (path.as_bytes(), OFlags::DIRECTORY),
        FileType::RegularFile => (path.as_bytes(), OFlags::NONBLOCK | OFlags::NOCTTY),
        FileType::Symlink
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Fifo
        | FileType::Socket
        | FileType::Unknown => return Err(CarryFault::Special(source.to_owned())),
    };
    let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let from = openat2(root, at, flags, Mode::empty(), STRAIGHT).map_err(failed)?;
    // It may be another thing by now.
    let now = rustix::fs::fstat(&from).map_err(failed)?;
    if beneath::kind(&now) != kind {
        return Err(CarryFault::Absent(source.to_owned()));
    }
    let exists = |errno| if errno == Errno::EXIST { CarryFault::Exists(text(name)) } else { failed(errno) };
    if kind == FileType::Directory && most.is_some() {
        return Err(CarryFault::Directory(source.to_owned()));
    }
    if kind == FileType::Directory {
        let directory = make_directory(&into, name, owner).map_err(exists)?;
        let manner = Manner { owner: Some(owner), left_out: None, outward: Outward::Skip };
        return Ok(snapshot::copy(from.as_fd(), directory.as_fd(), &manner)?);
    }
    let bound = most.unwrap_or(MOST_BYTES);
    let too_large = || CarryFault::TooLarge(source.to_owned(), bound);
    if beneath::size(&now) > bound {
        return Err(too_large());
    }
    let made = beneath::create_file(into, name, Mode::RUSR | Mode::WUSR).map_err(exists)?;
    let filled = fill(from.as_fd(), &made, owner, (now.st_mode & 0o777, bound));
    if !matches!(filled, Ok(Some(_)))
        && let Err(_gone) = rustix::fs::unlinkat(into, name, AtFlags::empty())
    {}
    let bytes = filled.map_err(|fault| CarryFault::Io { path: source.to_owned(), source: fault })?;
    Ok(Copied { entries: 1, bytes: bytes.ok_or_else(too_large)?, ..Copied::default() })
}

/// A path as it is written inside, relative to the root.
fn inside(path: &str) -> Result<RelPath, CarryFault> {
    let wrong = || CarryFault::Path(path.to_owned());
    let relative = path.strip_prefix('/').ok_or_else(wrong)?;
    let relative = RelPath::from_bytes(relative.as_bytes()).map_err(|_| wrong())?;
    let first = relative.as_bytes().split(|byte| *byte == b'/').next().unwrap_or_default();
    if NO_FILES.iter().any(|name| name.as_bytes() == first) { Err(wrong()) } else { Ok(relative) }
}

fn patterns(exclude: &[String]) -> Result<Option<Gitignore>, CarryFault> {
    if exclude.is_empty() {
        return Ok(None);
    }
    let mut builder = GitignoreBuilder::new("");
    for pattern in exclude {
        builder.add_line(None, pattern).map_err(|_| CarryFault::Pattern(pattern.clone()))?;
    }
    builder.build().map(Some).map_err(|_| CarryFault::Pattern(exclude.join(", ")))
}

/// The directory above, whose missing parts are made for the sandbox's user.
fn make_above(root: BorrowedFd<'_>, path: &[u8], owner: (Uid, Gid)) -> Result<OwnedFd, Errno> {
    let mut at = open_directory(&root, b".")?;
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        at = match open_directory(&at, part) {
            Err(Errno::NOENT) => make_directory(&at, part, owner)?,
            opened => opened?,
        };
    }
    Ok(at)
}

fn make_directory(at: &impl AsFd, name: &[u8], (uid, gid): (Uid, Gid)) -> Result<OwnedFd, Errno> {
    rustix::fs::mkdirat(at, name, Mode::RWXU)?;
    let made = open_directory(at, name)?;
    rustix::fs::fchown(&made, Some(uid), Some(gid))?;
    rustix::fs::fchmod(&made, Mode::from_raw_mode(0o755))?;
    Ok(made)
}

fn open_directory(at: &impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(at, name, flags, Mode::empty(), STRAIGHT)
}

/// A directory that is there and has nothing in it.
fn empty(at: &OwnedFd, name: &[u8]) -> Option<OwnedFd> {
    let directory = open_directory(at, name).ok()?;
    beneath::each_name(directory.as_fd(), |_| (), |_| Err(())).ok()?;
    Some(directory)
}

/// Under another name first, so that what stood there is whole until it is replaced. Nothing for one that is too large.
fn replace(
    source: BorrowedFd<'_>,
    parent: &OwnedFd,
    name: &[u8],
    owner: (Uid, Gid),
    mode: u32,
) -> io::Result<Option<u64>> {
    let part = [b".", name, b".pond-part"].concat();
    if let Err(_was_not_there) = rustix::fs::unlinkat(parent, &*part, AtFlags::empty()) {}
    let made = beneath::create_file(parent, &part, Mode::RUSR | Mode::WUSR)?;
    let filled = fill(source, &made, owner, (mode, MOST_BYTES));
    let named = match filled {
        Ok(Some(bytes)) => {
            rustix::fs::renameat(parent, &*part, parent, name).map_err(io::Error::from).map(|()| Some(bytes))
        }
        other => other,
    };
    if !matches!(named, Ok(Some(_)))
        && let Err(_gone) = rustix::fs::unlinkat(parent, &*part, AtFlags::empty())
    {}
    named
}

/// All of it, with its holes; nothing when there is more than `most`, whatever its size was said to be.
fn fill(
    source: BorrowedFd<'_>,
    target: &OwnedFd,
    (uid, gid): (Uid, Gid),
    (mode, most): (u32, u64),
) -> io::Result<Option<u64>> {
    let source = std::fs::File::from(source.try_clone_to_owned()?);
    let mut to = Sparse { file: std::fs::File::from(target.try_clone()?), end: 0 };
    let bytes = object::copy(&mut io::Read::take(source, most.saturating_add(1)), &mut to)?;
    io::Write::flush(&mut to)?;
    if bytes > most {
        return Ok(None);
    }
    if rustix::process::geteuid().is_root() {
        rustix::fs::fchown(target, Some(uid), Some(gid))?;
    }
    rustix::fs::fchmod(target, Mode::from_raw_mode(mode))?;
    Ok(Some(bytes))
}

fn fault(path: &str, errno: Errno) -> CarryFault {
    match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV => CarryFault::Absent(path.to_owned()),
        errno => CarryFault::Io { path: path.to_owned(), source: errno.into() },
    }
}

fn text(name: &[u8]) -> String {
    crate::path::quoted("", name)
}

#[cfg(test)]
mod tests;
