//! Follows a run of pond from system call to system call, knows its processes by their part in it, and ends one of them.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Seek};
use std::process::{Command, Stdio};

use pond_sys::process::Status;
use pond_sys::trace::{self, Event, Until};
use rustix::process::{Pid, Signal, kill_process};

/// A process of a run, by its part in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Pond,
    Launcher,
    /// Waits in namespaces made ahead, and bears pid 1.
    Bearer,
    /// Builds the root that pid 1 will stand in, for root, and ends.
    Builder,
    /// Makes the disk, for root.
    Maker,
    /// Pid 1 of the sandbox, from its birth on.
    Init,
    /// Keeps the namespace that translates owners until a descriptor does.
    Holder,
    /// Until it is the command.
    Job,
    /// No part of pond: the shell that becomes pond, a formatter, the command.
    Other,
}

/// Where a job's copy lies, which decides who is born when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copy {
    OnDisk,
    InMemory,
}

/// Whom to kill, on the way into which of its steps. Before the first comes whatever call it makes at all.
#[derive(Debug, Clone, Copy)]
pub(super) struct Victim {
    pub(super) role: Role,
    pub(super) step: usize,
}

/// What became of a run.
#[derive(Debug, Default)]
pub(super) struct Traced {
    /// The number of the system call the victim did not live to make.
    pub(super) killed_before: Option<u64>,
    /// pond's own exit code, unless it was the victim.
    pub(super) code: Option<u8>,
    /// What it wrote to standard error.
    pub(super) said: String,
    /// A sandbox was begun.
    pub(super) launched: bool,
}

/// Calls that change nothing outside the caller, or only what it alone holds and its death gives up.
const NO_STEPS: [libc::c_long; 51] = [
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_brk,
    libc::SYS_close,
    libc::SYS_dup2,
    libc::SYS_faccessat,
    libc::SYS_fcntl,
    libc::SYS_fgetxattr,
    libc::SYS_fsconfig,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_landlock_add_rule,
    libc::SYS_lseek,
    libc::SYS_mmap,
    libc::SYS_mount_setattr,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_newfstatat,
    libc::SYS_open_tree,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_pread64,
    libc::SYS_prlimit64,
    libc::SYS_read,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sched_getaffinity,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_stat,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_umask,
    libc::SYS_uname,
    libc::SYS_wait4,
    libc::SYS_waitid,
];

/// The bit that asks for a file without a name, without the one it shares with other calls.
const UNNAMED: libc::c_int = libc::O_TMPFILE & !libc::O_DIRECTORY;

fn is_step(call: u64, arguments: [u64; 6]) -> bool {
    let is = |one: libc::c_long| u64::try_from(one) == Ok(call);
    let [_, second, third, ..] = arguments;
    let makes = |flags: u64| flags & u64::from((libc::O_CREAT | UNNAMED).unsigned_abs()) != 0;
    if is(libc::SYS_open) {
        makes(second)
    } else if is(libc::SYS_openat) {
        makes(third)
    } else {
        !NO_STEPS.iter().any(|other| is(*other))
    }
}

/// What the shell that a run begins with is told: wait to be seized, then become pond.
pub(super) const BECOME: &str = "kill -STOP $$; exec \"$@\"";

/// Starts a shell that does as [`BECOME`] says, and watches until nothing of it is alive.
#[expect(clippy::zombie_processes, reason = "the tracer waits for every child there is")]
pub(super) fn run(shell: &mut Command, victim: Victim, copy: Copy) -> Traced {
    let mut said = tempfile::tempfile().unwrap();
    let shell = shell.stdout(Stdio::null()).stderr(said.try_clone().unwrap()).spawn().unwrap();
    let first = Pid::from_child(&shell);
    trace::seize(first).unwrap();
    let (tracees, unborn, seen) = (HashMap::new(), HashSet::new(), Traced::default());
    let mut watch = Watch { victim, copy, first, tracees, unborn, seen };
    watch.tracees.insert(first, Tracee::of(Role::Other));
    while let Some((process, event)) = trace::next().unwrap() {
        watch.follow(process, event);
    }
    said.rewind().unwrap();
    said.read_to_string(&mut watch.seen.said).unwrap();
    watch.seen
}

