//! Descriptors by number: closing whole ranges.

use std::io;

/// Closes every descriptor from `first` upwards.
pub fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: close_range takes no pointers. The callers are single-purpose processes that own none of the closed
    // descriptors through an `OwnedFd` they still use.
    crate::check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) }).map(|_| ())
}
