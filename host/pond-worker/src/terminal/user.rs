//! Holds a person's terminal in raw mode, and gives it back.
//!
//! Raw: keys go to the job as bytes, and the terminal of the job decides what they mean. The old modes return when this value
//! is dropped and when the process panics; a signal that ends pond must reach it as a descriptor, so that it ends by returning.
//! After SIGKILL nothing of ours runs: `stty sane` helps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::termios::{
    OptionalActions, QueueSelector, Termios, Winsize, tcflush, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr,
};

/// The size of a terminal that does not know its own.
const USUAL: Winsize = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };

#[derive(Debug, thiserror::Error)]
pub enum TerminalFault {
    #[error("reading the terminal's modes")]
    Read(#[source] io::Error),
    #[error("setting the terminal's modes")]
    Set(#[source] io::Error),
    #[error("listening for changes of the terminal")]
    Listen(#[source] io::Error),
    #[error("holding on to the terminal")]
    Hold(#[source] io::Error),
}

#[derive(Debug)]
pub struct UserTerminal {
    held: Arc<Held>,
    changes: OwnedFd,
}

#[derive(Debug)]
struct Held {
    terminal: OwnedFd,
    before: Termios,
}

impl UserTerminal {
    /// Takes the terminal over. Signals that should end pond must be blocked already.
    pub fn take(terminal: BorrowedFd<'_>) -> Result<Self, TerminalFault> {
        let terminal = terminal.try_clone_to_owned().map_err(TerminalFault::Hold)?;
        let before = tcgetattr(&terminal).map_err(|errno| TerminalFault::Read(errno.into()))?;
        let changes = pond_sys::signal::terminal_changes().map_err(TerminalFault::Listen)?;
        let held = Arc::new(Held { terminal, before });
        restore_on_panic(&held);
        let taken = Self { held, changes };
        taken.held.make_raw().map_err(TerminalFault::Set)?;
        Ok(taken)
    }

    /// Readable when the terminal's size may have changed, or its modes.
    pub fn changes(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }

    /// After a change: modes as they were taken, and the size as it is now.
    pub fn renew(&self) -> Result<Winsize, TerminalFault> {
        let mut discard = [0; 1024];
        match rustix::io::read(&self.changes, &mut discard) {
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(TerminalFault::Listen(errno.into())),
        }
        // A terminal that is gone is noticed by whoever reads from it.
        if self.held.is_ours()
            && let Err(_gone) = self.held.make_raw()
        {}
        Ok(Self::size_of(self.held.terminal.as_fd()))
    }

    /// A terminal's size, never empty.
    pub fn size_of(terminal: BorrowedFd<'_>) -> Winsize {
        let known = tcgetwinsize(terminal).ok().filter(|size| size.ws_row > 0 && size.ws_col > 0);
        known.unwrap_or(USUAL)
    }
}

impl Drop for UserTerminal {
    fn drop(&mut self) {
        self.held.restore();
    }
}

impl Held {
    fn make_raw(&self) -> io::Result<()> {
        let mut raw = self.before.clone();
        raw.make_raw();
        Ok(tcsetattr(&self.terminal, OptionalActions::Now, &raw)?)
    }

    /// What the terminal has answered and nobody has read is not for the next program to read as keys.
    fn restore(&self) {
        if self.is_ours() {
            if let Err(_gone) = tcflush(&self.terminal, QueueSelector::IFlush) {}
            if let Err(_gone) = tcsetattr(&self.terminal, OptionalActions::Now, &self.before) {}
        }
    }

    /// In the background the terminal belongs to another job of the shell, which has set its own modes.
    fn is_ours(&self) -> bool {
        tcgetpgrp(&self.terminal).map_or(true, |group| Some(group) == pond_sys::process::own_group())
    }
}

/// The release aborts on panic, so no destructor would run.
fn restore_on_panic(held: &Arc<Held>) {
    let held = Arc::downgrade(held);
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if let Some(held) = held.upgrade() {
            held.restore();
        }
        previous(panic);
    }));
}

#[cfg(test)]
mod tests {
    //! The terminal is given back on every way out that code of ours can see.
    use super::*;
    use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
    use rustix::termios::{LocalModes, tcsetwinsize};
    use std::sync::Mutex;

    /// A panic in one test would give back the terminals of all.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let master = openpt(flags).unwrap();
        unlockpt(&master).unwrap();
        let terminal = ioctl_tiocgptpeer(&master, flags).unwrap();
        (master, terminal)
    }

    fn echoes(terminal: &OwnedFd) -> bool {
        tcgetattr(terminal).unwrap().local_modes.contains(LocalModes::ECHO)
    }

    fn text(terminal: &OwnedFd) -> String {
        format!("{:?}", tcgetattr(terminal).unwrap())
    }

    #[test]
    fn modes_return_when_the_value_goes() {
        let _turn = ONE_AT_A_TIME.lock().unwrap();
        let (_master, terminal) = pair();
        let before = text(&terminal);
        let taken = UserTerminal::take(terminal.as_fd()).unwrap();
        assert!(!echoes(&terminal));
        drop(taken);
        assert_eq!(text(&terminal), before);
    }

    #[test]
    fn modes_return_on_a_panic_before_any_destructor() {
        let _turn = ONE_AT_A_TIME.lock().unwrap();
        let (_master, terminal) = pair();
        let before = text(&terminal);
        let taken = UserTerminal::take(terminal.as_fd()).unwrap();
        assert!(std::thread::spawn(|| panic!("on purpose")).join().is_err());
        assert_eq!(text(&terminal), before);
        drop(taken);
    }

    #[test]
    fn unread_input_is_not_left_for_the_next_program() {
        let (master, terminal) = pair();
        let taken = UserTerminal::take(terminal.as_fd()).unwrap();
        rustix::io::write(&master, b"\x1b[12;40R").unwrap();
        wait_for_input(&terminal);
        drop(taken);
        assert_eq!(rustix::io::ioctl_fionread(&terminal).unwrap(), 0);
    }

    fn wait_for_input(terminal: &OwnedFd) {
        let mut ready = [rustix::event::PollFd::new(terminal, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut ready, None).unwrap();
    }

    #[test]
    fn an_unknown_size_is_the_usual_one() {
        let (_master, terminal) = pair();
        assert_eq!(UserTerminal::size_of(terminal.as_fd()).ws_col, 80);
        let wide = Winsize { ws_row: 50, ws_col: 132, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, wide).unwrap();
        assert_eq!(UserTerminal::size_of(terminal.as_fd()).ws_col, 132);
    }
}
