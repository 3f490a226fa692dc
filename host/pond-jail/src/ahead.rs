//! The part of the next sandbox that can be made before anybody asks for one: namespaces that hold nothing of the host, and a
//! process in them that has done what needs no plan.
//!
//! Zone: privileged, before anything hostile exists. Making a network takes the kernel as long as everything else a launch makes
//! together; here it does so while whoever will ask still reads its command line. That process bears pid 1 of the sandbox, as a child
//! of the launcher, in the control group it is told, and ends. It ends as well when the launcher does.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pond_sys::charged::fork_on_own_account;
use pond_sys::process::{Child, Fork, Namespaces, exit_now, fork_into};
use pond_wire::jail::{Report, Step};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::enter::tell;
use crate::fault::{At, Failure};
use crate::ground::{GROUND, Standing};
use crate::inside;

const STEP: Step = Step::CreateNamespaces;
/// The launcher's word that there is something to bear: the child's end of its socket travels along, and its control group if
/// it has one.
const BEAR: u8 = 1;

/// Namespaces without a sandbox. Letting go of this ends the process that waits in them, and waits until it is gone.
pub(crate) struct Ahead {
    to_it: Option<OwnedFd>,
    /// Absent once it has done its work and ends by itself.
    process: Option<Child>,
}

/// A child that is being made.
pub(crate) struct Expected(Ahead);

/// The same with our end of its socket, which it waits at for its orders. It has run nothing of a job; letting go of this ends it.
pub(crate) struct Born {
    pub(crate) child: Expected,
    pub(crate) to_it: OwnedFd,
}

impl Ahead {
    pub(crate) fn make() -> Result<Self, Failure> {
        let (ours, theirs) = pond_sys::socket::pair().at(STEP)?;
        match fork_on_own_account(Namespaces::Outer).at(STEP)? {
            Fork::Child => {
                drop(ours);
                // Whoever waits long must not hold what others wait to see closed: another's socket, a lifeline, a disk.
                let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
                let kept = [streams.as_slice(), &[theirs.as_fd()]].concat();
                match pond_sys::fd::close_all_but(&kept) {
                    Ok(()) => wait(theirs),
                    Err(_fault) => exit_now(1),
                }
            }
            Fork::Parent(process) => Ok(Self { to_it: Some(ours), process: Some(process) }),
        }
    }

    /// The child's end of its socket goes to it, and the control group it is born in.
    pub(crate) fn bear(self, socket: OwnedFd, group: Option<&OwnedFd>) -> Result<Expected, Failure> {
        let descriptors: Vec<_> = [&socket].into_iter().chain(group).map(AsFd::as_fd).collect();
        self.tell(BEAR, &descriptors)?;
        Ok(Expected(self))
    }

    pub(crate) fn tell(&self, word: u8, descriptors: &[BorrowedFd<'_>]) -> Result<(), Failure> {
        match pond_sys::socket::send(self.socket()?, &[word], descriptors) {
            // It has given up, and its own word says why.
            Err(fault) if fault.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other.at(STEP),
        }
    }

    pub(crate) fn process(&self) -> Result<&Child, Failure> {
        self.process.as_ref().ok_or(Failure { step: STEP, errno: Errno::CHILD })
    }

    /// Whether it has said something before it was to bear anything, which is why it cannot.
    pub(crate) fn has_given_up(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Some(socket) = &self.to_it else { return true };
        poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&now)).map_or(true, |ready| ready > 0)
    }

    fn socket(&self) -> Result<&OwnedFd, Failure> {
        self.to_it.as_ref().ok_or(Failure { step: STEP, errno: Errno::BADF })
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        drop(self.to_it.take());
        if let Some(process) = self.process.take() {
            await_end(&process);
        }
    }
}

impl Born {
    /// In this control group, if there is one to be born in.
    pub(crate) fn of(ahead: Ahead, group: Option<&OwnedFd>) -> Result<Self, Failure> {
        let (to_it, theirs) = pond_sys::socket::pair().at(STEP)?;
        Ok(Self { child: ahead.bear(theirs, group)?, to_it })
    }

    /// Whether anybody holds the other end of its socket: itself, or who is about to bear it.
    pub(crate) fn is_there(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut end = [PollFd::new(&self.to_it, PollFlags::empty())];
        poll(&mut end, Some(&now)).is_ok_and(|_| end.iter().all(|end| end.revents().is_empty()))
    }

    /// For one that nobody wants any more.
    pub(crate) fn send_away(self) {
        drop(self.to_it);
        self.child.send_away();
    }
}

fn await_end(process: &Child) {
    if let Err(_reaped) = waitid(WaitId::PidFd(process.pidfd.as_fd()), WaitIdOptions::EXITED) {}
}

impl Expected {
    pub(crate) fn arrive(mut self) -> Result<Child, Failure> {
        let lost = Failure { step: STEP, errno: Errno::CONNRESET };
        let mut said = [0; Report::BYTES];
        let socket = self.0.socket()?;
        let heard = match pond_sys::socket::receive(socket, &mut said) {
            // It gave up without hearing our last word. That is told once, before what it had still said.
            Err(fault) if fault.kind() == std::io::ErrorKind::ConnectionReset => {
                pond_sys::socket::receive(socket, &mut said)
            }
            other => other,
        };
        let (length, descriptors) = heard.at(STEP)?;
        let said = said.get(..length).unwrap_or_default();
        match (descriptors.into_iter().next(), Report::decode(said)) {
            (Some(pidfd), _) => {
                let number = said.try_into().map(i32::from_ne_bytes).map_err(|_| lost)?;
                self.0.process = None;
                Ok(Child { pid: Pid::from_raw(number).ok_or(lost)?, pidfd })
            }
            (None, Ok(Report::Failed { step, errno })) => {
                Err(Failure { step, errno: Errno::from_raw_os_error(errno) })
            }
            (None, _) => Err(lost),
        }
    }

