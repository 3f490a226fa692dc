//! Watching other processes from one system call to the next, so that a test can end one at a call of its choice.
//!
//! Built only with the feature `trace`, which tests ask for and no program does. A tracer is a thread: all functions here are
//! called by the one that seized. Children of what is traced are traced from their first instruction.

use std::io;
use std::mem::MaybeUninit;

use rustix::process::Pid;

use crate::process::Status;

/// What a traced process, or a child of the caller, came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// About to make the system call of this number, with these arguments.
    Entering(u64, [u64; 6]),
    /// It started a child, which is traced too.
    Born(Pid),
    Executed,
    Signal(i32),
    /// Anything else that a tracer only has to resume from.
    Stopped,
    Ended(Status),
}

const OPTIONS: libc::c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_EXITKILL;

/// Begins to trace a process, which goes on as it was.
pub fn seize(process: Pid) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, process, OPTIONS.unsigned_abs() as usize)
}

/// How far a stopped process goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Its next system call, or whatever happens before.
    NextCall,
    /// Anything but a system call.
    NextEvent,
}

/// Lets a stopped process go on, with a signal or (0) without.
pub fn resume(process: Pid, until: Until, signal: i32) -> io::Result<()> {
    let what = match until {
        Until::NextCall => libc::PTRACE_SYSCALL,
        Until::NextEvent => libc::PTRACE_CONT,
    };
    request(what, process, usize::try_from(signal).map_err(|_| crate::out_of_range())?)
}

/// Waits for the next event of anything traced by this thread and for the end of any child; nothing when there is neither.
pub fn next() -> io::Result<Option<(Pid, Event)>> {
    let mut status: libc::c_int = 0;
    // SAFETY: the pointer refers to a live integer.
    let ret = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
    let raw = match crate::check(ret.into()) {
        Err(fault) if fault.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
        other => other?,
    };
    let process = i32::try_from(raw).ok().and_then(Pid::from_raw).ok_or_else(crate::out_of_range)?;
    Ok(Some((process, event(process, status)?)))
}

fn event(process: Pid, status: libc::c_int) -> io::Result<Event> {
    let byte = |value: libc::c_int| u8::try_from(value).map_err(|_| crate::out_of_range());
    if libc::WIFEXITED(status) {
        return Ok(Event::Ended(Status::Exited(byte(libc::WEXITSTATUS(status))?)));
    }
    if libc::WIFSIGNALED(status) {
        return Ok(Event::Ended(Status::Signaled(byte(libc::WTERMSIG(status))?)));
    }
    match (status >> 16, libc::WSTOPSIG(status)) {
        (libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE, _) => born(process),
        (libc::PTRACE_EVENT_EXEC, _) => Ok(Event::Executed),
        (0, signal) if signal == libc::SIGTRAP | 0x80 => entering(process),
        (0, signal) => Ok(Event::Signal(signal)),
        (_, _) => Ok(Event::Stopped),
    }
}

fn born(process: Pid) -> io::Result<Event> {
    let mut child: libc::c_ulong = 0;
    request(libc::PTRACE_GETEVENTMSG, process, (&raw mut child).addr())?;
    let child = i32::try_from(child).ok().and_then(Pid::from_raw).ok_or_else(crate::out_of_range)?;
    Ok(Event::Born(child))
}

/// A stop at a system call is one on the way in or one on the way out.
fn entering(process: Pid) -> io::Result<Event> {
    let mut info = MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
    let size = size_of::<libc::ptrace_syscall_info>();
    // SAFETY: the kernel writes at most `size` bytes to the live, writable value.
    let ret = unsafe {
        libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, process.as_raw_nonzero().get(), size, info.as_mut_ptr())
    };
    crate::check(ret)?;
    // SAFETY: zeroed before the call, and every bit pattern is a value of this plain structure.
    let info = unsafe { info.assume_init() };
    if info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return Ok(Event::Stopped);
    }
    // SAFETY: `op` says that the kernel filled in this member.
    let entry = unsafe { info.u.entry };
    Ok(Event::Entering(entry.nr, entry.args))
}

fn request(what: libc::c_uint, process: Pid, data: usize) -> io::Result<()> {
    // SAFETY: for the requests used here `data` is a set of options, a signal, or the address of a live, writable value.
    let ret = unsafe { libc::ptrace(what, process.as_raw_nonzero().get(), 0usize, data) };
    crate::check(ret).map(|_| ())
}
