//! Bytes that wait for somebody to take them. Nothing here blocks.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::io::Errno;

use super::RelayFault;

/// As much as the reader of these streams takes now; how much that was. What nobody takes any more is dropped.
pub(in crate::container) fn pour(
    to: &mut Option<OwnedFd>,
    waiting: &mut Vec<u8>,
) -> Result<usize, RelayFault> {
    let mut taken = 0;
    while !waiting.is_empty() {
        match to.as_ref().map_or(Ok(waiting.len()), |to| rustix::io::write(to, waiting)) {
            Ok(length) => {
                waiting.drain(..length);
                taken += length;
            }
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => {}
            Err(Errno::PIPE | Errno::CONNRESET | Errno::IO) => *to = None,
            Err(errno) => return Err(RelayFault::Relay(errno.into())),
        }
    }
    Ok(taken)
}

/// As much as the engine takes now.
pub(in crate::container) fn pour_to_engine(engine: &UnixStream, waiting: &mut Vec<u8>) {
    while !waiting.is_empty() {
        match rustix::io::write(engine, waiting) {
            Ok(length) => drop(waiting.drain(..length)),
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => {}
            // Its own end of the stream says so, or pid 1 is dead.
            Err(_gone) => waiting.clear(),
        }
    }
}
