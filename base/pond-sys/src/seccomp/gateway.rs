//! What a job's gateway may ask of the kernel once it serves.
//!
//! Zone: trusted, pure data about a process that reads hostile bytes and holds a key. A call not named here is a bug or an
//! attack, and ends the gateway and with it every way out of the job.

use libc::*;

use super::arguments;
use super::decision::{ALLOW, REFUSE};
use super::table::Group;

#[rustfmt::skip]
pub(super) const GATEWAY: &[Group] = &[
    // Take connections, make connections, move bytes between them.
    Group {
        decision: ALLOW,
        calls: &[
            SYS_accept4, SYS_connect, SYS_bind, SYS_shutdown, SYS_getsockname, SYS_getpeername, SYS_getsockopt,
            SYS_setsockopt, SYS_read, SYS_readv, SYS_write, SYS_writev, SYS_recvfrom, SYS_recvmsg, SYS_sendto,
            SYS_sendmsg, SYS_splice, SYS_pipe2, SYS_fcntl, SYS_close, SYS_lseek, SYS_pwrite64,
        ],
    },
    Group { decision: arguments::INTERNET_SOCKET, calls: &[SYS_socket] },
    Group { decision: arguments::NON_BLOCKING, calls: &[SYS_ioctl] },
    // Wait, know the time, be random, end.
    Group {
        decision: ALLOW,
        calls: &[
            SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_eventfd2, SYS_ppoll,
            SYS_clock_gettime, SYS_gettimeofday, SYS_nanosleep, SYS_clock_nanosleep, SYS_futex, SYS_sched_yield,
            SYS_getrandom, SYS_getpid, SYS_gettid, SYS_sched_getaffinity, SYS_rt_sigaction, SYS_rt_sigprocmask,
            SYS_rt_sigreturn, SYS_sigaltstack, SYS_restart_syscall, SYS_exit, SYS_exit_group,
        ],
    },
    // An allocator's needs.
    Group { decision: ALLOW, calls: &[SYS_brk, SYS_munmap, SYS_mremap, SYS_madvise] },
    Group { decision: arguments::DATA_MAPPING, calls: &[SYS_mmap, SYS_mprotect] },
    // Libraries look for files that may be absent and go on without them.
    Group { decision: REFUSE, calls: &[SYS_openat, SYS_newfstatat, SYS_readlinkat, SYS_faccessat, SYS_statx] },
];

#[cfg(target_arch = "x86_64")]
pub(super) const GATEWAY_HERITAGE: &[Group] = &[
    Group { decision: ALLOW, calls: &[SYS_epoll_wait, SYS_poll] },
    Group { decision: REFUSE, calls: &[SYS_open, SYS_readlink, SYS_access, SYS_stat] },
];
#[cfg(target_arch = "aarch64")]
pub(super) const GATEWAY_HERITAGE: &[Group] = &[];
