//! The filters in a real kernel: what a confined child is told, and that without the filter it is told otherwise.
//!
//! Every probe is harmless when it is let through, even as root: it names descriptors, addresses or requests that do not exist.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::{EAFNOSUPPORT, EBADF, EFAULT, EOPNOTSUPP, EPERM, EPROTONOSUPPORT, c_int, c_long};

use super::{Filter, Profile, arguments, compile, install, recent};

const NOWHERE: u64 = 1;
const CORE: u64 = 4;
#[cfg(target_arch = "x86_64")]
const IO_PGETEVENTS: c_long = 333;
#[cfg(target_arch = "aarch64")]
const IO_PGETEVENTS: c_long = 292;
const NO_DESCRIPTOR: u64 = u64::MAX;
const HIGH: u64 = 0xDEAD_BEEF_0000_0000;

/// What the kernel says without the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Without {
    /// Something else: the filter is what refuses.
    Differs,
    /// The same: the call is allowed, or this kernel lacks it anyway.
    Alike,
}

struct Probe {
    number: c_long,
    arguments: [u64; 4],
    /// A refusal's errno, or none when the call succeeds.
    told: Result<(), c_int>,
    without: Without,
}

const fn refused(number: c_long, arguments: [u64; 4]) -> Probe {
    Probe { number, arguments, told: Err(EPERM), without: Without::Differs }
}

const fn told(number: c_long, arguments: [u64; 4], errno: c_int) -> Probe {
    Probe { number, arguments, told: Err(errno), without: Without::Differs }
}

const fn pretended(number: c_long, arguments: [u64; 4]) -> Probe {
    Probe { number, arguments, told: Ok(()), without: Without::Differs }
}

const fn allowed(number: c_long, arguments: [u64; 4], told: Result<(), c_int>) -> Probe {
    Probe { number, arguments, told, without: Without::Alike }
}

