//! A launched job: its streams, how it ends, and the certainty that nothing of it is left.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;

use pond_wire::contained::WindowSize;
use pond_wire::jail::{Duty, JOB_ID, Report, Step, Usage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::termios::{Winsize, tcsetwinsize};

use super::cgroup::{self, CgroupFault, JobCgroup};
use super::ids::IdRange;
use super::launch::Ends;
use super::launcher::{LauncherFault, next_report};
use super::upper::{Room, Upper};
use crate::container::{Attended, ContainerFault, EngineFault, Isolation, TransferFault};

#[derive(Debug, thiserror::Error)]
pub enum RunningFault {
    #[error(transparent)]
    Report(#[from] LauncherFault),
    #[error("letting the job begin")]
    Go(#[source] std::io::Error),
    #[error("killing the job")]
    Kill(#[source] std::io::Error),
    #[error("giving the job's terminal another size")]
    Resize(#[source] std::io::Error),
    #[error(transparent)]
    Cgroup(#[from] CgroupFault),
    #[error(transparent)]
    Container(#[from] Box<ContainerFault>),
    #[error("the thread that stays with the container ended badly")]
    Attendant,
    #[error("watching the job's disk")]
    Disk(#[source] std::io::Error),
    #[error("the job's disk was announced without the job's view of it")]
    NoView,
}

/// Our ends of the job's pipes.
#[derive(Debug)]
pub struct Streams {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// How a job ended, by the word of pond's own processes and never of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Exited {
        code: u8,
        usage: Usage,
    },
    Signaled {
        signal: u8,
        usage: Usage,
    },
    /// A step of the launch failed; the command did not run.
    NotLaunched {
        step: Step,
        errno: i32,
    },
    /// The launcher or init was killed while the sandbox was made; the command did not run.
    NotBegun,
    /// Init was killed before it could report: the job is dead, and the control group says why.
    Lost,
}

/// A job between its launch and its end. Dropping it ends the job: the lifeline closes with it.
#[derive(Debug)]
pub struct Running {
    /// Until they are taken; a job with a terminal has none.
    pub streams: Option<Streams>,
    /// The master of the job's terminal, or a stream that stands for one inside a container, from its arrival until it is taken.
    pub terminal: Option<OwnedFd>,
    /// The root of a sandbox that serves, from its arrival until it is taken.
    pub(super) root: Option<OwnedFd>,
    /// Where it is inside, where it is not all of what programs see.
    pub(crate) root_at: &'static str,
    /// Pid 1 takes requests.
    is_serving: bool,
    duty: Duty,
    /// The listeners of the job's gateway, from their arrival until they are taken.
    pub doors: Option<Vec<OwnedFd>>,
    report: OwnedFd,
    init: Option<OwnedFd>,
    upper: Option<Upper>,
    ending: Option<Ending>,
    lifeline: OwnedFd,
    /// After the lifeline: letting go of a container waits until it has gone.
    hold: Hold,
    range: Option<IdRange>,
}

/// What holds everything of the job, and is the last to say what it used.
#[derive(Debug)]
enum Hold {
    Group(JobCgroup),
    /// Killed with its first process; whoever attends it sees it removed.
    Container(Attendant, Death),
}

/// How a container's job is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    /// With its pid 1.
    AtOnce,
    /// By its pid 1, which then hands over what it wrote: whoever attends it is told, and kills both if that takes too long.
    HandOver,
}

/// What whoever attends a job is told, by its first byte.
pub(crate) mod word {
    /// Let it begin; a native job's pid 1 hears nothing else.
    pub(crate) const GO: u8 = 1;
    /// End it, and keep what it made.
    pub(crate) const STOP: u8 = 2;
    /// Its terminal has another size, which follows.
    pub(crate) const SIZE: u8 = 3;
}

/// The thread that stays with a container to its end. Dropping this waits for it.
#[derive(Debug)]
struct Attendant(Option<JoinHandle<Result<Attended, ContainerFault>>>);

impl Attendant {
    fn finish(mut self) -> Result<Attended, RunningFault> {
        let joined = self.0.take().and_then(|thread| thread.join().ok()).ok_or(RunningFault::Attendant)?;
        Ok(joined.map_err(Box::new)?)
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        // What it could not remove, the record still names.
        if let Some(Err(_panicked)) = self.0.take().map(JoinHandle::join) {}
    }
}

/// A job that is over and gone.
#[derive(Debug)]
pub struct Over {
    pub ending: Ending,
    pub usage: cgroup::Usage,
    /// What was seen of a container's kernel before the job began.
    pub isolation: Option<Isolation>,
    /// Why what a container's job wrote did not all come out: then there is nothing to collect.
    pub lost: Option<TransferFault>,
    /// Why an engine did not remove the job's container; nothing in it is alive, and somebody has to remove it later.
    pub left: Option<EngineFault>,
    /// The engine of the job's container went while the job ran, and the job with it.
    pub is_cut_off: bool,
    /// The upper layer of the job's writable view, if it got that far.
    pub upper: Option<Upper>,
    /// Free room of its `/tmp` at its end; nothing of a container's.
    pub tmp: Option<Room>,
    /// What init may still be on its way out of.
    pub remains: Option<Remains>,
}

/// Groups in which nothing is left but init, which takes its namespaces apart. Letting go kills and removes as well, and says
/// nothing.
#[derive(Debug)]
pub struct Remains {
    init: Option<OwnedFd>,
    group: JobCgroup,
    _range: Option<IdRange>,
}

impl Remains {
    /// Makes sure that nothing is left.
    pub fn remove(self) -> Result<(), RunningFault> {
        if let Some(init) = &self.init {
            await_death(init);
        }
        self.group.kill()?;
        Ok(self.group.remove()?)
    }
}

/// Init lets go of its socket a moment before it leaves its groups. Not a proof that it did: removing them is.
fn await_death(init: &OwnedFd) {
    let moment = Timespec { tv_sec: 1, tv_nsec: 0 };
    if let Err(_looked_at_again) = poll(&mut [PollFd::new(init, PollFlags::IN)], Some(&moment)) {}
}

/// Whether a failure only says that the process at the other end had gone.
fn is_echo(errno: i32) -> bool {
    [Errno::PIPE, Errno::CONNRESET, Errno::SRCH].contains(&Errno::from_raw_os_error(errno))
}

/// How it ended, once everybody has said what they had to say: an echo of which nobody told the cause is a killed process. The step
/// that heard it did not fail, and what helps against its failing does not help here.
fn settled(ending: Ending) -> Ending {
    match ending {
        Ending::NotLaunched { errno, .. } if is_echo(errno) => Ending::NotBegun,
        Ending::NotLaunched { .. }
        | Ending::Exited { .. }
        | Ending::Signaled { .. }
        | Ending::NotBegun
        | Ending::Lost => ending,
    }
}

/// The first failure is the cause, unless it only says that the other process had gone: then that one's own word is.
fn cause(earlier: Option<Ending>, step: Step, errno: i32) -> Ending {
    match earlier {
        Some(Ending::NotLaunched { errno: echo, .. }) if is_echo(echo) && !is_echo(errno) => {
            Ending::NotLaunched { step, errno }
        }
        Some(earlier) => earlier,
        None => Ending::NotLaunched { step, errno },
    }
}

impl Running {
    pub(super) fn new(ends: Ends, group: JobCgroup, range: Option<IdRange>, duty: Duty) -> Self {
        Self {
            streams: ends.streams,
            terminal: None,
            root: None,
            root_at: "",
            is_serving: false,
            duty,
            doors: None,
            report: ends.report,
            init: None,
            upper: None,
            ending: None,
            hold: Hold::Group(group),
            lifeline: ends.lifeline,
            range,
        }
    }

    /// A job in a container, whose first process is already there.
    pub(crate) fn contained(
        ends: Ends,
        init: OwnedFd,
        attendant: JoinHandle<Result<Attended, ContainerFault>>,
        death: Death,
        range: IdRange,
        duty: Duty,
    ) -> Self {
        Self {
            streams: ends.streams,
            terminal: None,
            root: None,
            root_at: "",
            is_serving: false,
            duty,
            doors: None,
            report: ends.report,
            init: Some(init),
            upper: None,
            ending: None,
            lifeline: ends.lifeline,
            hold: Hold::Container(Attendant(Some(attendant)), death),
            range: Some(range),
        }
    }

    /// Readable when there is a report to take.
    pub fn reports(&self) -> BorrowedFd<'_> {
        self.report.as_fd()
    }

    /// Takes one report. Returns how the job ended once launcher and init have both let go.
    pub fn take_report(&mut self) -> Result<Option<Ending>, RunningFault> {
        match next_report(&self.report)? {
            None => {
                // The upper layer is announced before the job is forked, so without one there was none.
                let unsaid = if self.upper.is_some() { Ending::Lost } else { Ending::NotBegun };
                let ending = self.ending.unwrap_or(unsaid);
                Ok(Some(match &self.hold {
                    Hold::Group(_) => settled(ending),
                    // Whoever attends a container says itself what became of it.
                    Hold::Container(..) => ending,
                }))
            }
            Some((report, descriptors)) => {
                self.note(report, descriptors)?;
                Ok(None)
            }
        }
    }

    fn note(&mut self, report: Report, descriptors: Vec<OwnedFd>) -> Result<(), RunningFault> {
        let mut descriptors = descriptors.into_iter();
        match report {
            Report::Started => self.init = descriptors.next(),
            Report::Doors => self.doors = Some(descriptors.collect()),
            Report::Prepared => {
                let (layer, view) = descriptors.next().zip(descriptors.next()).ok_or(RunningFault::NoView)?;
                if let Hold::Group(group) = &self.hold {
                    group.hold_disk(layer.as_fd())?;
                }
                // A container's are its engine's.
                let mounts = match &self.hold {
                    Hold::Group(_) => Some(descriptors.next().ok_or(RunningFault::NoView)?),
                    Hold::Container(..) => None,
                };
                let (upper, third) = match self.duty {
                    Duty::Once => (Upper::new(layer, view, mounts), &mut self.terminal),
                    Duty::Serve => (Upper::kept(layer, view, mounts), &mut self.root),
                };
                self.upper = Some(upper.map_err(RunningFault::Disk)?);
                *third = descriptors.next();
            }
            Report::Serving => self.is_serving = true,
            // Said of a program that was asked for, and never on their own.
            Report::Began | Report::Connected => {}
            Report::Failed { step, errno } => self.ending = Some(cause(self.ending, step, errno)),
            Report::Exited { code, usage } => {
                self.ending.get_or_insert(Ending::Exited { code, usage });
            }
            Report::Signaled { signal, usage } => {
                self.ending.get_or_insert(Ending::Signaled { signal, usage });
            }
        }
        Ok(())
    }

    /// Whether pid 1 of a sandbox that lasts takes requests; from then on it is to be heard through [`super::Serving`] alone.
    pub fn is_serving(&self) -> bool {
        self.is_serving
    }

    /// The id that the job's user has on this host.
    pub(super) fn owner(&self) -> u32 {
        self.range.as_ref().map_or(rustix::process::geteuid().as_raw(), |range| range.base() + JOB_ID)
    }

    /// A step of the launch failed, whether or not everybody has let go by now.
    pub fn has_failed(&self) -> bool {
        matches!(self.ending, Some(Ending::NotLaunched { .. }))
    }

    /// Lets a job begin that was launched to wait for it.
    pub fn go(&self) -> Result<(), RunningFault> {
        self.tell(&[word::GO], &[]).map_err(RunningFault::Go)
    }

    fn tell(&self, words: &[u8], descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        match pond_sys::socket::send(&self.report, words, descriptors) {
            // It has ended; its report says why.
            Err(fault) if fault.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }

    /// Gives the job's terminal another size; `terminal` is what was taken from here.
    pub fn resize(&self, terminal: BorrowedFd<'_>, size: Winsize) -> Result<(), RunningFault> {
        match &self.hold {
            Hold::Group(_) => {
                tcsetwinsize(terminal, size).map_err(|errno| RunningFault::Resize(errno.into()))
            }
            // The terminal itself is inside.
            Hold::Container(..) => {
                let size = WindowSize { rows: size.ws_row, columns: size.ws_col };
                let words: Vec<u8> = [word::SIZE].into_iter().chain(size.encode()).collect();
                self.tell(&words, &[]).map_err(RunningFault::Resize)
            }
        }
    }

    /// Kills everything inside, at once. Killing what is already dead is no error.
    pub fn kill(&self) -> Result<(), RunningFault> {
        if let Hold::Container(_, Death::HandOver) = &self.hold {
            return self.tell(&[word::STOP], &[]).map_err(RunningFault::Kill);
        }
        if let Some(init) = &self.init {
            match rustix::process::pidfd_send_signal(init, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(errno) => return Err(RunningFault::Kill(errno.into())),
            }
        }
        match &self.hold {
            Hold::Group(group) => Ok(group.kill()?),
            Hold::Container(..) => Ok(()),
        }
    }

    /// Makes sure that nothing of the job is left, and only then gives the result away for reading.
    pub fn finish(self, ending: Ending) -> Result<Over, RunningFault> {
        drop(self.lifeline);
        let mut upper = self.upper;
        let group = match self.hold {
            Hold::Group(group) => group,
            Hold::Container(attendant, _) => {
                if let Some(init) = &self.init {
                    await_death(init);
                }
                let Attended { usage, isolation, lost, left, is_cut_off } = attendant.finish()?;
                let (tmp, remains) = (None, None);
                return Ok(Over { ending, usage, isolation, lost, left, is_cut_off, upper, tmp, remains });
            }
        };
        let tmp = upper.as_ref().and_then(Upper::tmp);
        let remains = Remains { init: self.init, group, _range: self.range };
        // Init is counted until somebody waits for it, and whatever else there was is gone before it can be: the one left is
        // init, or nothing is. It starts nothing any more.
        let (usage, remains) = if upper.is_some() && remains.group.is_down_to_one() {
            (remains.group.usage()?, Some(remains))
        } else {
            if let Some(init) = &remains.init {
                await_death(init);
            }
            let usage = remains.group.usage()?;
            if let Some(upper) = &mut upper {
                upper.release_mounts();
            }
            remains.remove()?;
            (usage, None)
        };
        let over = Over {
            ending,
            usage,
            isolation: None,
            lost: None,
            left: None,
            is_cut_off: false,
            upper,
            tmp,
            remains,
        };
        Ok(over)
    }
}

#[cfg(test)]
mod tests {
    //! Launcher and child report over one socket in either order.
    use super::*;

    #[test]
    fn an_echo_never_hides_the_cause() {
        let failed = |step, errno: Errno| Ending::NotLaunched { step, errno: errno.raw_os_error() };
        let (real, echo) = ((Step::OpenCheckout, Errno::INVAL), (Step::MountWorkspace, Errno::CONNRESET));
        for order in [[real, echo], [echo, real]] {
            let told = order
                .into_iter()
                .fold(None, |earlier, (step, errno)| Some(cause(earlier, step, errno.raw_os_error())));
            assert_eq!(told, Some(failed(real.0, real.1)));
        }
        let second =
            cause(Some(failed(Step::Exec, Errno::NOENT)), Step::GuardInit, Errno::PERM.raw_os_error());
        assert_eq!(second, failed(Step::Exec, Errno::NOENT));
    }

    #[test]
    fn an_echo_without_a_cause_is_a_killed_process() {
        let failed = |errno: Errno| {
            let step = Step::CreateNamespaces;
            settled(Ending::NotLaunched { step, errno: errno.raw_os_error() })
        };
        for echo in [Errno::PIPE, Errno::CONNRESET, Errno::SRCH] {
            assert_eq!(failed(echo), Ending::NotBegun);
        }
        assert_ne!(failed(Errno::PERM), Ending::NotBegun);
        assert_eq!(settled(Ending::Lost), Ending::Lost);
    }
}
