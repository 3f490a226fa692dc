//! Small programs an attempt starts: what survives an exec, a parent, a signal.

use std::io::{self, Write};
use std::process::{Child, Command, Stdio};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Duration;

use pond_sys::attempt::{Kind, unshare};

use super::probe::NAME;

pub(crate) const FLAG: &str = "--helper";
/// Longer than any run waits.
const LINGER: Duration = Duration::from_secs(90);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Helper {
    /// Tries for a user namespace; its exit code is the errno.
    Unshare,
    /// Leaves its session and stays.
    Linger,
    /// Blocks every signal, leaves its session and stays.
    Stubborn,
    /// Writes to a file in its directory for as long as it lives.
    Scribble,
}

impl Helper {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Unshare, "unshare"),
        (Self::Linger, "linger"),
        (Self::Stubborn, "stubborn"),
        (Self::Scribble, "scribble"),
    ];

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name)| *name == text).map(|(helper, _)| *helper)
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(helper, _)| *helper == self).map_or("", |(_, name)| name)
    }

    pub(super) fn run(self) -> io::Result<u8> {
        match self {
            Self::Unshare => {
                let errno = unshare(&[Kind::User]).err().and_then(|fault| fault.raw_os_error()).unwrap_or(0);
                return Ok(u8::try_from(errno).unwrap_or(u8::MAX));
            }
            Self::Linger => {}
            Self::Stubborn => pond_sys::attempt::ignore_signals()?,
            Self::Scribble => scribble()?,
        }
        rustix::process::setsid()?;
        std::thread::sleep(LINGER);
        Ok(0)
    }
}

fn scribble() -> io::Result<()> {
    let mut file = std::fs::File::create("scribbled")?;
    for _ in 0..LINGER.as_millis() {
        file.write_all(b"still here\n")?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Starts a helper in `directory`. Its output goes where the probe's goes, its input nowhere.
#[expect(clippy::disallowed_methods, reason = "a probe starts processes: that is what it is there to try")]
pub(super) fn start(helper: Helper, directory: &Path) -> io::Result<Child> {
    Command::new("/proc/self/exe")
        .arg0(NAME)
        .args([FLAG, helper.name()])
        .current_dir(directory)
        .stdin(Stdio::null())
        .spawn()
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