    /// For a child that nobody wants any more, whose socket is closed.
    pub(crate) fn send_away(self) {
        if let Ok(child) = self.arrive() {
            await_end(&child);
        }
    }
}

/// All capabilities, but only over namespaces of its own.
fn wait(launcher: OwnedFd) -> ! {
    let ready = inside::get_ready();
    let mut standing = None;
    loop {
        let mut word = [0; 8];
        let (said, mut descriptors) = match pond_sys::socket::receive(&launcher, &mut word) {
            Ok((1, descriptors)) => (word.first().copied(), descriptors.into_iter()),
            // Nobody wants it.
            Ok(_) | Err(_) => exit_now(0),
        };
        let Some(first) = descriptors.next() else { exit_now(1) };
        match said {
            Some(GROUND) if standing.is_none() => match Standing::make(&first, &launcher) {
                Ok(made) => standing = Some(made),
                Err(failure) => give_up(&launcher, failure),
            },
            Some(BEAR) => bear(launcher, &first, descriptors.next().as_ref(), ready, standing),
            _ => exit_now(1),
        }
    }
}

fn bear(
    launcher: OwnedFd,
    socket: &OwnedFd,
    group: Option<&OwnedFd>,
    ready: Result<inside::Ready, Failure>,
    standing: Option<Standing>,
) -> ! {
    let namespaces = if standing.is_some() { Namespaces::Pids } else { Namespaces::Inner };
    match fork_into(namespaces, group.map(AsFd::as_fd)).at(STEP) {
        Ok(Fork::Child) => {
            // Or the launcher would not hear that nobody is left to say anything.
            drop(launcher);
            inside::main(socket, ready, standing)
        }
        // The number of a process with its descriptor.
        Ok(Fork::Parent(child)) => {
            let number = child.pid.as_raw_pid().to_ne_bytes();
            let said = pond_sys::socket::send(&launcher, &number, &[child.pidfd.as_fd()]);
            exit_now(said.map_or(1, |()| 0))
        }
        Err(failure) => give_up(&launcher, failure),
    }
}

fn give_up(launcher: &OwnedFd, failure: Failure) -> ! {
    tell(launcher.as_fd(), failure.report(), &[]);
    exit_now(1)
}

#[cfg(test)]
mod tests {
    //! What is made ahead is used once or not at all, and nothing of it stays.
    use std::fs;

    use super::*;

    #[test]
    fn what_nobody_asks_for_ends_with_its_owner() {
        let ahead = Ahead::make().unwrap();
        let number = ahead.process.as_ref().unwrap().pid.as_raw_pid();
        let is_there = || fs::exists(format!("/proc/{number}")).unwrap();
        assert!(is_there());
        for (name, is_new) in [("user", true), ("net", true), ("ipc", true), ("uts", true), ("mnt", false)] {
            let [own, made] = ["self".to_owned(), number.to_string()]
                .map(|process| fs::read_link(format!("/proc/{process}/ns/{name}")).unwrap());
            assert_eq!(own != made, is_new, "{name}");
        }
        drop(ahead);
        assert!(!is_there());
    }

    #[test]
    fn it_holds_nothing_of_the_launcher() {
        let (ours, theirs) = pond_sys::socket::pair().unwrap();
        let _ahead = Ahead::make().unwrap();
        drop(ours);
        // Were there a copy, this would wait for ever.
        assert_eq!(rustix::io::read(&theirs, &mut [0; 1]), Ok(0));
    }

    #[test]
    fn a_child_is_born_in_the_same_namespaces_and_ends_with_its_socket() {
        let ahead = Ahead::make().unwrap();
        let network =
            |process: &Child| fs::read_link(format!("/proc/{}/ns/net", process.pid.as_raw_pid())).unwrap();
        let expected = network(ahead.process.as_ref().unwrap());
        let (ours, theirs) = pond_sys::socket::pair().unwrap();
        let child = ahead.bear(theirs, None).unwrap().arrive().unwrap();
        assert_eq!(network(&child), expected);
        let status = fs::read_to_string(format!("/proc/{}/status", child.pid.as_raw_pid())).unwrap();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
        assert_eq!(field("PPid:\t"), std::process::id().to_string());
        assert!(field("NSpid:\t").ends_with("\t1"), "{status}");
        drop(ours);
        waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED).unwrap();
    }

    #[test]
    fn a_child_that_nobody_wants_is_gone_when_it_was_sent_away() {
        let ahead = Ahead::make().unwrap();
        let (ours, theirs) = pond_sys::socket::pair().unwrap();
        let expected = ahead.bear(theirs, None).unwrap();
        drop(ours);
        expected.send_away();
        // Only whoever bore it may be on its last steps.
        let left = std::iter::from_fn(|| waitid(WaitId::All, WaitIdOptions::EXITED).ok().flatten()).count();
        assert!(left <= 1, "{left}");
    }

    #[test]
    fn a_group_that_is_none_is_an_error_and_no_child() {
        let ahead = Ahead::make().unwrap();
        let (_ours, theirs) = pond_sys::socket::pair().unwrap();
        let no_group = OwnedFd::from(fs::File::open("/").unwrap());
        let failure = ahead.bear(theirs, Some(&no_group)).unwrap().arrive().err().unwrap();
        assert_eq!((failure.step, failure.errno), (STEP, Errno::BADF));
    }
}
