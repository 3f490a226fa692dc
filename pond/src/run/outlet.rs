//! Hands bytes on to a reader who may stall, so that nothing else waits for them: no limit, no interrupt.
//!
//! What the kernel does not take at once (it is asked not to wait, which not every kind of file understands) a thread of its
//! own writes, because no other way is safe for a descriptor shared with other programs: its flags are theirs too, and a
//! terminal that says it takes bytes does not say how many. The thread starts with the first such byte, after pond has blocked
//! its signals. What waits for the reader is bounded by whoever looks at [`Outlet::room`] before taking more.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};

/// With this much waiting there is no room for more.
const FULL: usize = 256 * 1024;

/// How long a reader may take for the rest before anything else is asked.
const GRACE: Duration = Duration::from_secs(1);

pub(super) struct Outlet {
    to: Option<OwnedFd>,
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Readable while there is room.
    room: OwnedFd,
    /// Readable when the writer has gone.
    over: OwnedFd,
}

struct Queue {
    waiting: Vec<u8>,
    is_complete: bool,
    reader: Reader,
}

enum Reader {
    There,
    /// Nobody reads any more (`pond run … | head`, a closed window): what comes is dropped.
    Gone,
    Failed(io::Error),
}

/// How long to wait for a reader who stalls at the end.
#[derive(Debug, Clone, Copy)]
pub(super) enum Patience<'a> {
    /// The job was stopped, and so is waiting for those who watch it.
    Short,
    /// The job ended by itself: nothing is urgent until somebody interrupts.
    UntilInterrupted(BorrowedFd<'a>),
    /// What is signed says all of it, also of a job that was stopped: a reader who does not want it any more goes.
    UntilTaken,
}

/// What became of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivered {
    All,
    /// The reader stalled.
    NotAll,
    /// The reader's side failed, and got nothing from then on.
    Failed(Errno),
}

impl Outlet {
    /// Made without a thread; nothing blocks or is written before the first byte.
    pub(super) fn new(to: BorrowedFd<'_>) -> io::Result<Self> {
        let event = |value| eventfd(value, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let queue = Queue { waiting: Vec::new(), is_complete: false, reader: Reader::There };
        let shared =
            Shared { queue: Mutex::new(queue), changed: Condvar::new(), room: event(1)?, over: event(0)? };
        Ok(Self { to: Some(to.try_clone_to_owned()?), shared: Arc::new(shared) })
    }

    /// Readable while more may be taken; of the kernel's, so that it can be waited for together with the job.
    pub(super) fn room(&self) -> io::Result<OwnedFd> {
        self.shared.room.try_clone()
    }

    /// Whether it is known by now that nobody reads any more.
    pub(super) fn is_unread(&self) -> bool {
        match self.shared.lock().reader {
            Reader::Gone => true,
            Reader::There | Reader::Failed(_) => false,
        }
    }

    /// Queues `bytes` without waiting. A failure of the reader's side, other than its end, is told by the next call.
    pub(super) fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        let bytes = match &self.to {
            Some(to) if !bytes.is_empty() => match left_at_once(to, bytes) {
                Some(left) => left,
                None => {
                    self.shared.lock().reader = Reader::Gone;
                    return Ok(());
                }
            },
            Some(_) | None => bytes,
        };
        if bytes.is_empty() {
            return Ok(());
        }
        if let Some(to) = self.to.take() {
            let shared = Arc::clone(&self.shared);
            std::thread::Builder::new().name("outlet".to_owned()).spawn(move || shared.write_to(&to))?;
        }
        self.shared.add(bytes)
    }

