//! Reads one entry of an overlay's upper layer as the kernel meant it: file, link, directory, or deletion.
//!
//! The job may have forged any mark in the `user` namespace. A mark can only ever delete or refuse; none of them makes
//! this code read another path. Special files are told apart by `stat` and never opened.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::change::Reason;
use crate::beneath;

/// Which extended attributes carry the overlay's marks; the other namespace is the job's own data and is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverlayXattrs {
    /// `trusted.overlay.*`: mounted by root, out of the job's reach.
    Trusted,
    /// `user.overlay.*`: mounted in a user namespace.
    User,
}

impl OverlayXattrs {
    /// Those of the sandboxes this process launches.
    #[must_use]
    pub fn of_own_jobs() -> Self {
        if rustix::process::geteuid().is_root() { Self::Trusted } else { Self::User }
    }
}

/// One entry of the upper layer.
#[derive(Debug)]
pub(super) enum Upper {
    File(File, Stat, Origin),
    Link(Vec<u8>),
    Directory,
    Whiteout,
    Refused(Reason),
    /// The name denotes something else than a moment ago.
    Unsteady,
}

/// Where a file of the upper layer began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Job,
    /// As a copy of one of the base, under this name or another.
    Base,
}

/// What an upper directory says about the base directory below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirectoryMark {
    Merged,
    Opaque,
    Redirected,
}

impl OverlayXattrs {
    fn name(self, mark: Mark) -> &'static str {
        match (self, mark) {
            (Self::Trusted, Mark::Opaque) => "trusted.overlay.opaque",
            (Self::Trusted, Mark::Redirect) => "trusted.overlay.redirect",
            (Self::Trusted, Mark::Metacopy) => "trusted.overlay.metacopy",
            (Self::Trusted, Mark::Whiteout) => "trusted.overlay.whiteout",
            (Self::Trusted, Mark::Origin) => "trusted.overlay.origin",
            (Self::User, Mark::Opaque) => "user.overlay.opaque",
            (Self::User, Mark::Redirect) => "user.overlay.redirect",
            (Self::User, Mark::Metacopy) => "user.overlay.metacopy",
            (Self::User, Mark::Whiteout) => "user.overlay.whiteout",
            (Self::User, Mark::Origin) => "user.overlay.origin",
        }
    }

    fn has(self, mark: Mark, fd: BorrowedFd<'_>) -> Result<bool, Errno> {
        present(rustix::fs::fgetxattr(fd, self.name(mark), &mut [0_u8; 0][..])).map(|length| length.is_some())
    }

    pub(super) fn directory(self, fd: BorrowedFd<'_>) -> Result<DirectoryMark, Errno> {
        if self.has(Mark::Redirect, fd)? {
            return Ok(DirectoryMark::Redirected);
        }
        let mut value = [0_u8; 1];
        let length = match rustix::fs::fgetxattr(fd, self.name(Mark::Opaque), &mut value[..]) {
            Err(Errno::RANGE) => Ok(None),
            read => present(read),
        }?;
        Ok(if length == Some(1) && value == *b"y" { DirectoryMark::Opaque } else { DirectoryMark::Merged })
    }

    /// Looks at one name of an open upper directory.
    pub(super) fn entry(self, dir: BorrowedFd<'_>, name: &CStr) -> Result<Upper, Errno> {
        let stat = match beneath::stat(dir, name) {
            Err(Errno::ACCESS) => return Ok(Upper::Refused(Reason::Unreadable)),
            looked => looked?,
        };
        Ok(match beneath::kind(&stat) {
            FileType::RegularFile => return self.file(dir, name, &stat),
            FileType::Symlink => Upper::Link(rustix::fs::readlinkat(dir, name, Vec::new())?.into_bytes()),
            FileType::Directory => Upper::Directory,
            FileType::CharacterDevice if stat.st_rdev == 0 => Upper::Whiteout,
            FileType::CharacterDevice => Upper::Refused(Reason::CharDevice),
            FileType::BlockDevice => Upper::Refused(Reason::BlockDevice),
            FileType::Fifo => Upper::Refused(Reason::Fifo),
            FileType::Socket => Upper::Refused(Reason::Socket),
            FileType::Unknown => Upper::Refused(Reason::UnknownType),
        })
    }

    fn file(self, dir: BorrowedFd<'_>, name: &CStr, seen: &Stat) -> Result<Upper, Errno> {
        let fd = match beneath::open_file(dir, name.to_bytes()) {
            Err(Errno::ACCESS | Errno::PERM) => return Ok(Upper::Refused(Reason::Unreadable)),
            opened => opened?,
        };
        let stat = rustix::fs::fstat(&fd)?;
        if !same_file(seen, &stat) {
            return Ok(Upper::Unsteady);
        }
        if self.has(Mark::Metacopy, fd.as_fd())? {
            return Ok(Upper::Refused(Reason::Metacopy));
        }
        if self.has(Mark::Redirect, fd.as_fd())? {
            return Ok(Upper::Refused(Reason::Redirect));
        }
        if stat.st_size == 0 && self.has(Mark::Whiteout, fd.as_fd())? {
            return Ok(Upper::Whiteout);
        }
        let origin = if self.has(Mark::Origin, fd.as_fd())? { Origin::Base } else { Origin::Job };
        Ok(Upper::File(File::from(fd), stat, origin))
    }
}

#[derive(Debug, Clone, Copy)]
enum Mark {
    Opaque,
    Redirect,
    Metacopy,
    Whiteout,
    Origin,
}

/// An absent attribute, or a file system without them, is no mark.
fn present(read: Result<usize, Errno>) -> Result<Option<usize>, Errno> {
    match read {
        Ok(length) => Ok(Some(length)),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The same inode with the same type, size and modification time.
pub(crate) fn same_file(one: &Stat, other: &Stat) -> bool {
    let facts = |stat: &Stat| {
        (stat.st_dev, stat.st_ino, stat.st_mode, stat.st_size, stat.st_mtime, stat.st_mtime_nsec)
    };
    facts(one) == facts(other)
}
