//! Fills an empty directory with the tree that pond sends: the job's copy of the checkout, before there is a job.
//!
//! Zone: hostile, and no control: it runs in the container without capabilities, as whoever shall own the copy. Everything is made
//! anew by descriptor; what is already there is a refusal.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pond_sys::process::exit_now;
use pond_wire::jail::{Report, Step};
use pond_wire::tree::{Decoder, Entry, Event, Moment, TreeCaps};
use rustix::fs::{
    CWD, FileType, Mode, OFlags, Timespec, Timestamps, fchmod, futimens, mkdirat, mknodat, openat, symlinkat,
};
use rustix::io::Errno;

use crate::{tell, write_all};

const PIECE: usize = 64 << 10;
/// Pond bounds what it sends; the file system it goes to has its own quota.
const CAPS: TreeCaps = TreeCaps { entries: u64::MAX, bytes: u64::MAX };
const NEW_FILE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// From standard input into `target`; what came of it is one report on standard output.
pub fn unpack(target: &str) -> ! {
    let (Ok(from), Ok(to)) = (
        rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3),
        rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3),
    ) else {
        exit_now(1)
    };
    match fill(&from, target) {
        Ok(()) => tell(&to, Report::Prepared),
        Err(errno) => tell(&to, Report::Failed { step: Step::Unpack, errno: errno.raw_os_error() }),
    }
    exit_now(0)
}

fn fill(from: &OwnedFd, target: &str) -> Result<(), Errno> {
    let root = openat(CWD, target, DIRECTORY, Mode::empty())?;
    let mut unpack = Unpack { open: vec![root], file: None };
    let mut decoder = Decoder::new(CAPS);
    let mut piece = vec![0; PIECE];
    while !decoder.is_over() {
        match rustix::io::read(from, &mut piece) {
            Ok(0) => return Err(Errno::PIPE),
            Ok(length) => decoder.push(piece.get(..length).unwrap_or_default()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        while let Some(event) = decoder.next_event().map_err(|_| Errno::BADMSG)? {
            unpack.take(event)?;
        }
    }
    Ok(())
}

/// A file whose content is not all there.
struct Unfinished {
    file: OwnedFd,
    mode: Mode,
    modified: Moment,
    left: u64,
}

struct Unpack {
    /// The directories that were entered, the last one last.
    open: Vec<OwnedFd>,
    file: Option<Unfinished>,
}

impl Unpack {
    fn here(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.open.last().map(AsFd::as_fd).ok_or(Errno::BADMSG)
    }

    fn take(&mut self, event: Event) -> Result<(), Errno> {
        match event {
            Event::Content(bytes) => self.content(&bytes),
            Event::Entry(entry) => self.entry(entry),
            Event::End => Ok(()),
        }
    }

    fn entry(&mut self, entry: Entry) -> Result<(), Errno> {
        match entry {
            Entry::Enter { name } => {
                mkdirat(self.here()?, &name, Mode::RWXU)?;
                let below = openat(self.here()?, &name, DIRECTORY, Mode::empty())?;
                self.open.push(below);
                Ok(())
            }
            Entry::Leave { mode } => {
                let directory = self.open.pop().ok_or(Errno::BADMSG)?;
                fchmod(&directory, Mode::from_raw_mode(mode.into()))
            }
            Entry::File { name, mode, modified, size } => {
                let file = openat(self.here()?, &name, NEW_FILE, Mode::RUSR | Mode::WUSR)?;
                let mode = Mode::from_raw_mode(mode.into());
                self.file = Some(Unfinished { file, mode, modified, left: size });
                self.finish()
            }
            Entry::Link { name, target } => symlinkat(&target, self.here()?, &name),
            Entry::Fifo { name } => self.special(&name, FileType::Fifo),
            Entry::Socket { name } => self.special(&name, FileType::Socket),
            // Pond refuses a checkout with one.
            Entry::Large { .. } => Err(Errno::FBIG),
        }
    }

    fn special(&self, name: &[u8], kind: FileType) -> Result<(), Errno> {
        mknodat(self.here()?, name, kind, Mode::RUSR | Mode::WUSR, 0)
    }

    fn content(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let Some(unfinished) = &mut self.file else { return Err(Errno::BADMSG) };
        write_all(&unfinished.file, bytes)?;
        unfinished.left = unfinished.left.saturating_sub(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.finish()
    }

    fn finish(&mut self) -> Result<(), Errno> {
        let Some(Unfinished { file, mode, modified, .. }) = self.file.take_if(|file| file.left == 0) else {
            return Ok(());
        };
        let modified = Timespec { tv_sec: modified.seconds, tv_nsec: modified.nanos.into() };
        futimens(&file, &Timestamps { last_access: modified, last_modification: modified })?;
        fchmod(&file, mode)
    }
}
