//! The asking side of the launcher: starts it once, sends plans, and reads its reports.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pond_sys::process::{Fork, Namespaces, Program, exit_now, fork_into, reap_any};
use pond_wire::jail::{JailPlan, Report, ReportFault};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::process::{WaitId, WaitIdOptions, getpid, set_child_subreaper, waitid};

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
    /// An image and its template, or nothing when the scratch is memory.
    pub(super) disk: Vec<BorrowedFd<'a>>,
    pub(super) cgroups: Vec<BorrowedFd<'a>>,
}

impl Launcher {
    /// Starts `executable` (pond itself) as a launcher: no environment, no descriptor but its socket and the error stream.
    ///
    /// Forks, so that the caller goes on while the launcher gets ready. The caller must have one thread and little memory,
    /// which a command has, and a daemon has before it starts its runtime.
    pub fn start(executable: &Path) -> Result<Self, LauncherFault> {
        let (ours, theirs) = pond_sys::socket::pair().map_err(LauncherFault::Connect)?;
        let failed = |source| LauncherFault::Start { path: executable.to_owned(), source };
        let path = CString::new(executable.as_os_str().as_bytes()).map_err(|fault| failed(fault.into()))?;
        let program = Program::new(vec![NAME.to_owned()], Vec::new());
        match fork_into(Namespaces::Inherit, None).map_err(failed)? {
            Fork::Child => become_launcher(&theirs, &program, &path),
            Fork::Parent(child) => {
                // A job's init outlives a launcher that retired, and then needs a parent that reaps it.
                set_child_subreaper(Some(getpid())).map_err(|errno| failed(errno.into()))?;
                Ok(Self { socket: Some(ours), process: child.pidfd })
            }
        }
    }

    /// Sends nothing more: the launcher finishes what it was told and ends while the job runs.
    pub fn retire(&mut self) {
        self.socket = None;
    }

    pub(super) fn send(&self, plan: &JailPlan, with: &Belongings<'_>) -> Result<(), LauncherFault> {
        let plan = sealed(plan)?;
        let mut descriptors = vec![plan.as_fd(), with.report];
        descriptors.extend(&with.stdio);
        descriptors.extend([with.lifeline, with.checkout]);
        descriptors.extend(&with.disk);
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

/// The forked child's whole life before it is the launcher.
fn become_launcher(socket: &OwnedFd, program: &Program, path: &CString) -> ! {
    let null = rustix::fs::open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    let ready = null
        .and_then(|null| rustix::stdio::dup2_stdout(&null))
        .and_then(|()| rustix::stdio::dup2_stdin(socket));
    if ready.is_ok() {
        // Returns only on failure, which the other end of the socket sees as its end.
        drop(program.exec(path));
    }
    exit_now(127)
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
