//! The asking side of the launcher: starts it once, sends plans, and reads its reports.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use pond_wire::jail::{JailPlan, Report, ReportFault};
use rustix::fs::{MemfdFlags, SealFlags};

/// The name the launcher runs under; its `main` looks at nothing else to know what it is.
const NAME: &str = "pond-jail";

#[derive(Debug, thiserror::Error)]
pub enum LauncherFault {
    #[error("starting the launcher from {path}")]
    Start { path: String, source: io::Error },
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

/// A running launcher. It ends by itself when this value, and with it the socket, goes away.
#[derive(Debug)]
pub struct Launcher {
    socket: Option<OwnedFd>,
    process: Child,
}

/// What travels with a plan, in the order the launcher expects.
#[derive(Debug)]
pub(super) struct Belongings<'a> {
    pub(super) stdio: [BorrowedFd<'a>; 3],
    pub(super) lifeline: BorrowedFd<'a>,
    pub(super) report: BorrowedFd<'a>,
    pub(super) checkout: BorrowedFd<'a>,
    pub(super) image: Option<BorrowedFd<'a>>,
    pub(super) cgroups: Vec<BorrowedFd<'a>>,
}

impl Launcher {
    /// Starts `executable` (pond itself) as a launcher: no environment, no descriptor but its socket and the error stream.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place where the host side starts a process"
    )]
    pub fn start(executable: &Path) -> Result<Self, LauncherFault> {
        let (ours, theirs) = pond_sys::socket::pair().map_err(LauncherFault::Connect)?;
        let process = Command::new(executable)
            .arg0(NAME)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .map_err(|source| LauncherFault::Start { path: executable.display().to_string(), source })?;
        Ok(Self { socket: Some(ours), process })
    }

    pub(super) fn send(&self, plan: &JailPlan, with: &Belongings<'_>) -> Result<(), LauncherFault> {
        let plan = sealed(plan)?;
        let mut descriptors = vec![plan.as_fd(), with.report];
        descriptors.extend(with.stdio);
        descriptors.extend([with.lifeline, with.checkout]);
        descriptors.extend(with.image);
        descriptors.extend(&with.cgroups);
        let socket = self.socket.as_ref().ok_or(LauncherFault::Send(io::ErrorKind::NotConnected.into()))?;
        pond_sys::socket::send(socket, &[1], &descriptors).map_err(LauncherFault::Send)
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        self.socket = None;
        // It exits at once on the closed socket; waiting keeps it from staying behind as a zombie.
        if let Err(_reaped_elsewhere) = self.process.wait() {}
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
