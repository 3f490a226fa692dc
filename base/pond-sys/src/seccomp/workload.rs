//! What a job may ask of the kernel. This is the file to read and to change.
//!
//! Zone: trusted, pure data. A call in no group does not exist as far as the job can tell (ENOSYS), so the calls of future
//! kernels stay shut until someone adds them here; a call in a refused group answers EPERM.

use libc::*;

use super::decision::{ABSENT, ALLOW, REFUSE, UNSUPPORTED};
use super::table::Group;
use super::{arguments, recent};

// One call per line would hide the policy behind its length.
#[rustfmt::skip]
pub(super) const WORKLOAD: &[Group] = &[
    // Files and directories: the mount table and Landlock decide which ones.
    Group {
        decision: ALLOW,
        calls: &[
            SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev, SYS_preadv2,
            SYS_pwritev2, SYS_lseek, SYS_close, SYS_close_range, SYS_openat, SYS_openat2, SYS_fstat, SYS_newfstatat,
            SYS_statx, SYS_statfs, SYS_fstatfs, SYS_getdents64, SYS_getcwd, SYS_chdir, SYS_fchdir, SYS_faccessat,
            SYS_faccessat2, SYS_fchmod, SYS_fchmodat, recent::FCHMODAT2, SYS_fchown, SYS_fchownat, SYS_linkat,
            SYS_symlinkat, SYS_readlinkat, SYS_unlinkat, SYS_renameat2, SYS_mkdirat, SYS_truncate,
            SYS_ftruncate, SYS_fallocate, SYS_fadvise64, SYS_readahead, SYS_umask, SYS_utimensat, SYS_flock, SYS_fcntl,
            SYS_dup, SYS_dup3, SYS_sync, SYS_syncfs, SYS_fsync, SYS_fdatasync, SYS_sendfile, SYS_splice, SYS_tee,
            SYS_vmsplice, SYS_copy_file_range, recent::CACHESTAT, recent::FILE_GETATTR,
        ],
    },
    // Nodes, but no devices: not every kernel that runs this filter asks for a capability first.
    Group {
        decision: arguments::NODE_AT,
        calls: &[SYS_mknodat],
    },
    // Extended attributes: they can be read and taken away. An access list is one too, as large as the kernel makes any, and in memory
    // filesystems no control group counts it; its name lies where a filter cannot read it.
    Group {
        decision: UNSUPPORTED,
        calls: &[SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, recent::SETXATTRAT],
    },
    Group {
        decision: ALLOW,
        calls: &[
            SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr, SYS_listxattr,
            SYS_llistxattr, SYS_flistxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr,
            recent::GETXATTRAT, recent::LISTXATTRAT, recent::REMOVEXATTRAT,
        ],
    },
    // Events and asynchronous waiting.
    Group {
        decision: ALLOW,
        calls: &[
            SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_eventfd2,
            SYS_signalfd4, SYS_timerfd_create, SYS_timerfd_settime, SYS_timerfd_gettime, SYS_inotify_init1,
            SYS_inotify_add_watch, SYS_inotify_rm_watch, SYS_pipe2,
        ],
    },
    // Kernel AIO counts requests once for the whole host: four calls reserve all there are, and its databases get none. Who
    // finds it missing uses threads.
    Group {
        decision: ABSENT,
        calls: &[SYS_io_setup, SYS_io_destroy, SYS_io_submit, SYS_io_getevents, SYS_io_cancel],
    },
    // Own memory; its amount is the cgroup's business.
    Group {
        decision: ALLOW,
        calls: &[
            SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_mincore, SYS_msync, SYS_brk, SYS_mlock,
            SYS_mlock2, SYS_munlock, SYS_mlockall, SYS_munlockall, SYS_memfd_create, SYS_membarrier, SYS_pkey_mprotect,
            SYS_pkey_alloc, SYS_pkey_free, SYS_remap_file_pages, recent::MSEAL, recent::MAP_SHADOW_STACK,
        ],
    },
    // Processes and threads of its own pid namespace.
    Group {
        decision: ALLOW,
        calls: &[
            SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group, SYS_wait4, SYS_waitid, SYS_getpid, SYS_getppid,
            SYS_gettid, SYS_getpgid, SYS_setpgid, SYS_getsid, SYS_setsid, SYS_set_tid_address, SYS_set_robust_list,
            SYS_get_robust_list, SYS_rseq, SYS_futex, SYS_futex_waitv, recent::FUTEX_WAKE, recent::FUTEX_WAIT,
            recent::FUTEX_REQUEUE, SYS_prctl, SYS_pidfd_open, SYS_pidfd_send_signal, SYS_restart_syscall,
        ],
    },
    // Signals of its own.
    Group {
        decision: ALLOW,
        calls: &[
            SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigpending, SYS_rt_sigtimedwait,
            SYS_rt_sigsuspend, SYS_sigaltstack,
        ],
    },
    // Signals to others, but none to pid 1: it waits for the job and tells of its end.
    Group {
        decision: arguments::SIGNAL,
        calls: &[SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo],
    },
    // Identity: without capabilities these only read, drop or repeat what the job already is.
    Group {
        decision: ALLOW,
        calls: &[
            SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getresuid, SYS_getresgid, SYS_getgroups, SYS_setuid,
            SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setfsuid, SYS_setfsgid,
            SYS_setgroups, SYS_capget, SYS_capset,
        ],
    },
    // Scheduling: lowering is free, raising needs capabilities.
    Group {
        decision: ALLOW,
        calls: &[
            SYS_sched_yield, SYS_sched_getaffinity, SYS_sched_setaffinity, SYS_sched_getparam, SYS_sched_setparam,
            SYS_sched_getscheduler, SYS_sched_setscheduler, SYS_sched_getattr, SYS_sched_setattr,
            SYS_sched_get_priority_max, SYS_sched_get_priority_min, SYS_sched_rr_get_interval, SYS_getpriority,
            SYS_setpriority, SYS_ioprio_get, SYS_ioprio_set, SYS_getrusage, SYS_times, SYS_getcpu,
        ],
    },
    // Limits likewise, but for the size of core files, which stays.
    Group {
        decision: arguments::LIMIT,
        calls: &[SYS_prlimit64],
    },
    // Reading clocks and sleeping.
    Group {
        decision: ALLOW,
        calls: &[
            SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday, SYS_getitimer,
            SYS_setitimer, SYS_timer_create, SYS_timer_settime, SYS_timer_gettime, SYS_timer_getoverrun,
            SYS_timer_delete,
        ],
    },
    // Sockets once made; making them is checked below.
    Group {
        decision: ALLOW,
        calls: &[
            SYS_bind, SYS_connect, SYS_listen, SYS_accept, SYS_accept4, SYS_getsockname, SYS_getpeername,
            SYS_getsockopt, SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_sendmmsg,
            SYS_recvmmsg, SYS_shutdown,
        ],
    },
    // Their options, but no programs on them and no other protocol beneath them.
    Group { decision: arguments::SET_OPTION, calls: &[SYS_setsockopt] },
    // System V and POSIX queues, semaphores, shared memory: confined to the ipc namespace.
    Group {
        decision: ALLOW,
        calls: &[
            SYS_shmget, SYS_shmat, SYS_shmdt, SYS_shmctl, SYS_semget, SYS_semop, SYS_semtimedop, SYS_semctl, SYS_msgget,
            SYS_msgsnd, SYS_msgrcv, SYS_msgctl, SYS_mq_open, SYS_mq_unlink, SYS_mq_timedsend, SYS_mq_timedreceive,
            SYS_mq_notify, SYS_mq_getsetattr,
        ],
    },
    // Facts about the machine that cost nothing to know.
    Group {
        decision: ALLOW,
        calls: &[SYS_uname, SYS_sysinfo, SYS_getrandom],
    },
    // A job may confine itself further: both only ever take rights away.
    Group {
        decision: ALLOW,
        calls: &[
            SYS_seccomp, SYS_landlock_create_ruleset, SYS_landlock_add_rule, SYS_landlock_restrict_self,
        ],
    },
    // Threads and forks, but no new namespace: each one opens kernel code meant for administrators.
    Group {
        decision: arguments::CLONE,
        calls: &[SYS_clone],
    },
    // Its flags lie in memory where a filter cannot read them; C libraries fall back to clone.
    Group {
        decision: ABSENT,
        calls: &[SYS_clone3],
    },
    // Only local pairs exist in practice.
    Group {
        decision: arguments::SOCKET_PAIR,
        calls: &[SYS_socketpair],
    },
    // All but a few requests.
    Group { decision: arguments::IOCTL, calls: &[SYS_ioctl] },
    // Asking is free; the other personalities switch off address randomisation and its like.
    Group {
        decision: arguments::PERSONALITY,
        calls: &[SYS_personality],
    },
    // io_uring performs calls this filter would never see.
    Group {
        decision: REFUSE,
        calls: &[SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register],
    },
    // Kernel programmability and its favourite exploit helpers.
    Group {
        decision: REFUSE,
        calls: &[SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_fanotify_init, SYS_fanotify_mark],
    },
    // Keyrings outlive and cross containers.
    Group {
        decision: REFUSE,
        calls: &[SYS_add_key, SYS_request_key, SYS_keyctl],
    },
    // The mount table and root are the sandbox.
    Group {
        decision: REFUSE,
        calls: &[
            SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_open_tree, recent::OPEN_TREE_ATTR, SYS_move_mount,
            SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_mount_setattr, recent::STATMOUNT, recent::LISTMOUNT,
        ],
    },
    // Namespaces: none to enter, none to make.
    Group {
        decision: REFUSE,
        calls: &[SYS_setns, SYS_unshare, SYS_sethostname, SYS_setdomainname],
    },
    // Handles open files without walking to them.
    Group {
        decision: REFUSE,
        calls: &[SYS_name_to_handle_at, SYS_open_by_handle_at, SYS_lookup_dcookie],
    },
    // Reach into another process.
    Group {
        decision: REFUSE,
        calls: &[
            SYS_process_vm_readv, SYS_process_vm_writev, SYS_process_madvise, SYS_process_mrelease, SYS_kcmp,
            SYS_pidfd_getfd,
        ],
    },
    // The machine: kernels, modules, power, swap, accounting, logs.
    Group {
        decision: REFUSE,
        calls: &[
            SYS_kexec_load, SYS_kexec_file_load, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_reboot,
            SYS_swapon, SYS_swapoff, SYS_quotactl, SYS_quotactl_fd, SYS_acct, SYS_syslog, SYS_vhangup, SYS_nfsservctl,
        ],
    },
    // The clock belongs to the host.
    Group {
        decision: REFUSE,
        calls: &[SYS_settimeofday, SYS_clock_settime, SYS_adjtimex, SYS_clock_adjtime],
    },
    // Page placement reveals and disturbs neighbours; NUMA libraries do without when refused.
    Group {
        decision: REFUSE,
        calls: &[
            SYS_mbind, SYS_set_mempolicy, SYS_get_mempolicy, SYS_migrate_pages, SYS_move_pages,
            SYS_set_mempolicy_home_node,
        ],
    },
    // Memory the host cannot see, labels of other security modules, flags the ioctl rule refuses.
    Group {
        decision: REFUSE,
        calls: &[
            SYS_memfd_secret, recent::LSM_GET_SELF_ATTR, recent::LSM_SET_SELF_ATTR, recent::LSM_LIST_MODULES,
            recent::FILE_SETATTR,
        ],
    },
];