#[rustfmt::skip]
const PROBES: &[Probe] = &[
    allowed(libc::SYS_getpid, [0; 4], Ok(())),
    allowed(libc::SYS_prctl, [3, 0, 0, 0], Ok(())),
    allowed(libc::SYS_personality, [0xFFFF_FFFF, 0, 0, 0], Ok(())),
    allowed(libc::SYS_socket, [1, 0x80001, 0, 0], Ok(())),
    allowed(libc::SYS_socket, [2, 0x80801, 6, 0], Ok(())),
    allowed(libc::SYS_socket, [2, 2, 0, 0], Ok(())),
    allowed(libc::SYS_socket, [16, 3, 0, 0], Ok(())),
    allowed(libc::SYS_ioctl, [NO_DESCRIPTOR, 0x540E, 0, 0], Err(EBADF)),
    allowed(libc::SYS_dup, [NO_DESCRIPTOR, 0, 0, 0], Err(EBADF)),
    allowed(1000, [0; 4], Err(libc::ENOSYS)),
    allowed(libc::SYS_prlimit64, [0, CORE, 0, 0], Ok(())),
    allowed(libc::SYS_prlimit64, [0, CORE + 1, NOWHERE, 0], Err(EFAULT)),
    pretended(libc::SYS_prlimit64, [0, CORE, NOWHERE, 0]),
    pretended(libc::SYS_prlimit64, [0, HIGH | CORE, NOWHERE, 0]),
    pretended(libc::SYS_prlimit64, [0, CORE, HIGH, 0]),
    pretended(libc::SYS_setrlimit, [CORE, NOWHERE, 0, 0]),
    told(libc::SYS_clone3, [0; 4], libc::ENOSYS),
    told(libc::SYS_io_setup, [1, NOWHERE, 0, 0], libc::ENOSYS),
    told(libc::SYS_io_submit, [NOWHERE, 0, 0, 0], libc::ENOSYS),
    told(IO_PGETEVENTS, [NOWHERE, 0, 0, 0], libc::ENOSYS),
    refused(libc::SYS_clone, [0x0002_0200, 0, 0, 0]),
    refused(libc::SYS_clone, [HIGH | 0x0002_0200, 0, 0, 0]),
    refused(libc::SYS_unshare, [0; 4]),
    refused(libc::SYS_setns, [NO_DESCRIPTOR, 0, 0, 0]),
    refused(libc::SYS_mount, [NOWHERE; 4]),
    refused(libc::SYS_umount2, [NOWHERE, 0, 0, 0]),
    refused(libc::SYS_pivot_root, [NOWHERE, NOWHERE, 0, 0]),
    refused(libc::SYS_chroot, [NOWHERE, 0, 0, 0]),
    refused(libc::SYS_fsopen, [NOWHERE, 0, 0, 0]),
    refused(libc::SYS_open_tree, [NO_DESCRIPTOR, NOWHERE, 0, 0]),
    refused(recent::STATMOUNT, [NOWHERE, NOWHERE, 0, 0]),
    refused(libc::SYS_name_to_handle_at, [NO_DESCRIPTOR, NOWHERE, NOWHERE, NOWHERE]),
    refused(libc::SYS_open_by_handle_at, [NO_DESCRIPTOR, NOWHERE, 0, 0]),
    refused(libc::SYS_bpf, [9999, NOWHERE, 0, 0]),
    refused(libc::SYS_perf_event_open, [NOWHERE, 0, 0, NO_DESCRIPTOR]),
    refused(libc::SYS_userfaultfd, [0xFFFF, 0, 0, 0]),
    refused(libc::SYS_io_uring_setup, [1, NOWHERE, 0, 0]),
    refused(libc::SYS_keyctl, [9999, 0, 0, 0]),
    refused(libc::SYS_add_key, [NOWHERE, NOWHERE, 0, 0]),
    refused(libc::SYS_process_vm_readv, [1, 0, 0, 0]),
    refused(libc::SYS_kcmp, [0, 0, 9999, 0]),
    refused(libc::SYS_pidfd_getfd, [NO_DESCRIPTOR, 0, 0, 0]),
    refused(libc::SYS_ptrace, [2, 0, 0, 0]),
    refused(libc::SYS_personality, [0x0004_0000, 0, 0, 0]),
    refused(libc::SYS_settimeofday, [0; 4]),
    refused(libc::SYS_clock_settime, [9999, NOWHERE, 0, 0]),
    refused(libc::SYS_adjtimex, [NOWHERE, 0, 0, 0]),
    refused(libc::SYS_swapon, [NOWHERE, 0, 0, 0]),
    refused(libc::SYS_reboot, [0; 4]),
    refused(libc::SYS_acct, [NOWHERE, 0, 0, 0]),
    refused(libc::SYS_syslog, [10, 0, 0, 0]),
    refused(libc::SYS_finit_module, [NO_DESCRIPTOR, NOWHERE, 0, 0]),
    refused(libc::SYS_memfd_secret, [0xFFFF, 0, 0, 0]),
    refused(libc::SYS_sethostname, [NOWHERE, u64::MAX, 0, 0]),
    refused(libc::SYS_fanotify_init, [0xFFFF_FFFF, 0, 0, 0]),
    refused(libc::SYS_kill, [1, 9999, 0, 0]),
    refused(libc::SYS_mknodat, [NO_DESCRIPTOR, NOWHERE, 0o020666, 0]),
    refused(libc::SYS_socket, [2, 3, 1, 0]),
    refused(libc::SYS_socket, [HIGH | 2, HIGH | 0x80803, HIGH | 1, 0]),
    told(libc::SYS_socket, [2, 2, 136, 0], EPROTONOSUPPORT),
    told(libc::SYS_socket, [16, 3, 15, 0], EAFNOSUPPORT),
    told(libc::SYS_socket, [17, 3, 0, 0], EAFNOSUPPORT),
    told(libc::SYS_socketpair, [2, 1, 0, NOWHERE], EAFNOSUPPORT),
    refused(libc::SYS_setsockopt, [NO_DESCRIPTOR, 1, arguments::SO_ATTACH_FILTER as u64, 0]),
    refused(libc::SYS_setsockopt, [NO_DESCRIPTOR, HIGH | 1, HIGH | arguments::SO_ATTACH_FILTER as u64, 0]),
    refused(libc::SYS_setsockopt, [NO_DESCRIPTOR, 1, arguments::SO_ATTACH_BPF as u64, 0]),
    refused(libc::SYS_setsockopt, [NO_DESCRIPTOR, 1, arguments::SO_ATTACH_REUSEPORT_CBPF as u64, 0]),
    refused(libc::SYS_setsockopt, [NO_DESCRIPTOR, 1, arguments::SO_ATTACH_REUSEPORT_EBPF as u64, 0]),
    refused(libc::SYS_setsockopt, [NO_DESCRIPTOR, 6, arguments::TCP_ULP as u64, 0]),
    refused(libc::SYS_setsockopt, [NO_DESCRIPTOR, 6, arguments::TCP_KEYS[0] as u64, 0]),
    refused(libc::SYS_setsockopt, [NO_DESCRIPTOR, 6, arguments::TCP_KEYS[4] as u64, 0]),
    refused(libc::SYS_setsockopt, [NO_DESCRIPTOR, HIGH | 41, HIGH | arguments::IPV6_FLOWLABEL_MGR as u64, 0]),
    told(libc::SYS_fsetxattr, [NO_DESCRIPTOR, NOWHERE, 0, 0], EOPNOTSUPP),
    told(libc::SYS_setxattr, [NOWHERE, NOWHERE, 0, 0], EOPNOTSUPP),
    allowed(libc::SYS_setsockopt, [NO_DESCRIPTOR, 1, 2, 0], Err(EBADF)),
    allowed(libc::SYS_setsockopt, [NO_DESCRIPTOR, 6, 1, 0], Err(EBADF)),
    allowed(libc::SYS_setsockopt, [NO_DESCRIPTOR, 41, 26, 0], Err(EBADF)),
    allowed(libc::SYS_setsockopt, [NO_DESCRIPTOR, 0, arguments::SO_ATTACH_FILTER as u64, 0], Err(EBADF)),
    refused(libc::SYS_ioctl, [NO_DESCRIPTOR, arguments::TIOCSTI as u64, 0, 0]),
    refused(libc::SYS_ioctl, [NO_DESCRIPTOR, HIGH | arguments::TIOCSTI as u64, 0, 0]),
    refused(libc::SYS_ioctl, [NO_DESCRIPTOR, arguments::TIOCLINUX as u64, 0, 0]),
    refused(libc::SYS_ioctl, [NO_DESCRIPTOR, arguments::TIOCSETD as u64, 0, 0]),
    refused(libc::SYS_ioctl, [NO_DESCRIPTOR, arguments::FS_IOC_SETFLAGS as u64, 0, 0]),
    refused(libc::SYS_ioctl, [NO_DESCRIPTOR, arguments::FS_IOC_FSSETXATTR as u64, 0, 0]),
];

