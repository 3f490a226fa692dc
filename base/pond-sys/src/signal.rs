//! Signals as descriptors, and the signal state a new program starts with.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Blocks SIGCHLD and returns a descriptor that becomes readable when a child changes state.
pub fn child_events() -> io::Result<OwnedFd> {
    descriptor(&[libc::SIGCHLD])
}

/// Blocks SIGINT, SIGQUIT, SIGTERM and SIGHUP and returns a descriptor that becomes readable when one of them arrives. One that whoever
/// started this process had it ignore, as `nohup` does, stays ignored.
pub fn interrupts() -> io::Result<OwnedFd> {
    let mut heeded = Vec::new();
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
        if !is_ignored(signal)? {
            heeded.push(signal);
        }
    }
    descriptor(&heeded)
}

fn is_ignored(signal: libc::c_int) -> io::Result<bool> {
    // SAFETY: all-zero bytes are a valid value of this plain struct.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is installed; the current action is written to a live value of the type the call expects.
    crate::check(unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) }.into())?;
    Ok(action.sa_sigaction == libc::SIG_IGN)
}

/// Blocks SIGWINCH and SIGCONT and returns a descriptor that becomes readable when the terminal got another size, or when this
/// process goes on after a stop and may find the terminal in another mode.
pub fn terminal_changes() -> io::Result<OwnedFd> {
    descriptor(&[libc::SIGWINCH, libc::SIGCONT])
}

fn descriptor(signals: &[libc::c_int]) -> io::Result<OwnedFd> {
    // SAFETY: sigemptyset and sigaddset fill a set that lives on this stack; the numbers are valid signals.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        set
    };
    // SAFETY: `set` is an initialised signal set; the old mask is not asked for.
    crate::check(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) }.into())?;
    // SAFETY: `set` is an initialised signal set; -1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    crate::check(fd.into())?;
    // SAFETY: signalfd just returned this descriptor, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Handler, flags, restorer and mask, a word each; some architectures have no restorer.
const KERNEL_ACTION_WORDS: usize = 4;

/// Gives every signal its default action and an empty mask: what a program expects at its first instruction.
pub fn reset_all() -> io::Result<()> {
    reset_actions();
    unblock_all()
}

/// Gives every signal its default action.
pub fn reset_actions() {
    // The C library's own call refuses the numbers it keeps for itself, which a caller may have inherited as ignored.
    let default_action = [0u64; KERNEL_ACTION_WORDS];
    let nothing = std::ptr::null_mut::<u64>();
    for number in 1..=libc::SIGRTMAX() {
        // SAFETY: the kernel reads its `struct sigaction`, at most as large as this array; all zero is the default action,
        // so no handler is installed. SIGKILL and SIGSTOP are refused and need no change: the result says nothing.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, number, default_action.as_ptr(), nothing, size_of::<u64>())
        };
    }
}

/// Holds no signal back.
pub fn unblock_all() -> io::Result<()> {
    // SAFETY: sigemptyset initialises the set before it is read; the old mask is not asked for.
    let ret = unsafe {
        let mut empty: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut empty);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const empty, std::ptr::null_mut())
    };
    crate::check(ret.into()).map(|_| ())
}
