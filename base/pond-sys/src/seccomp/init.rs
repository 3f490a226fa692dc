//! What pid 1 of a sandbox may ask of the kernel once the job runs.
//!
//! Zone: trusted, pure data about a process in the hostile zone. A call not named here is a bug or an attack, and ends pid 1
//! and with it the whole sandbox.

use libc::*;

use super::arguments;
use super::decision::ALLOW;
use super::table::Group;

#[rustfmt::skip]
pub(super) const INIT: &[Group] = &[
    // Wait for the job, its signals and the lifeline.
    Group {
        decision: ALLOW,
        calls: &[
            SYS_ppoll, SYS_wait4, SYS_waitid, SYS_signalfd4, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigpending,
            SYS_rt_sigtimedwait, SYS_rt_sigsuspend, SYS_rt_sigreturn, SYS_sigaltstack, SYS_restart_syscall,
            SYS_clock_gettime, SYS_nanosleep, SYS_clock_nanosleep, SYS_sched_yield, SYS_futex, SYS_getpid,
        ],
    },
    // Relay bytes on descriptors it already holds, pass signals on, end.
    Group {
        decision: ALLOW,
        calls: &[SYS_read, SYS_write, SYS_close, SYS_kill, SYS_exit, SYS_exit_group],
    },
    // Count the job's sockets for routing messages, and say whether there may be one more.
    Group { decision: ALLOW, calls: &[SYS_pread64] },
    Group { decision: arguments::NOTICES, calls: &[SYS_ioctl] },
    // An allocator's needs.
    Group {
        decision: ALLOW,
        calls: &[SYS_brk, SYS_munmap, SYS_madvise],
    },
    Group { decision: arguments::DATA_MAPPING, calls: &[SYS_mmap] },
];

#[cfg(target_arch = "x86_64")]
pub(super) const INIT_HERITAGE: &[Group] = &[Group { decision: ALLOW, calls: &[SYS_poll] }];
#[cfg(target_arch = "aarch64")]
pub(super) const INIT_HERITAGE: &[Group] = &[];
