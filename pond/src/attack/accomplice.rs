//! Small programs an attempt starts: what survives an exec, a parent, a signal.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pond_sys::attempt::{Kind, unshare};
use pond_sys::process::session_of;
use rustix::io::Errno;
use rustix::process::Pid;

use super::probe::NAME;
use super::scene::Scene;

pub(crate) const FLAG: &str = "--accomplice";
/// Longer than any run waits.
const LINGER: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accomplice {
    /// Tries for a user namespace; its exit code is the errno.
    Unshare,
    /// Stays.
    Wait,
    /// Leaves its session and stays.
    Linger,
    /// Blocks every signal, leaves its session and stays.
    Stubborn,
    /// Writes to a file in its directory for as long as it lives.
    Scribble,
}

impl Accomplice {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Unshare, "unshare"),
        (Self::Wait, "wait"),
        (Self::Linger, "linger"),
        (Self::Stubborn, "stubborn"),
        (Self::Scribble, "scribble"),
    ];

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name)| *name == text).map(|(accomplice, _)| *accomplice)
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(accomplice, _)| *accomplice == self).map_or("", |(_, name)| name)
    }

    pub(super) fn run(self) -> io::Result<u8> {
        match self {
            Self::Unshare => {
                let errno = unshare(&[Kind::User]).err().and_then(|fault| fault.raw_os_error()).unwrap_or(0);
                return Ok(u8::try_from(errno).unwrap_or(u8::MAX));
            }
            Self::Wait => {
                std::thread::sleep(LINGER);
                return Ok(0);
            }
            Self::Linger => {}
            Self::Stubborn => pond_sys::attempt::ignore_signals()?,
            Self::Scribble => return scribble().map(|()| 0),
        }
        rustix::process::setsid()?;
        std::thread::sleep(LINGER);
        Ok(0)
    }
}

fn scribble() -> io::Result<()> {
    let mut file = std::fs::File::create("scribbled")?;
    file.write_all(b"begun\n")?;
    rustix::process::setsid()?;
    for _ in 0..LINGER.as_millis() {
        file.write_all(b"still here\n")?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Starts one in `directory`. Its output goes where the probe's goes, its input nowhere.
#[expect(clippy::disallowed_methods, reason = "a probe starts processes: that is what it is there to try")]
pub(super) fn start(accomplice: Accomplice, directory: &Path) -> io::Result<Child> {
    Command::new("/proc/self/exe")
        .arg0(NAME)
        .args([FLAG, accomplice.name()])
        .current_dir(directory)
        .stdin(Stdio::null())
        .spawn()
}

/// Starts one and leaves it running in a session of its own. Outside it is ended again; inside that is pond's business.
pub(super) fn leave(accomplice: Accomplice, scene: &Scene) -> io::Result<()> {
    let mut child = start(accomplice, &scene.workspace)?;
    let left = wait_for_own_session(&child);
    if scene.is_inside() {
        return left;
    }
    // Also when that failed: what stays would keep the output open for as long as it lingers.
    child.kill()?;
    child.wait()?;
    left
}

fn wait_for_own_session(child: &Child) -> io::Result<()> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    while session_of(pid)? != Some(pid) {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Runs a program and returns what it printed.
#[expect(clippy::disallowed_methods, reason = "a probe starts processes: that is what it is there to try")]
pub(super) fn output(program: &Path, argument: &str, user: Option<u32>) -> io::Result<String> {
    let mut command = Command::new(program);
    command.arg(argument).stdin(Stdio::null()).stderr(Stdio::null());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    Ok(String::from_utf8_lossy(&command.output()?.stdout).into_owned())
}