#[test]
fn a_workload_is_told_what_the_policy_says_and_the_filter_is_why() {
    let filter = compile(Profile::Workload);
    let confined = observe(&[&filter]);
    let free = observe(&[]);
    for ((probe, confined), free) in PROBES.iter().zip(confined).zip(free) {
        let Probe { number, arguments, .. } = probe;
        assert_eq!(confined, probe.told, "call {number} with {arguments:x?}");
        if !rustix::process::geteuid().is_root() {
            // The kernel itself answers EPERM to an ordinary user for many of these.
            continue;
        }
        let without = if free == probe.told { Without::Alike } else { Without::Differs };
        assert_eq!(without, probe.without, "call {number} with {arguments:x?}, unconfined: {free:?}");
    }
}

#[test]
fn the_limit_of_core_files_stays_whatever_programs_set() {
    let filter = compile(Profile::Workload);
    let limit = |bytes| libc::rlimit { rlim_cur: bytes, rlim_max: 1 };
    let set = |bytes| {
        let wanted = limit(bytes);
        // SAFETY: the limit is a live structure of this stack.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const wanted) }
    };
    let left = || {
        let mut now = limit(99);
        // SAFETY: the kernel fills this one structure.
        let told = unsafe { libc::getrlimit(libc::RLIMIT_CORE, &raw mut now) };
        exit(if told == 0 { c_int::try_from(now.rlim_cur).unwrap_or(98) } else { 97 })
    };
    let confined = || {
        raw(libc::SYS_prctl, [38, 1, 0, 0]).ok();
        if set(1) == 0 && install(&filter).is_ok() && set(0) == 0 {
            left();
        }
    };
    let free = || {
        if set(1) == 0 && set(0) == 0 {
            left();
        }
    };
    assert_eq!((child(&[], confined), child(&[], free)), (Ending::Exited(1), Ending::Exited(0)));
}

