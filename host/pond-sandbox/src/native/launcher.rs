//! The asking side of the launcher: starts it once, sends plans, and reads its reports.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pond_sys::process::reap_any;
use pond_wire::jail::{JailPlan, Report, ReportFault, word};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{
    Pid, PidfdFlags, WaitId, WaitIdOptions, getpid, pidfd_open, set_child_subreaper, waitid,
};

use super::scratch::Disk;

/// The name the launcher runs under; its `main` looks at nothing else to know what it is.
const NAME: &str = "pond-jail";

#[derive(Debug, thiserror::Error)]
pub enum LauncherFault {
    #[error("starting the launcher from {path}")]
    Start { path: PathBuf, source: io::Error },
    #[error("connecting to the launcher")]
    Connect(#[source] io::Error),
    #[error("writing the plan")]
    Plan(#[source] io::Error),
    #[error("sending the plan")]
    Send(#[source] io::Error),
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
}

/// What the launcher can begin with before there is a plan.
#[derive(Debug)]
pub(super) struct Groundwork<'a> {
    pub(super) group: Option<BorrowedFd<'a>>,
    /// Nothing when the scratch is memory.
    pub(super) disk: Option<&'a Disk>,
}

/// What travels with a plan, in the order the launcher expects.
#[derive(Debug)]
pub(super) struct Belongings<'a> {
    /// Three, or none when the plan asks for a terminal.
    pub(super) stdio: Vec<BorrowedFd<'a>>,
    pub(super) lifeline: BorrowedFd<'a>,
    pub(super) report: BorrowedFd<'a>,
    pub(super) checkout: BorrowedFd<'a>,
    /// Entries of v1 groups.
    pub(super) cgroups: Vec<BorrowedFd<'a>>,
}

impl Launcher {
    /// Starts `executable` (pond itself) as a launcher: no environment, no descriptor but its socket and the error stream.
    #[expect(
        clippy::disallowed_methods,
        reason = "the launcher is the one process of its own that pond starts"
    )]
    pub fn start(executable: &Path) -> Result<Self, LauncherFault> {
        let (ours, theirs) = pond_sys::socket::pair().map_err(LauncherFault::Connect)?;
        let failed = |source| LauncherFault::Start { path: executable.to_owned(), source };
        let child = Command::new(executable)
            .arg0(NAME)
            .env_clear()
            .stdin(theirs)
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        // A job's init outlives a launcher that retired, and then needs a parent that reaps it.
        set_child_subreaper(Some(getpid())).map_err(|errno| failed(errno.into()))?;
        Ok(Self { socket: Some(ours), process: process.map_err(|errno| failed(errno.into()))? })
    }

    /// Sends nothing more: the launcher finishes what it was told and ends while the job runs.
    pub fn retire(&mut self) {
        self.socket = None;
    }

    /// Lets the launcher make namespaces and a disk while the caller is still planning. Making them fails as the launch does.
    pub(super) fn prepare(&self, with: &Groundwork<'_>) -> Result<(), LauncherFault> {
        let group = with.group.map_or(0, |_| word::GROUP);
        let disk = with.disk.map_or(0, |_| word::DISK);
        let files = with.disk.into_iter().flat_map(|disk| [disk.image.as_fd(), disk.template.as_fd()]);
        let descriptors: Vec<_> = with.group.into_iter().chain(files).collect();
        self.packet(word::PREPARE | group | disk, &descriptors)
    }

    pub(super) fn launch(&self, plan: &JailPlan, with: &Belongings<'_>) -> Result<(), LauncherFault> {
        let plan = sealed(plan)?;
        let mut descriptors = vec![plan.as_fd(), with.report, with.checkout];
        descriptors.extend(&with.stdio);
        descriptors.push(with.lifeline);
        descriptors.extend(&with.cgroups);
        self.packet(word::LAUNCH, &descriptors)
    }

    fn packet(&self, word: u8, descriptors: &[BorrowedFd<'_>]) -> Result<(), LauncherFault> {
        let socket = self.socket.as_ref().ok_or(LauncherFault::Send(io::ErrorKind::NotConnected.into()))?;
        pond_sys::socket::send(socket, &[word], descriptors).map_err(LauncherFault::Send)
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        self.retire();
        // It exits at once on the closed socket; waiting keeps it from staying behind as a zombie.
        if let Err(_reaped_elsewhere) = waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED) {}
        while let Ok(Some(_orphan)) = reap_any() {}
    }
}

/// The plan as a memory file nobody can change any more.
fn sealed(plan: &JailPlan) -> Result<OwnedFd, LauncherFault> {
    let bytes = serde_json::to_vec(plan).map_err(|fault| LauncherFault::Plan(fault.into()))?;
    let failed = |errno: rustix::io::Errno| LauncherFault::Plan(errno.into());
    let file =
        rustix::fs::memfd_create("plan", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(failed)?;
    let written = rustix::io::write(&file, &bytes).map_err(failed)?;
    if written != bytes.len() {
        return Err(LauncherFault::Plan(io::ErrorKind::WriteZero.into()));
    }
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals).map_err(failed)?;
    Ok(file)
}

/// The next report and its descriptors; nothing once launcher and init have both let go of the socket.
pub(super) fn next_report(socket: impl AsFd) -> Result<Option<(Report, Vec<OwnedFd>)>, LauncherFault> {
    let mut buffer = [0; 64];
    let (length, descriptors) =
        pond_sys::socket::receive(socket, &mut buffer).map_err(LauncherFault::Receive)?;
    match buffer.get(..length) {
        None | Some([]) => Ok(None),
        Some(bytes) => {
            let report = Report::decode(bytes).map_err(LauncherFault::Report)?;
            Ok(Some((report, descriptors)))
        }
    }
}
