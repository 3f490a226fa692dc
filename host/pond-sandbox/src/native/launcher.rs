//! The asking side of the launcher: starts it once, sends plans, and reads its reports.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pond_sys::process::reap_any;
use pond_wire::jail::{self, JailPlan, Report, ReportFault, word};
use rustix::process::{WaitId, WaitIdOptions, getpid, set_child_subreaper, waitid};
use serde::Serialize;

use super::footing::{Footing, FootingFault, Owner};
use super::remedy::{AFTER_KILL, KILLED};
use super::scratch::{Disk, Quota};
use crate::role::{self, Role};

/// The name the launcher runs under; its `main` looks at nothing else to know what it is.
const NAME: &str = "pond-jail";

#[derive(Debug, thiserror::Error)]
pub enum LauncherFault {
    #[error("starting the launcher from {path}")]
    Start { path: PathBuf, source: io::Error },
    #[error("starting the launcher")]
    Fork(#[source] io::Error),
    #[error("connecting to the launcher")]
    Connect(#[source] io::Error),
    #[error("writing the plan")]
    Plan(#[source] io::Error),
    #[error("sending the plan")]
    Send(#[source] io::Error),
    #[error("{KILLED}; {AFTER_KILL}")]
    Gone,
    #[error("reading a report")]
    Receive(#[source] io::Error),
    #[error("reading a report")]
    Report(#[source] ReportFault),
}

/// A running launcher. It ends by itself when the socket goes away; dropping this value waits until it has.
#[derive(Debug)]
pub struct Launcher {
    socket: Option<OwnedFd>,
    process: OwnedFd,
    /// What it made ready for the next job.
    footing: Mutex<Option<Footing>>,
}

/// Which of two processes this one is.
#[derive(Debug)]
pub enum Forked {
    Launcher,
    Asking(Launcher),
}

/// When the child of a ground is made.
#[derive(Debug)]
pub(super) enum Child<'a> {
    /// With its job.
    Later,
    /// With the ground, in this v2 group if jobs have one: a launch then finds it waiting.
    AtOnce(Option<BorrowedFd<'a>>),
}

/// What the launcher can begin with before there is a plan.
#[derive(Debug)]
pub(super) struct Groundwork<'a> {
    pub(super) group: Option<BorrowedFd<'a>>,
    /// Nothing when the scratch is memory, or when the disk was laid with the ground.
    pub(super) disk: Option<&'a Disk>,
    pub(super) on_ground: bool,
}

/// What travels with a plan, in the order the launcher expects.
#[derive(Debug)]
pub(super) struct Belongings<'a> {
    /// Three, or none when the plan asks for a terminal.
    pub(super) stdio: Vec<BorrowedFd<'a>>,
    pub(super) lifeline: BorrowedFd<'a>,
    pub(super) report: BorrowedFd<'a>,
    pub(super) checkout: BorrowedFd<'a>,
}

/// What storage is made from.
#[derive(Debug)]
pub(crate) struct Scenery<'a> {
    pub(crate) checkout: BorrowedFd<'a>,
    pub(crate) disk: &'a Disk,
}

impl Launcher {
    /// Starts `executable` (pond itself) as a launcher.
    pub fn start(executable: &Path) -> Result<Self, LauncherFault> {
        let failed = |source| LauncherFault::Start { path: executable.to_owned(), source };
        let role = role::start(executable, NAME).map_err(failed)?;
        Ok(Self::of(role))
    }

    fn of(role: Role) -> Self {
        Self { socket: Some(role.socket), process: role.process, footing: Mutex::default() }
    }

    /// Has it make ready what the next job gets in any case, before there is one. Where that cannot be, the launch says why.
    pub fn stand_by(&self, owner: Owner) -> Result<(), FootingFault> {
        self.lay(owner, &Child::Later, None)
    }

    pub(super) fn lay(
        &self,
        owner: Owner,
        child: &Child<'_>,
        disk: Option<(Quota, Disk)>,
    ) -> Result<(), FootingFault> {
        let (mut footing, ground) = Footing::plan(owner, disk.as_ref().map(|(quota, _)| *quota))?;
        let ground = sealed(&ground)?;
        let (standing, group) = match child {
            Child::Later => (0, None),
            Child::AtOnce(None) => (word::STANDING, None),
            Child::AtOnce(Some(group)) => (word::STANDING | word::GROUP, Some(*group)),
        };
        footing.has_child = standing != 0;
        let files = disk.iter().flat_map(|(_, disk)| disk.files());
        let word = word::GROUND | standing | if disk.is_some() { word::DISK } else { 0 };
        let descriptors: Vec<_> = std::iter::once(ground.as_fd()).chain(group).chain(files).collect();
        // What was laid before goes with this, whether it arrives or not.
        let mut held = self.lock();
        *held = None;
        self.packet(word, &descriptors)?;
        *held = Some(footing);
        Ok(())
    }

    /// What it has ready, if a job of now would get the same; whoever takes it uses it or has it forgotten.
    pub(super) fn take_footing(&self) -> Option<Footing> {
        self.lock().take().filter(Footing::is_fresh)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Footing>> {
        self.footing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a launcher of a copy of this process, which has one thread and has read nothing: first of all in `main`.
    pub fn fork() -> Result<Forked, LauncherFault> {
        Ok(match role::fork(NAME).map_err(LauncherFault::Fork)? {
            None => Forked::Launcher,
            Some(role) => Forked::Asking(Self::of(role)),
        })
    }

    /// A job's init outlives a launcher that retired, and then needs a parent that reaps it.
    pub(super) fn adopt(&self) -> Result<(), LauncherFault> {
        set_child_subreaper(Some(getpid())).map_err(|errno| LauncherFault::Fork(errno.into()))
    }

    /// Sends nothing more: the launcher finishes what it was told and ends while the job runs.
    pub fn retire(&mut self) {
        self.socket = None;
    }

    /// Lets the launcher make namespaces and a disk while the caller is still planning. Making them fails as the launch does.
    pub(super) fn prepare(&self, with: &Groundwork<'_>) -> Result<(), LauncherFault> {
        let group = with.group.map_or(0, |_| word::GROUP);
        let disk = with.disk.map_or(0, Disk::word);
        let files = with.disk.into_iter().flat_map(Disk::files);
        let descriptors: Vec<_> = with.group.into_iter().chain(files).collect();
        let standing = if with.on_ground { word::STANDING } else { 0 };
        self.packet(word::PREPARE | group | disk | standing, &descriptors)
    }

    pub(super) fn launch(&self, plan: &JailPlan, with: &Belongings<'_>) -> Result<(), LauncherFault> {
        let plan = sealed(plan)?;
        let mut descriptors = vec![plan.as_fd(), with.report, with.checkout];
        descriptors.extend(&with.stdio);
        descriptors.push(with.lifeline);
        self.packet(word::LAUNCH, &descriptors)
    }

    /// Has a plan's storage built and hung up in a directory. The answer is one report; nothing when the launcher is gone.
    pub(crate) fn stage(
        &self,
        plan: &JailPlan,
        directory: BorrowedFd<'_>,
        with: &Scenery<'_>,
    ) -> Result<Option<(Report, Vec<OwnedFd>)>, LauncherFault> {
        let (ours, theirs) = pond_sys::socket::pair().map_err(LauncherFault::Connect)?;
        let plan = sealed(plan)?;
        let fixed = [plan.as_fd(), theirs.as_fd(), with.checkout, directory];
        let descriptors: Vec<_> = fixed.into_iter().chain(with.disk.files()).collect();
        self.packet(word::STAGE | (with.disk.word() & word::KEPT), &descriptors)?;
        drop(theirs);
        next_report(&ours)
    }

    /// Has a plan's doors opened in the network of a process; they arrive with a report, or the reason why not does.
    pub(crate) fn visit(
        &self,
        plan: &JailPlan,
        report: BorrowedFd<'_>,
        process: BorrowedFd<'_>,
    ) -> Result<(), LauncherFault> {
        let plan = sealed(plan)?;
        self.packet(word::VISIT, &[plan.as_fd(), report, process])
    }

    fn packet(&self, word: u8, descriptors: &[BorrowedFd<'_>]) -> Result<(), LauncherFault> {
        let socket = self.socket.as_ref().ok_or(LauncherFault::Send(io::ErrorKind::NotConnected.into()))?;
        pond_sys::socket::send(socket, &[word], descriptors).map_err(|fault| {
            let is_gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset].contains(&fault.kind());
            if is_gone { LauncherFault::Gone } else { LauncherFault::Send(fault) }
        })
    }
}

pub(super) fn sealed(plan: &impl Serialize) -> Result<OwnedFd, LauncherFault> {
    let bytes = jail::encode(plan).map_err(|fault| LauncherFault::Plan(io::Error::other(fault)))?;
    role::sealed("plan", &bytes).map_err(LauncherFault::Plan)
}

impl Drop for Launcher {
    fn drop(&mut self) {
        self.retire();
        // It exits at once on the closed socket; waiting keeps it from staying behind as a zombie.
        if let Err(_reaped_elsewhere) = waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED) {}
        while let Ok(Some(_orphan)) = reap_any() {}
    }
}

/// The next report and its descriptors; nothing once launcher and init have both let go of the socket.
pub(crate) fn next_report(socket: impl AsFd) -> Result<Option<(Report, Vec<OwnedFd>)>, LauncherFault> {
    next(socket, Report::decode)
}

/// The next word of whoever holds the other end, in this language.
pub(super) fn next<T>(
    socket: impl AsFd,
    decode: impl FnOnce(&[u8]) -> Result<T, ReportFault>,
) -> Result<Option<(T, Vec<OwnedFd>)>, LauncherFault> {
    let mut buffer = [0; 64];
    let received = match pond_sys::socket::receive(&socket, &mut buffer) {
        // They let go without hearing our last word. That is told once, before what they had still said.
        Err(fault) if fault.kind() == io::ErrorKind::ConnectionReset => {
            pond_sys::socket::receive(&socket, &mut buffer)
        }
        other => other,
    };
    let (length, descriptors) = received.map_err(LauncherFault::Receive)?;
    match buffer.get(..length) {
        None | Some([]) => Ok(None),
        Some(bytes) => Ok(Some((decode(bytes).map_err(LauncherFault::Report)?, descriptors))),
    }
}
