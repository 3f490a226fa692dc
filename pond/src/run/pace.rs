//! Reading a large result takes time: this says how far it is once that is longer than a second, and listens for an interrupt.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use pond_worker::collect::Progress;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::outlet::{Outlet, Patience};
use super::summary::{counted, size};

/// Nobody wonders what pond does before.
const QUIET: Duration = Duration::from_secs(1);
/// Between one line and the next.
const PAUSE: Duration = Duration::from_secs(5);
/// Between one look at the interrupt and the next.
const LOOK: Duration = Duration::from_millis(20);

pub(super) struct Pace<'a> {
    interrupt: Option<BorrowedFd<'a>>,
    next_look: Cell<Instant>,
    next_line: Cell<Instant>,
    /// Where to say it; whoever does not listen there keeps nothing from going on.
    to: Option<RefCell<Outlet>>,
}

impl<'a> Pace<'a> {
    /// `interrupt` is readable when somebody wants pond to stop, and no longer for what was heeded already.
    pub(super) fn new(interrupt: Option<BorrowedFd<'a>>, is_quiet: bool) -> io::Result<Self> {
        let now = Instant::now();
        let to = if is_quiet { None } else { Some(RefCell::new(Outlet::new(io::stderr().as_fd())?)) };
        Ok(Self { interrupt, next_look: Cell::new(now), next_line: Cell::new(now + QUIET), to })
    }

    pub(super) fn go_on(&self, progress: Progress) -> ControlFlow<()> {
        let now = Instant::now();
        if now >= self.next_line.get() {
            self.next_line.set(now + PAUSE);
            self.say(progress);
        }
        if now < self.next_look.get() {
            return ControlFlow::Continue(());
        }
        self.next_look.set(now + LOOK);
        let Some(interrupt) = self.interrupt else { return ControlFlow::Continue(()) };
        let mut asked = [PollFd::from_borrowed_fd(interrupt, PollFlags::IN)];
        match poll(&mut asked, Some(&Timespec::default())) {
            Ok(0) | Err(_) => ControlFlow::Continue(()),
            Ok(_) => ControlFlow::Break(()),
        }
    }

    fn say(&self, progress: Progress) {
        let Some(to) = &self.to else { return };
        let line = format!("pond: {} (Ctrl-C gives it up)\n", described(progress));
        if let Err(_deaf) = to.borrow_mut().take(line.as_bytes()) {}
    }

    /// Before anything else is said.
    pub(super) fn finish(self) {
        let said = self.to.map(|to| to.into_inner().finish(b"", Patience::Short));
        if let Some(Err(_deaf)) = said {}
    }
}

fn described(progress: Progress) -> String {
    match progress {
        Progress::Reading { entries, bytes } => {
            let entries = counted(usize::try_from(entries).unwrap_or(usize::MAX), "path");
            format!("reading what the job changed: {entries}, {} so far", size(bytes))
        }
        Progress::WritingPatch { done, of } => {
            format!("writing the patch: {done} of {}", counted(of, "file"))
        }
    }
}

/// Forgets the interrupts that were heeded already, so that the next one is a new one.
pub(super) fn forget(interrupt: BorrowedFd<'_>) {
    let mut heeded = [0; 1024];
    while rustix::io::read(interrupt, &mut heeded).is_ok_and(|length| length > 0) {}
}
