//! One attempt in a process of its own, so that a filter that kills or a call that hangs ends the attempt and not the probe.

use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, waitpid};

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    Succeeded,
    Failed { errno: i32 },
    Killed { signal: u8 },
    Stopped,
    Hung,
}

const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// No errno is this large; it stands for an error that did not come from the kernel.
const NOT_AN_ERRNO: u8 = 255;

/// Runs `attempt` in a forked child and waits for it. Whatever the child started is killed with it, unless it left its
/// process group. Sound only in a process with one thread.
pub fn isolated(patience: Duration, attempt: impl FnOnce() -> io::Result<()>) -> io::Result<Trial> {
    // SAFETY: the caller has one thread, so no lock can be held by a thread that does not exist in the child.
    let raw = crate::check(unsafe { libc::fork() }.into())?;
    if raw == 0 {
        let _aborts = AbortOnPanic;
        let code =
            match rustix::process::setpgid(None, None).map_err(io::Error::from).and_then(|()| attempt()) {
                Ok(()) => 0,
                Err(fault) => {
                    fault.raw_os_error().and_then(|errno| u8::try_from(errno).ok()).unwrap_or(NOT_AN_ERRNO)
                }
            };
        crate::process::exit_now(code)
    }
    let child = i32::try_from(raw).ok().and_then(Pid::from_raw).ok_or_else(crate::out_of_range)?;
    let trial = wait(child, Instant::now() + patience)?;
    match kill_process_group(child, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH | rustix::io::Errno::PERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    if matches!(trial, Trial::Stopped | Trial::Hung) {
        reap(child)?;
    }
    Ok(trial)
}

/// A panic's exit code is also an errno; as an abort it cannot be taken for the kernel's answer.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

fn wait(child: Pid, deadline: Instant) -> io::Result<Trial> {
    loop {
        match waitpid(Some(child), WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((_, status))) => return Ok(judge(status)),
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if Instant::now() >= deadline {
            return Ok(Trial::Hung);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn judge(status: WaitStatus) -> Trial {
    let byte = |value: i32| u8::try_from(value).unwrap_or(u8::MAX);
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => Trial::Succeeded,
        (Some(code), _) => Trial::Failed { errno: code },
        (None, Some(signal)) => Trial::Killed { signal: byte(signal) },
        (None, None) => Trial::Stopped,
    }
}

/// The child was killed by name of its group; one that is still there after that is killed by its own.
fn reap(child: Pid) -> io::Result<()> {
    match rustix::process::kill_process(child, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(errno) => return Err(errno.into()),
    }
    loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(rustix::io::Errno::CHILD) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}
