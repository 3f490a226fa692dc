//! Descriptors by number: closing whole ranges; and what became of what was written through the file behind one.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

/// Closes every descriptor from `first` upwards.
pub fn close_from(first: u32) -> io::Result<()> {
    close_range(first, u32::MAX)
}

/// Closes every descriptor but these. For a process that never returns to code that owns one of the others.
pub fn close_all_but(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut numbers: Vec<u32> = kept.iter().filter_map(|fd| u32::try_from(fd.as_raw_fd()).ok()).collect();
    numbers.sort_unstable();
    let mut first = 0;
    for number in numbers {
        if first < number {
            close_range(first, number - 1)?;
        }
        first = number + 1;
    }
    close_from(first)
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: close_range takes no pointers. The callers are single-purpose processes that own none of the closed
    // descriptors through an `OwnedFd` they still use.
    crate::check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(|_| ())
}

/// The first thing that could not be written back since this descriptor was opened and was not told yet, by whomever it was
/// written. Starts no writing and waits only for what is under way.
pub fn writeback_fault(file: impl AsFd) -> io::Result<()> {
    const ALL: i64 = 0;
    let file = file.as_fd().as_raw_fd();
    // SAFETY: sync_file_range takes no pointers.
    let ret = unsafe { libc::sync_file_range(file, ALL, ALL, libc::SYNC_FILE_RANGE_WAIT_BEFORE) };
    crate::check(ret.into()).map(|_| ())
}

/// Closes a descriptor with the one call that takes, for a process whose filter leaves it no other: dropping one may also look
/// whether it was open.
pub fn close(fd: OwnedFd) {
    // SAFETY: `into_raw_fd` gave the descriptor up, so nobody else owns it, and it is closed once. That the call can fail
    // after closing makes no difference to anybody.
    unsafe { libc::close(fd.into_raw_fd()) };
}
