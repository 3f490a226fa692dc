//! Follows a run of pond from system call to system call, knows its processes by their part in it, and ends one of them.

use std::collections::{HashMap, HashSet};
use std::process::{Child, Stdio};

use pond_sys::process::Status;
use pond_sys::trace::{self, Event, Until};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::World;

/// A process of a run, by its part in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Pond,
    Launcher,
    /// Pid 1 of the sandbox, from its birth on.
    Init,
    /// Keeps the namespace that translates owners until a descriptor does.
    Holder,
    /// Until it is the command.
    Job,
    /// No part of pond: the shell that becomes pond, a formatter, the command.
    Other,
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
    /// A sandbox was begun.
    pub(super) launched: bool,
}

/// Calls that change nothing outside the caller, or only give up what its death gives up too.
const NO_STEPS: [libc::c_long; 39] = [
    libc::SYS_arch_prctl,
    libc::SYS_brk,
    libc::SYS_close,
    libc::SYS_dup2,
    libc::SYS_faccessat,
    libc::SYS_fcntl,
    libc::SYS_fgetxattr,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_lseek,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_newfstatat,
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
];

fn is_step(call: u64) -> bool {
    !NO_STEPS.iter().any(|other| u64::try_from(*other) == Ok(call))
}

/// One `pond run` that changes a file, watched until nothing of it is alive.
pub(super) fn run(world: &World, victim: Victim) -> Traced {
    let shell = start(world);
    let first = Pid::from_child(&shell);
    trace::seize(first).unwrap();
    let mut watch =
        Watch { victim, first, tracees: HashMap::new(), unborn: HashSet::new(), seen: Traced::default() };
    watch.tracees.insert(first, Tracee::of(Role::Other));
    while let Some((process, event)) = trace::next().unwrap() {
        watch.follow(process, event);
    }
    watch.seen
}

/// A shell that waits to be seized, then becomes pond.
#[expect(clippy::disallowed_methods, reason = "tests start the program they test")]
fn start(world: &World) -> Child {
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", "kill -STOP $$; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_pond")])
        .args(["run", "--", "sh", "-c", "echo after > f"])
        .current_dir(world.project())
        .env("POND_STATE_DIR", world.state())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    shell.spawn().unwrap()
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
    fn next_child(&mut self) -> Role {
        self.children += 1;
        match (self.role, self.children) {
            (Role::Pond, 1) => Role::Launcher,
            (Role::Launcher, 1) => Role::Init,
            (Role::Launcher, 2) => Role::Holder,
            (Role::Init, 1) => Role::Job,
            (Role::Pond | Role::Launcher | Role::Init | Role::Holder | Role::Job | Role::Other, _) => {
                Role::Other
            }
        }
    }
}

struct Watch {
    victim: Victim,
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
                let role = tracee.next_child();
                self.seen.launched |= role == Role::Init;
                self.tracees.insert(child, Tracee::of(role));
                if self.unborn.remove(&child) {
                    self.resume(child, 0);
                }
            }
            Event::Executed => match (tracee.role, process == self.first) {
                (Role::Other, true) => tracee.role = Role::Pond,
                (Role::Job, _) => tracee.role = Role::Other,
                (Role::Pond | Role::Launcher | Role::Init | Role::Holder | Role::Other, _) => {}
            },
            Event::Entering(call) => self.step(process, call),
            Event::Signal(_) | Event::Stopped | Event::Ended(_) => {}
        }
        // The stop the shell gave itself has done its work.
        let signal = match event {
            Event::Signal(signal) if signal != libc::SIGSTOP => signal,
            Event::Signal(_)
            | Event::Born(_)
            | Event::Executed
            | Event::Entering(_)
            | Event::Stopped
            | Event::Ended(_) => 0,
        };
        self.resume(process, signal);
    }

    fn step(&mut self, process: Pid, call: u64) {
        let Some(tracee) = self.tracees.get_mut(&process) else { return };
        let victim = self.victim;
        if victim.role != tracee.role {
            return;
        }
        tracee.steps += usize::from(is_step(call));
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
