//! The asking side of the launcher: starts it once, sends plans, and reads its reports.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use pond_sys::process::reap_any;
use pond_wire::jail::{JailPlan, Report, ReportFault};
use rustix::process::{WaitId, WaitIdOptions, getpid, set_child_subreaper, waitid};

use crate::role;

/// The name the launcher runs under; its `main` looks at nothing else to know what it is.
const NAME: &CStr = c"pond-jail";

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

/// What travels with a plan, in the order the launcher expects.
#[derive(Debug)]
pub(super) struct Belongings<'a> {
    /// Three, or none when the plan asks for a terminal.
    pub(super) stdio: Vec<BorrowedFd<'a>>,
    pub(super) lifeline: BorrowedFd<'a>,
    pub(super) report: BorrowedFd<'a>,
    pub(super) checkout: BorrowedFd<'a>,
    pub(super) image: Option<BorrowedFd<'a>>,
    pub(super) cgroups: Vec<BorrowedFd<'a>>,
}

impl Launcher {
    /// Starts `executable` (pond itself) as a launcher.
    pub fn start(executable: &Path) -> Result<Self, LauncherFault> {
        let failed = |source| LauncherFault::Start { path: executable.to_owned(), source };
        let role = role::start(executable, NAME).map_err(failed)?;
        // A job's init outlives a launcher that retired, and then needs a parent that reaps it.
        set_child_subreaper(Some(getpid())).map_err(|errno| failed(errno.into()))?;
        Ok(Self { socket: Some(role.socket), process: role.process })
    }

    /// Sends nothing more: the launcher finishes what it was told and ends while the job runs.
    pub fn retire(&mut self) {
        self.socket = None;
    }

    pub(super) fn send(&self, plan: &JailPlan, with: &Belongings<'_>) -> Result<(), LauncherFault> {
        let bytes = serde_json::to_vec(plan).map_err(|fault| LauncherFault::Plan(fault.into()))?;
        let plan = role::sealed("plan", &bytes).map_err(LauncherFault::Plan)?;
        let mut descriptors = vec![plan.as_fd(), with.report];
        descriptors.extend(&with.stdio);
        descriptors.extend([with.lifeline, with.checkout]);
        descriptors.extend(with.image);
        descriptors.extend(&with.cgroups);
        let socket = self.socket.as_ref().ok_or(LauncherFault::Send(io::ErrorKind::NotConnected.into()))?;
        pond_sys::socket::send(socket, &[1], &descriptors).map_err(LauncherFault::Send)
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

/// The next report and its descriptors; nothing once launcher and init have both let go of the socket.
pub(super) fn next_report(socket: impl AsFd) -> Result<Option<(Report, Vec<OwnedFd>)>, LauncherFault> {
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
        Some(bytes) => {
            let report = Report::decode(bytes).map_err(LauncherFault::Report)?;
            Ok(Some((report, descriptors)))
        }
    }
}
