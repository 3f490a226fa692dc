//! Whether a sandbox may have one more socket for routing messages.
//!
//! Zone: hostile; used by pid 1. What waits in such a socket no control group counts, and no limit is on their number but this one. Every
//! `socket` call for one waits until pid 1 has asked the kernel how many sockets, of whatever kind, the sandbox's own network namespace
//! has: it tells of these alone only once they were used. The arguments are numbers, judged by the filter, so a call that is let through
//! is the call that was heard of. Those that are let through at the same time may exceed the bound by as many as there are threads.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use crate::seccomp::arguments::{ANSWER_NOTICE, RECEIVE_NOTICE};

/// Listing interfaces takes one, for as long as that takes; a server with more connections than this cannot list them.
const MOST: u32 = 512;

/// Where the kernel says how many sockets this process's network namespace has.
#[derive(Debug)]
pub struct Table(OwnedFd);

/// The listener of a job's filter, and what it takes to answer.
#[derive(Debug)]
pub struct Counter {
    pub listener: OwnedFd,
    pub table: Table,
}

#[repr(C)]
#[derive(Default)]
struct Notice {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    architecture: u32,
    instruction: u64,
    arguments: [u64; 6],
}

#[repr(C)]
struct Answer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const CONTINUE: u32 = 1;

impl Table {
    /// By the name it has inside.
    pub fn open() -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open("/proc/self/net/sockstat", flags, Mode::empty())?))
    }

    pub fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// What cannot be read is too many.
    fn has_room(&self) -> bool {
        let mut text = [0; 256];
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(&self.0, &mut text, 0));
        let text = read.ok().and_then(|length| str::from_utf8(text.get(..length)?).ok());
        // `sockets: used 12` is all that is wanted of it.
        let used = text.and_then(|text| text.lines().next()?.rsplit(' ').next()?.parse::<u32>().ok());
        used.is_some_and(|used| used < MOST)
    }
}

impl Counter {
    /// Answers whoever asks. Nobody may, by now.
    pub fn answer(&self) -> io::Result<()> {
        let mut notice = Notice::default();
        // SAFETY: the request writes one `struct seccomp_notif`, 80 bytes, which `Notice` is laid out as; it has to be zero before.
        let heard = unsafe { libc::ioctl(self.listener.as_raw_fd(), RECEIVE_NOTICE.into(), &raw mut notice) };
        if let Err(fault) = crate::check(heard.into()) {
            return gone_is_fine(fault);
        }
        let (error, flags) = if self.table.has_room() { (0, CONTINUE) } else { (-libc::ENOMEM, 0) };
        let answer = Answer { id: notice.id, value: 0, error, flags };
        // SAFETY: the request reads one `struct seccomp_notif_resp`, 24 bytes, which `Answer` is laid out as.
        let told = unsafe { libc::ioctl(self.listener.as_raw_fd(), ANSWER_NOTICE.into(), &raw const answer) };
        crate::check(told.into()).map(|_| ()).or_else(gone_is_fine)
    }
}

/// A process that ended does not wait for an answer.
fn gone_is_fine(fault: io::Error) -> io::Result<()> {
    match fault.raw_os_error() {
        Some(libc::ENOENT | libc::EINTR | libc::EINPROGRESS) => Ok(()),
        _ => Err(fault),
    }
}

const _: () = assert!(size_of::<Notice>() == 80 && size_of::<Answer>() == 24);