#[test]
fn a_later_filter_does_not_loosen_an_earlier_one() {
    let (strict, loose) = (compile(Profile::Workload), compile(Profile::WorkloadDebug));
    let ptrace = PROBES.iter().position(|probe| probe.number == libc::SYS_ptrace).unwrap();
    assert_eq!(observe(&[&strict, &loose])[ptrace], Err(EPERM));
    assert_eq!(observe(&[&loose])[ptrace], Err(libc::ESRCH));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_32_bit_call_kills_a_workload() {
    let filter = compile(Profile::Workload);
    let getpid_of_i386 = || {
        // SAFETY: getpid takes no pointer; the clobbers name every register the 32-bit entry may zero.
        unsafe {
            std::arch::asm!("int 0x80", inlateout("rax") 20 => _, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
        }
    };
    assert_eq!(child(&[&filter], getpid_of_i386), Ending::Signalled(libc::SIGSYS));
    assert_ne!(child(&[], getpid_of_i386), Ending::Signalled(libc::SIGSYS));
}

#[test]
fn an_unlisted_call_kills_init() {
    let filter = compile(Profile::Init);
    let ask = |number: c_long| {
        move || {
            raw(number, [NO_DESCRIPTOR, NOWHERE, 0, 0]).ok();
        }
    };
    assert_eq!(child(&[&filter], ask(libc::SYS_openat)), Ending::Signalled(libc::SIGSYS));
    assert_eq!(child(&[&filter], ask(1000)), Ending::Signalled(libc::SIGSYS));
    assert_eq!(child(&[&filter], ask(libc::SYS_read)), Ending::Exited(0));
    assert_eq!(child(&[], ask(libc::SYS_openat)), Ending::Exited(0));
}

#[test]
fn the_filter_survives_fork_and_exec_and_lets_programs_work() {
    let filter = compile(Profile::Workload);
    let shell = |script: &'static std::ffi::CStr| {
        move || {
            let arguments = [c"sh".as_ptr(), c"-c".as_ptr(), script.as_ptr(), std::ptr::null()];
            let environment = [c"PATH=/usr/bin:/bin".as_ptr(), std::ptr::null()];
            // SAFETY: both arrays end in null, their strings are static, and nothing runs after a successful exec.
            unsafe { libc::execve(c"/bin/sh".as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        }
    };
    let pipeline = shell(c"test \"$(echo one two | cat | wc -w)\" -eq 2");
    let namespace = shell(c"exec 2>/dev/null; ( unshare --user true ); exit $?");
    assert_eq!(child(&[&filter], pipeline), Ending::Exited(0));
    assert_eq!(child(&[&filter], namespace), Ending::Exited(1));
    assert_eq!(child(&[], namespace), Ending::Exited(0));
}

#[test]
fn the_kernel_refuses_a_filter_without_no_new_privs() {
    let filter = compile(Profile::Workload);
    let as_nobody = || {
        raw(libc::SYS_setresuid, [65534, 65534, 65534, 0]).ok();
        let refusal = install(&filter).map_err(|error| error.raw_os_error());
        exit(if refusal == Err(Some(libc::EACCES)) { 7 } else { 8 })
    };
    assert_eq!(child(&[], as_nobody), Ending::Exited(7));
}

/// Runs every probe in a child under these filters.
fn observe(filters: &[&Filter]) -> Vec<Result<(), c_int>> {
    let (reader, writer) = pipe();
    let ending = child(filters, || {
        for Probe { number, arguments, .. } in PROBES {
            let errno = raw(*number, *arguments).err().unwrap_or_default();
            // SAFETY: the four bytes written are those of a live integer.
            unsafe { libc::write(writer.as_raw_fd(), (&raw const errno).cast(), size_of::<c_int>()) };
        }
    });
    assert_eq!(ending, Ending::Exited(0));
    drop(writer);
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut std::fs::File::from(reader), &mut bytes).unwrap();
    let told: Vec<_> = bytes
        .chunks_exact(size_of::<c_int>())
        .map(|chunk| match c_int::from_ne_bytes(chunk.try_into().unwrap()) {
            0 => Ok(()),
            errno => Err(errno),
        })
        .collect();
    assert_eq!(told.len(), PROBES.len());
    told
}

#[derive(Debug, PartialEq, Eq)]
enum Ending {
    Exited(c_int),
    Signalled(c_int),
}

/// Forks, confines the child and runs `body` there; a child that cannot be confined exits with 99.
fn child(filters: &[&Filter], body: impl Fn()) -> Ending {
    // SAFETY: the child makes system calls and exits; it allocates nothing and takes no lock another thread may hold.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        if !filters.is_empty() && raw(libc::SYS_prctl, [38, 1, 0, 0]).is_err() {
            exit(99);
        }
        if filters.iter().any(|filter| install(filter).is_err()) {
            exit(99);
        }
        body();
        exit(0);
    }
    assert!(pid > 0, "{}", io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: `status` is a live integer; `pid` is our own unreaped child.
    let reaped = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(reaped, pid);
    if libc::WIFSIGNALED(status) {
        Ending::Signalled(libc::WTERMSIG(status))
    } else {
        Ending::Exited(libc::WEXITSTATUS(status))
    }
}

fn exit(code: c_int) -> ! {
    // SAFETY: ends the process at once, running no handler of the parent it was copied from.
    unsafe { libc::_exit(code) }
}

fn raw(number: c_long, [a, b, c, d]: [u64; 4]) -> Result<(), c_int> {
    // SAFETY: the probes pass null or unmapped addresses only, which the kernel answers with an error.
    let result = unsafe { libc::syscall(number, a, b, c, d, 0u64, 0u64) };
    // SAFETY: the thread's own errno.
    if result < 0 { Err(unsafe { *libc::__errno_location() }) } else { Ok(()) }
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: the kernel fills exactly these two integers.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: both descriptors are new and owned by nobody else.
    unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) }
}