    /// Writes `closing` after everything else and waits for the reader; a reader who stalls for too long gets `closing` alone,
    /// if anything.
    pub(super) fn finish(mut self, closing: &[u8], patience: Patience<'_>) -> io::Result<Delivered> {
        self.take(closing)?;
        if self.to.is_some() {
            return Ok(Delivered::All);
        }
        self.shared.complete();
        let is_over = match (self.shared.wait_for_end(None, Some(GRACE))?, patience) {
            (true, _) => true,
            (false, Patience::Short) => false,
            (false, Patience::UntilInterrupted(interrupt)) => {
                self.shared.wait_for_end(Some(interrupt), None)?
            }
            (false, Patience::UntilTaken) => self.shared.wait_for_end(None, None)?,
        };
        let mut queue = self.shared.lock();
        match std::mem::replace(&mut queue.reader, Reader::There) {
            Reader::Failed(fault) => Err(fault),
            Reader::Gone => Ok(Delivered::All),
            Reader::There if is_over => Ok(Delivered::All),
            Reader::There => {
                queue.waiting = closing.to_vec();
                Ok(Delivered::NotAll)
            }
        }
    }
}

impl Shared {
    /// A writer that panicked left a queue that is still a queue.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, bytes: &[u8]) -> io::Result<()> {
        let mut queue = self.lock();
        match std::mem::replace(&mut queue.reader, Reader::There) {
            Reader::There => {}
            Reader::Gone => {
                queue.reader = Reader::Gone;
                return Ok(());
            }
            Reader::Failed(fault) => return Err(fault),
        }
        queue.waiting.extend_from_slice(bytes);
        if queue.waiting.len() >= FULL {
            lower(&self.room)?;
        }
        self.changed.notify_one();
        Ok(())
    }

    fn complete(&self) {
        self.lock().is_complete = true;
        self.changed.notify_one();
    }

    /// The writer's life: until everything is written after the last byte was queued, or nobody reads.
    fn write_to(&self, to: &OwnedFd) {
        while let Some(bytes) = self.next() {
            let reader = match write_all(to, &bytes) {
                Ok(()) => continue,
                Err(Errno::PIPE | Errno::IO) => Reader::Gone,
                Err(errno) => Reader::Failed(errno.into()),
            };
            let mut queue = self.lock();
            queue.reader = reader;
            queue.waiting.clear();
            break;
        }
        // Both are counters that only this side raises; raising one cannot fail.
        if let Err(_never) = raise(&self.room) {}
        if let Err(_never) = raise(&self.over) {}
    }

    /// Everything that waits, as soon as anything does; nothing when there will be no more.
    fn next(&self) -> Option<Vec<u8>> {
        let mut queue = self.lock();
        while queue.waiting.is_empty() {
            if queue.is_complete {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if queue.waiting.len() >= FULL
            && let Err(_never) = raise(&self.room)
        {}
        Some(std::mem::take(&mut queue.waiting))
    }

    /// Whether the writer has gone, within this time and unless interrupted.
    fn wait_for_end(&self, interrupt: Option<BorrowedFd<'_>>, within: Option<Duration>) -> io::Result<bool> {
        let within = within.map(|time| Timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        let mut fds = vec![PollFd::new(&self.over, PollFlags::IN)];
        fds.extend(interrupt.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        loop {
            match poll(&mut fds, within.as_ref()) {
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(_) => return Ok(fds.first().is_some_and(|over| !over.revents().is_empty())),
            }
        }
    }
}

/// Writes what can be written without waiting and returns the rest; nothing when nobody reads. Whatever else is wrong, the writer
/// of the rest finds out.
fn left_at_once<'a>(to: &OwnedFd, bytes: &'a [u8]) -> Option<&'a [u8]> {
    // Where the descriptor stands, as a write does.
    const HERE: u64 = u64::MAX;
    match pwritev2(to, &[IoSlice::new(bytes)], HERE, ReadWriteFlags::NOWAIT) {
        Err(Errno::PIPE) => None,
        written => bytes.get(written.unwrap_or(0)..),
    }
}

fn write_all(to: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            // Somebody else who holds this descriptor asked it not to wait.
            Err(Errno::AGAIN) => drop(poll(&mut [PollFd::new(to, PollFlags::OUT)], None)?),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn raise(event: &impl AsFd) -> Result<(), Errno> {
    rustix::io::write(event, &1u64.to_ne_bytes()).map(drop)
}

fn lower(event: &impl AsFd) -> Result<(), Errno> {
    match rustix::io::read(event, &mut [0; size_of::<u64>()]) {
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(errno) => Err(errno),
    }
}
