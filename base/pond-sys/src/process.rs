//! Making, replacing and waiting for processes.
//!
//! `fork_into` is sound only in a process with one thread: the launcher, which never starts another, and its children.

use std::ffi::{CString, c_char};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::process::Pid;

/// The namespaces a child starts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespaces {
    /// Those of its parent.
    Inherit,
    /// A new user namespace and nothing else.
    User,
    /// New user, net, ipc and uts namespaces: the part of a sandbox that holds nothing of the host, so it does not age.
    Outer,
    /// New mount and pid namespaces, for a sibling of this process rather than a child. The cgroup namespace is entered later, by
    /// `unshare`, so that its root is the group the process was moved to.
    Inner,
    /// A new pid namespace and otherwise those of its parent, for a sibling of it rather than a child.
    Pids,
}

/// Which side of a fork this is.
#[derive(Debug)]
pub enum Fork {
    Child,
    Parent(Child),
}

/// A child and the descriptor that names it for as long as it is open, whatever becomes of the number.
#[derive(Debug)]
pub struct Child {
    pub pid: Pid,
    pub pidfd: OwnedFd,
}

#[repr(C, align(8))]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Forks, placing the child in new namespaces and, when a cgroup v2 directory is given, in that group from its first
/// instruction. Signal handlers are reset to their defaults in the child.
pub fn fork_into(namespaces: Namespaces, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Fork> {
    let mut pidfd: RawFd = -1;
    let mut args = CloneArgs {
        flags: CLONE_CLEAR_SIGHAND
            | u64::from(libc::CLONE_PIDFD.unsigned_abs())
            | namespace_flags(namespaces),
        pidfd: (&raw mut pidfd).addr() as u64,
        exit_signal: exit_signal(namespaces),
        ..CloneArgs::default()
    };
    if let Some(group) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = u64::try_from(group.as_raw_fd()).map_err(|_| crate::out_of_range())?;
    }
    // SAFETY: without CLONE_VM the child gets a copy of this address space and runs on the copied stack. The process has
    // one thread (see the module doc), so no lock can be held by a thread that does not exist in the child. `args` has the
    // layout and size the kernel expects, and `pidfd` outlives the call.
    let ret = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<CloneArgs>()) };
    match crate::check(ret)? {
        0 => Ok(Fork::Child),
        raw => {
            let pid = i32::try_from(raw).ok().and_then(Pid::from_raw).ok_or_else(crate::out_of_range)?;
            // SAFETY: the kernel stored a new descriptor in `pidfd` because CLONE_PIDFD was given and the call succeeded.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Fork::Parent(Child { pid, pidfd }))
        }
    }
}

/// Forks with the oldest call that does it, for where a filter hides the newer one. Nothing in the child.
pub fn fork_plainly() -> io::Result<Option<Pid>> {
    let (flags, unused) = (libc::c_long::from(libc::SIGCHLD), 0 as libc::c_long);
    // SAFETY: without CLONE_VM and without a stack the child gets a copy of this address space and runs on the copied
    // stack. The process has one thread (see the module doc), so no lock can be held by a thread that does not exist in it.
    let ret = unsafe { libc::syscall(libc::SYS_clone, flags, unused, unused, unused, unused) };
    match crate::check(ret)? {
        0 => Ok(None),
        raw => i32::try_from(raw).ok().and_then(Pid::from_raw).map(Some).ok_or_else(crate::out_of_range),
    }
}

/// Enters the network namespace of the process a descriptor names.
pub fn enter_network_of(process: BorrowedFd<'_>) -> io::Result<()> {
    enter(process, libc::CLONE_NEWNET)
}

/// Has the calling thread, and no other, enter the mount namespace of the process a descriptor names; `/` is that namespace's
/// root then. There is no way back: the thread should end.
pub fn enter_mounts_of(process: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: gives the thread a root and a working directory of its own, and changes no memory.
    crate::check(unsafe { libc::unshare(libc::CLONE_FS) }.into())?;
    enter(process, libc::CLONE_NEWNS)
}

fn enter(process: BorrowedFd<'_>, namespace: libc::c_int) -> io::Result<()> {
    // SAFETY: entering a namespace changes no memory and closes no descriptor.
    crate::check(unsafe { libc::setns(process.as_raw_fd(), namespace) }.into()).map(|_| ())
}

