//! The only way this crate opens anything in a tree it does not trust: relative to a directory descriptor, never
//! through a symbolic or magic link, never out of the tree, never onto another mount, never blocking.
//!
//! Names are looked at (`stat`) before they are opened, so a device or fifo is never opened at all.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::{Errno, Result};

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

const LISTING_BUFFER: usize = 32 * 1024;

/// Opens a directory for listing; the empty path is the root itself.
pub(crate) fn open_dir(root: impl AsFd, path: &[u8]) -> Result<OwnedFd> {
    open(root, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Opens an existing file for reading. The caller checks with `fstat` that it got what `stat` promised.
pub(crate) fn open_file(root: impl AsFd, path: &[u8]) -> Result<OwnedFd> {
    open(root, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
}

/// A handle on whatever the path names, without opening it: good for `fstat` and `readlinkat` only.
pub(crate) fn open_handle(root: impl AsFd, path: &[u8]) -> Result<OwnedFd> {
    open(root, path, OFlags::PATH)
}

/// Creates a file that must not exist yet.
pub(crate) fn create_file(root: impl AsFd, path: &[u8], mode: Mode) -> Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(root, here(path), flags, mode, RESOLVE)
}

/// Makes a directory that must not exist yet. The kernel has no call that makes one beneath another, so the one above is opened first.
pub(crate) fn make_dir(root: impl AsFd, path: &[u8]) -> Result<()> {
    let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (path.get(..at).unwrap_or_default(), path.get(at + 1..).unwrap_or_default()),
        None => (&[][..], path),
    };
    rustix::fs::mkdirat(open_dir(root, above)?, name, Mode::RWXU)
}

fn open(root: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
    rustix::fs::openat2(root, here(path), flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), RESOLVE)
}

fn here(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}

/// Looks at one name of an open directory without following it.
pub(crate) fn stat(dir: impl AsFd, name: &CStr) -> Result<Stat> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

pub(crate) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The size as an unsigned number; the kernel never reports a negative one.
pub(crate) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(u64::MAX)
}

/// The target bytes of the symbolic link behind a handle.
pub(crate) fn link_target(handle: BorrowedFd<'_>) -> Result<Vec<u8>> {
    rustix::fs::readlinkat(handle, "", Vec::new()).map(std::ffi::CString::into_bytes)
}

/// True for the errors that mean "no such path here, seen from this root".
pub(crate) fn is_absent(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
}

/// Streams the names of an open directory; memory does not grow with their number.
pub(crate) fn each_name<E>(
    dir: BorrowedFd<'_>,
    fault: impl FnOnce(Errno) -> E,
    mut visit: impl FnMut(&CStr) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let mut buffer = Vec::with_capacity(LISTING_BUFFER);
    let mut listing = RawDir::new(dir, buffer.spare_capacity_mut());
    while let Some(entry) = listing.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(errno) => return Err(fault(errno)),
        };
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            visit(name)?;
        }
    }
    Ok(())
}
