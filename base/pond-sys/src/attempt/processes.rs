//! Reaching into another process, and taking more of the processor than is due.

use std::io;

use rustix::process::Pid;

use super::reached;

const NOTHING: *mut u8 = std::ptr::null_mut();

/// Asks to be traced by the parent; ends with the process.
pub fn trace_me() -> io::Result<()> {
    // SAFETY: this request takes no pointers.
    crate::check(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, NOTHING, NOTHING) }).map(|_| ())
}

/// Attaches to a process without stopping it; the kernel detaches when the caller ends.
pub fn trace(target: Pid) -> io::Result<()> {
    // SAFETY: seizing takes no pointers; the target goes on undisturbed.
    let ret = unsafe { libc::ptrace(libc::PTRACE_SEIZE, target.as_raw_nonzero().get(), NOTHING, NOTHING) };
    crate::check(ret).map(|_| ())
}

/// A word of this program that lies at the same address in the parent of a forked child.
static LANDMARK: [u8; 8] = *b"landmark";

fn across(call: libc::c_long, target: Pid) -> io::Result<()> {
    let mut buffer = LANDMARK;
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: LANDMARK.as_ptr().cast_mut().cast(), iov_len: LANDMARK.len() };
    // SAFETY: both vectors name eight bytes. The local ones are ours to read and write; the remote ones are another
    // process's, where reading leaves them alone and writing is refused by the page's own protection.
    let ret = unsafe {
        libc::syscall(
            call,
            target.as_raw_nonzero().get(),
            &raw const local,
            1usize,
            &raw const remote,
            1usize,
            0usize,
        )
    };
    reached(crate::check(ret), &[libc::EFAULT])
}

pub fn read_memory_of(target: Pid) -> io::Result<()> {
    across(libc::SYS_process_vm_readv, target)
}

/// Tries to write a read-only page, so that nothing changes where writing is permitted.
pub fn write_memory_of(target: Pid) -> io::Result<()> {
    across(libc::SYS_process_vm_writev, target)
}

/// Compares the descriptor tables of two processes, which tells addresses of kernel objects apart.
pub fn compare_files(one: Pid, other: Pid) -> io::Result<()> {
    const KCMP_FILES: libc::c_int = 2;
    let (one, other) = (one.as_raw_nonzero().get(), other.as_raw_nonzero().get());
    // SAFETY: the call takes only numbers.
    crate::check(unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_FILES, 0usize, 0usize) }).map(|_| ())
}

/// Asks for the real-time scheduler at its lowest priority.
pub fn run_in_real_time() -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads one sched_param that outlives the call.
    crate::check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) }.into())
        .map(|_| ())
}

/// Asks to replace the executable the kernel believes this process to be, with a descriptor that is none.
pub fn map_executable() -> io::Result<()> {
    const PR_SET_MM: libc::c_int = 35;
    const PR_SET_MM_EXE_FILE: libc::c_ulong = 13;
    // SAFETY: the descriptor does not exist, so the call ends before it changes anything.
    let ret = unsafe { libc::prctl(PR_SET_MM, PR_SET_MM_EXE_FILE, libc::c_ulong::MAX, 0usize, 0usize) };
    reached(crate::check(ret.into()), &[libc::EBADF])
}