fn namespace_flags(namespaces: Namespaces) -> u64 {
    let flags = match namespaces {
        Namespaces::Inherit => 0,
        Namespaces::User => libc::CLONE_NEWUSER,
        Namespaces::Outer => {
            libc::CLONE_NEWUSER | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS
        }
        Namespaces::Inner => libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_PARENT,
        Namespaces::Pids => libc::CLONE_NEWPID | libc::CLONE_PARENT,
    };
    u64::from(flags.unsigned_abs())
}

/// What the parent hears when the child ends. Of a sibling the kernel takes that of this process.
fn exit_signal(namespaces: Namespaces) -> u64 {
    match namespaces {
        Namespaces::Inherit | Namespaces::User | Namespaces::Outer => u64::from(libc::SIGCHLD.unsigned_abs()),
        Namespaces::Inner | Namespaces::Pids => 0,
    }
}

/// A program, its arguments and its environment in the form `execve` takes, prepared before anything irreversible.
#[derive(Debug)]
pub struct Program {
    argv: Vec<CString>,
    env: Vec<CString>,
}

impl Program {
    pub fn new(argv: Vec<CString>, env: Vec<CString>) -> Self {
        Self { argv, env }
    }

    /// Replaces this process. Returns only on failure.
    pub fn exec(&self, path: &CString) -> io::Error {
        let argv = pointers(&self.argv);
        let env = pointers(&self.env);
        // SAFETY: both arrays are NULL-terminated and point at C strings owned by `self`, which outlives the call.
        unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), env.as_ptr()) };
        io::Error::last_os_error()
    }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|text| text.as_ptr()).chain(std::iter::once(std::ptr::null())).collect()
}

/// How a child ended, and what it used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub pid: i32,
    pub status: Status,
    pub max_rss_kib: u64,
    pub cpu_micros: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Exited(u8),
    Signaled(u8),
}

/// Reaps one child that has ended, if any has.
pub fn reap_any() -> io::Result<Option<Ended>> {
    let mut status: libc::c_int = 0;
    // SAFETY: `rusage` is plain data for which all-zero bytes are a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers refer to live, writable values of the types the call expects.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage) };
    if pid == 0 {
        return Ok(None);
    }
    crate::check(pid.into())?;
    let byte = |value: libc::c_int| u8::try_from(value).map_err(|_| crate::out_of_range());
    let status = if libc::WIFSIGNALED(status) {
        Status::Signaled(byte(libc::WTERMSIG(status))?)
    } else {
        Status::Exited(byte(libc::WEXITSTATUS(status))?)
    };
    let micros = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    Ok(Some(Ended {
        pid,
        status,
        max_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
        cpu_micros: micros(usage.ru_utime) + micros(usage.ru_stime),
    }))
}

/// Makes the caller's control group the root of a new cgroup namespace.
pub fn unshare_cgroup() -> io::Result<()> {
    unshare(libc::CLONE_NEWCGROUP)
}

/// Enters a new mount namespace.
pub fn unshare_mounts() -> io::Result<()> {
    unshare(libc::CLONE_NEWNS)
}

/// Tries to enter a new user namespace: what a confined process must not be able to do.
pub fn unshare_user() -> io::Result<()> {
    unshare(libc::CLONE_NEWUSER)
}

fn unshare(flag: libc::c_int) -> io::Result<()> {
    // SAFETY: unsharing a namespace changes no memory and closes no descriptor.
    crate::check(unsafe { libc::unshare(flag) }.into()).map(|_| ())
}

/// The session of a process; none when its leader is outside this process's namespace, which the kernel says with 0 and
/// `rustix::process::getsid` takes for a number.
pub fn session_of(pid: Pid) -> io::Result<Option<Pid>> {
    // SAFETY: takes a number and returns one.
    let session = crate::check(unsafe { libc::getsid(pid.as_raw_nonzero().get()) }.into())?;
    Ok(i32::try_from(session).ok().and_then(Pid::from_raw))
}

/// The process group of the caller; none when its leader is outside its namespace.
pub fn own_group() -> Option<Pid> {
    // SAFETY: takes nothing, returns a number and cannot fail.
    Pid::from_raw(unsafe { libc::getpgrp() })
}

/// Ends this process without running destructors or exit handlers: what a forked child must do.
pub fn exit_now(code: u8) -> ! {
    // SAFETY: _exit ends the process and touches no memory of ours.
    unsafe { libc::_exit(code.into()) }
}