/// Address families and protocols.
pub(super) const SOCKETS: &[Group] = &[Group { decision: arguments::SOCKET, calls: &[SYS_socket] }];
pub(super) const COUNTED_SOCKETS: &[Group] =
    &[Group { decision: arguments::COUNTED_SOCKET, calls: &[SYS_socket] }];

/// Debuggers, on the job's own processes: init is not dumpable and outside the Landlock domain.
pub(super) const TRACING: Group = Group { decision: ALLOW, calls: &[SYS_ptrace] };

/// Ptrace rewrites another process's calls after they were judged.
pub(super) const NO_TRACING: Group = Group { decision: REFUSE, calls: &[SYS_ptrace] };

/// Calls only the oldest numbering has; newer architectures know their modern forms above.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
pub(super) const HERITAGE: &[Group] = &[
    // Older names of what is allowed above.
    Group {
        decision: ALLOW,
        calls: &[
            SYS_open, SYS_creat, SYS_stat, SYS_lstat, SYS_access, SYS_chmod, SYS_chown, SYS_lchown, SYS_link, SYS_symlink,
            SYS_readlink, SYS_unlink, SYS_rename, SYS_renameat, SYS_mkdir, SYS_rmdir, SYS_getdents, SYS_dup2,
            SYS_pipe, SYS_poll, SYS_select, SYS_epoll_create, SYS_epoll_wait, SYS_eventfd, SYS_signalfd,
            SYS_inotify_init, SYS_utime, SYS_utimes, SYS_futimesat, SYS_alarm, SYS_pause, SYS_time, SYS_fork, SYS_vfork,
            SYS_getpgrp, SYS_getrlimit, SYS_sync_file_range,
        ],
    },
    // As the rest of kernel AIO.
    Group {
        decision: ABSENT,
        calls: &[IO_PGETEVENTS],
    },
    // As for their modern forms above.
    Group {
        decision: arguments::NODE,
        calls: &[SYS_mknod],
    },
    Group {
        decision: arguments::SET_LIMIT,
        calls: &[SYS_setrlimit],
    },
    // Thread-local storage and control-flow protection.
    Group {
        decision: ALLOW,
        calls: &[SYS_arch_prctl],
    },
    // The kernel's own trampolines: a program being traced from the host would crash without them.
    Group {
        decision: ALLOW,
        calls: &[URETPROBE, UPROBE],
    },
    // Ports, segments and leftovers of other systems.
    Group {
        decision: REFUSE,
        calls: &[
            SYS_iopl, SYS_ioperm, SYS_modify_ldt, SYS_uselib, SYS_ustat, SYS_sysfs, SYS__sysctl,
        ],
    },
];
#[cfg(target_arch = "x86_64")]
const IO_PGETEVENTS: c_long = 333;
#[cfg(target_arch = "x86_64")]
const URETPROBE: c_long = 335;
#[cfg(target_arch = "x86_64")]
const UPROBE: c_long = 336;

/// What the C library's table leaves out for this architecture: renameat, sync_file_range, getrlimit, setrlimit and
/// io_pgetevents.
#[cfg(target_arch = "aarch64")]
pub(super) const HERITAGE: &[Group] = &[
    Group { decision: ALLOW, calls: &[38, 84, 163] },
    Group { decision: ABSENT, calls: &[292] },
    Group { decision: arguments::SET_LIMIT, calls: &[164] },
];