#[derive(Debug)]
struct Tracee {
    role: Role,
    steps: usize,
    children: usize,
}

impl Tracee {
    fn of(role: Role) -> Self {
        Self { role, steps: 0, children: 0 }
    }

    /// The part of its next child.
    fn next_child(&mut self, copy: Copy) -> Role {
        self.children += 1;
        let (of_launcher, of_bearer) = match copy {
            Copy::OnDisk => {
                ([Role::Bearer, Role::Holder, Role::Maker].as_slice(), [Role::Builder, Role::Init].as_slice())
            }
            Copy::InMemory => ([Role::Bearer].as_slice(), [Role::Init].as_slice()),
        };
        match self.role {
            Role::Pond if self.children == 1 => Role::Launcher,
            Role::Launcher => of_launcher.get(self.children - 1).copied().unwrap_or(Role::Other),
            Role::Bearer => of_bearer.get(self.children - 1).copied().unwrap_or(Role::Other),
            Role::Init if self.children == 1 => Role::Job,
            Role::Pond
            | Role::Builder
            | Role::Maker
            | Role::Init
            | Role::Holder
            | Role::Job
            | Role::Other => Role::Other,
        }
    }
}

struct Watch {
    victim: Victim,
    copy: Copy,
    first: Pid,
    tracees: HashMap<Pid, Tracee>,
    /// Stopped at their first instruction before their parent said that they are there.
    unborn: HashSet<Pid>,
    seen: Traced,
}

impl Watch {
    fn follow(&mut self, process: Pid, event: Event) {
        if let Event::Ended(status) = event {
            self.tracees.remove(&process);
            if process == self.first
                && let Status::Exited(code) = status
            {
                self.seen.code = Some(code);
            }
            return;
        }
        let Some(tracee) = self.tracees.get_mut(&process) else {
            self.unborn.insert(process);
            return;
        };
        match event {
            Event::Born(child) => {
                let role = tracee.next_child(self.copy);
                self.seen.launched |= role == Role::Init;
                self.tracees.insert(child, Tracee::of(role));
                if self.unborn.remove(&child) {
                    self.resume(child, 0);
                }
            }
            Event::Executed => match (tracee.role, process == self.first) {
                (Role::Other, true) => tracee.role = Role::Pond,
                (Role::Job, _) => tracee.role = Role::Other,
                (
                    Role::Pond
                    | Role::Launcher
                    | Role::Bearer
                    | Role::Builder
                    | Role::Maker
                    | Role::Init
                    | Role::Holder
                    | Role::Other,
                    _,
                ) => {}
            },
            Event::Entering(call, arguments) => self.step(process, call, arguments),
            Event::Signal(_) | Event::Stopped | Event::Ended(_) => {}
        }
        // The stop the shell gave itself has done its work.
        let signal = match event {
            Event::Signal(signal) if signal != libc::SIGSTOP => signal,
            Event::Signal(_)
            | Event::Born(_)
            | Event::Executed
            | Event::Entering(..)
            | Event::Stopped
            | Event::Ended(_) => 0,
        };
        self.resume(process, signal);
    }

    fn step(&mut self, process: Pid, call: u64, arguments: [u64; 6]) {
        let Some(tracee) = self.tracees.get_mut(&process) else { return };
        let victim = self.victim;
        if victim.role != tracee.role {
            return;
        }
        tracee.steps += usize::from(is_step(call, arguments));
        if tracee.steps >= victim.step {
            kill_process(process, Signal::KILL).unwrap();
            self.seen.killed_before = Some(call);
        }
    }

    /// Only the victim is watched from call to call.
    fn resume(&self, process: Pid, signal: i32) {
        let role = self.tracees.get(&process).map(|tracee| tracee.role);
        let is_watched = self.seen.killed_before.is_none() && role == Some(self.victim.role);
        let until = if is_watched { Until::NextCall } else { Until::NextEvent };
        match trace::resume(process, until, signal) {
            // Killed meanwhile.
            Err(fault) if fault.raw_os_error() != Some(libc::ESRCH) => panic!("{fault}"),
            Ok(()) | Err(_) => {}
        }
    }
}
