//! The job's copy on its way into a container that shares no directory with this host, and what became of it on its way out.
//!
//! Zone: host. What goes in is the same view that a bound container has, read from the same overlay. What comes out was made in
//! the hostile zone: it is compared with what went in and written into the same upper layer that an overlay would have written,
//! so that whoever collects a result cannot tell the two ways apart.

mod incoming;
mod outgoing;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use pond_policy::limits::Limits;
use pond_wire::contained::Kind;
use pond_wire::jail::{Report, Step, TmpfsCap};
use pond_wire::tree::{MAX_DEPTH, MAX_FILE, TreeCaps, TreeFault};
use sha2::{Digest, Sha256};

pub(super) use incoming::Incoming;
pub(super) use outgoing::Readers;
use outgoing::send;

use super::frames::Frames;

/// What may be in holes beyond the quota: as much as a result may have.
const HOLES: u64 = 4 << 30;

#[derive(Debug, thiserror::Error)]
pub enum TransferFault {
    #[error("reading {path} of the checkout")]
    Read { path: String, source: io::Error },
    #[error("{0} of the checkout changed while it was read; run again with --snapshot")]
    Changed(String),
    #[error("{0} of the checkout lies more than {MAX_DEPTH} deep")]
    Depth(String),
    #[error("{0} of the checkout is larger than a file may be that travels: {MAX_FILE} bytes")]
    Size(String),
    #[error(
        "the checkout has more than {0} entries, which is as many as the job's copy may have on this backend"
    )]
    Entries(u64),
    #[error(
        "the checkout has more than {} MiB, which is the room for the job's copy on this backend: half of its memory; raise \
         --memory", .0 >> 20
    )]
    Bytes(u64),
    #[error("sending the checkout into the container")]
    Send(#[source] io::Error),
    #[error("could not {}", .step.describe())]
    Step { step: Step, source: io::Error },
    #[error("whoever unpacks the checkout in the container said nothing that can be understood")]
    Unclear,
    #[error("the container sent something that is no tree")]
    Tree(#[from] TreeFault),
    #[error("keeping what the container sent")]
    Keep(#[source] io::Error),
    #[error("the container ended before what the job wrote was out of it")]
    Unfinished,
    #[error("what the job wrote was not out of the container within {0} s")]
    TooSlow(u64),
    #[error("nothing more of what the job wrote came out of the container for {0} s")]
    Stalled(u64),
}

impl TransferFault {
    /// A socket that was waited for long enough says the same as one that would have to be waited for.
    fn sending(fault: io::Error) -> Self {
        let is_late = fault.kind() == io::ErrorKind::WouldBlock;
        Self::Send(if is_late { io::ErrorKind::TimedOut.into() } else { fault })
    }
}

/// How long whoever unpacks may take over one piece.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends a directory to the process at the other end, which unpacks it and says so.
pub(super) fn deliver(
    (mut stream, early): (UnixStream, Vec<u8>),
    root: &OwnedFd,
    readers: Readers,
    caps: TreeCaps,
) -> Result<Sent, TransferFault> {
    stream.set_nonblocking(false).map_err(TransferFault::Send)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(TransferFault::Send)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(TransferFault::Send)?;
    match send(root, readers, caps, &mut stream) {
        // The other end has gone before it had everything, and may have said why.
        Err(TransferFault::Send(fault)) => match answer(&mut stream, &early) {
            Ok(Report::Failed { step, errno }) => Err(refused(step, errno)),
            Ok(_) | Err(_) => Err(TransferFault::Send(fault)),
        },
        Err(fault) => Err(fault),
        Ok(sent) => match answer(&mut stream, &early)? {
            Report::Prepared => Ok(sent),
            Report::Failed { step, errno } => Err(refused(step, errno)),
            Report::Started
            | Report::Doors
            | Report::Exited { .. }
            | Report::Signaled { .. }
            | Report::Serving
            | Report::Began
            | Report::Connected => Err(TransferFault::Unclear),
        },
    }
}

fn refused(step: Step, errno: i32) -> TransferFault {
    TransferFault::Step { step, source: io::Error::from_raw_os_error(errno) }
}

/// What the other end says.
fn answer(stream: &mut UnixStream, early: &[u8]) -> Result<Report, TransferFault> {
    let mut frames = Frames::default();
    frames.push(early).map_err(|_| TransferFault::Unclear)?;
    let mut piece = [0; 256];
    loop {
        match frames.next().map_err(|_| TransferFault::Unclear)? {
            Some((Kind::Report, payload)) => {
                return Report::decode(&payload).map_err(|_| TransferFault::Unclear);
            }
            Some(_) => return Err(TransferFault::Unclear),
            None => {}
        }
        let length = stream.read(&mut piece).map_err(TransferFault::sending)?;
        if length == 0 {
            return Err(TransferFault::Unclear);
        }
        frames.push(piece.get(..length).unwrap_or_default()).map_err(|_| TransferFault::Unclear)?;
    }
}

/// The room for the job's copy, and for its home: memory, charged to the job, so no more than half and a quarter of that.
pub(super) fn rooms(limits: Limits) -> [TmpfsCap; 2] {
    [2, 4].map(|share| TmpfsCap {
        bytes: limits.disk.bytes.min(limits.memory.bytes() / share),
        inodes: limits.disk.inodes,
    })
}

/// What may come out of such a room.
pub(super) fn caps_of(room: TmpfsCap) -> TreeCaps {
    TreeCaps { entries: room.inodes, bytes: room.bytes.saturating_add(HOLES) }
}

/// What went in, by name.
pub(super) type Sent = BTreeMap<Vec<u8>, Node>;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Node {
    Directory(Sent),
    Leaf(Leaf),
}

/// A leaf, as far as a result can tell it from another.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Leaf {
    File { executable: bool, sha256: [u8; 32] },
    Link(Vec<u8>),
    Fifo,
    Socket,
}

impl Leaf {
    /// As a result knows a file: executable if its owner may execute it.
    fn file(mode: u16, digest: Sha256) -> Self {
        Self::File { executable: mode & 0o100 != 0, sha256: digest.finalize().into() }
    }
}

/// For a person to read.
fn shown(path: &[u8]) -> String {
    std::path::Path::new(std::ffi::OsStr::from_bytes(path)).display().to_string().escape_debug().to_string()
}

#[cfg(test)]
mod tests;
