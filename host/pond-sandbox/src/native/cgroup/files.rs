//! One open, one transfer: the few ways control group files are touched, always by descriptor of their directory.
//!
//! Zone: host. These files are the kernel's; none of them is ever reached through a path a job could have shaped.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, open, openat};
use rustix::io::{Errno, pread, read, write};

/// Longer than any single-value file; lists of processes are read with [`read_all`].
const SHORT: usize = 1024;

pub(super) fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    open(path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

pub(super) fn open_subdirectory(directory: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat(directory, name, flags, Mode::empty())
}

pub(super) fn open_for_writing(directory: BorrowedFd<'_>, file: &str) -> Result<OwnedFd, Errno> {
    openat(directory, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
}

pub(super) fn put(directory: BorrowedFd<'_>, file: &str, value: &str) -> Result<(), Errno> {
    let file = open_for_writing(directory, file)?;
    write_whole(file.as_fd(), value)
}

/// Writes a value and says what the file holds afterwards.
pub(super) fn put_and_read(directory: BorrowedFd<'_>, file: &str, value: &str) -> Result<String, Errno> {
    let file = openat(directory, file, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    write_whole(file.as_fd(), value)?;
    let mut bytes = [0; SHORT];
    let length = pread(&file, &mut bytes, 0)?;
    text(bytes.get(..length).unwrap_or_default())
}

pub(super) fn get(directory: BorrowedFd<'_>, file: &str) -> Result<String, Errno> {
    let file = openat(directory, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = [0; SHORT];
    let length = read(&file, &mut bytes)?;
    text(bytes.get(..length).unwrap_or_default())
}

pub(super) fn read_all(directory: BorrowedFd<'_>, file: &str) -> Result<String, Errno> {
    drain(openat(directory, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// A description that may mention names in any encoding.
pub(super) fn read_path(path: &str) -> Result<String, Errno> {
    drain(openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

fn drain(file: OwnedFd) -> Result<String, Errno> {
    let mut whole = Vec::new();
    let mut bytes = [0; 16 * SHORT];
    loop {
        let length = read(&file, &mut bytes)?;
        if length == 0 {
            return Ok(String::from_utf8_lossy(&whole).into_owned());
        }
        whole.extend_from_slice(bytes.get(..length).unwrap_or_default());
    }
}

/// The kernel takes such a value in one write or not at all.
fn write_whole(file: BorrowedFd<'_>, value: &str) -> Result<(), Errno> {
    if write(file, value.as_bytes())? == value.len() { Ok(()) } else { Err(Errno::IO) }
}

fn text(bytes: &[u8]) -> Result<String, Errno> {
    let text = std::str::from_utf8(bytes).map_err(|_| Errno::ILSEQ)?;
    Ok(text.trim_end().to_owned())
}
