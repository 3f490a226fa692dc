//! Memory, timers and queues in amounts meant to run into a limit.

use std::io;

/// Maps and touches this many bytes, and gives them back.
pub fn touch_memory(bytes: usize) -> io::Result<()> {
    const PAGE: usize = 4096;
    let mut memory: Vec<u8> = Vec::new();
    memory.try_reserve_exact(bytes).map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))?;
    memory.resize(bytes, 0);
    for byte in memory.iter_mut().step_by(PAGE) {
        *byte = 1;
    }
    std::hint::black_box(&memory);
    Ok(())
}

/// Maps and pins this many bytes; the kernel releases them with the process.
pub fn lock_memory(bytes: usize) -> io::Result<()> {
    let memory = vec![1u8; bytes];
    // SAFETY: the range is this vector's own allocation, and pinning changes no content.
    let ret = unsafe { libc::mlock(memory.as_ptr().cast(), memory.len()) };
    crate::check(ret.into()).map(|_| ())
}

/// Makes this many timers; they end with the process.
pub fn make_timers(count: usize) -> io::Result<()> {
    for _ in 0..count {
        let mut timer: libc::c_int = 0;
        let event = std::ptr::null_mut::<libc::sigevent>();
        // SAFETY: the event may be null, and the kernel writes the timer's number, an int, where it is told.
        let ret =
            unsafe { libc::syscall(libc::SYS_timer_create, libc::CLOCK_MONOTONIC, event, &raw mut timer) };
        crate::check(ret)?;
    }
    Ok(())
}

/// Blocks every signal that can be blocked.
pub fn ignore_signals() -> io::Result<()> {
    // SAFETY: sigfillset initialises the set before it is read; the old mask is not asked for.
    let ret = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut())
    };
    crate::check(ret.into()).map(|_| ())
}

/// The signals this process blocks and those it ignores, a bit each, as the kernel and not its /proc tells.
pub fn silenced_signals() -> io::Result<(u64, u64)> {
    /// Handler, flags, restorer and mask, a word each.
    const ACTION_WORDS: usize = 4;
    const IGNORED: u64 = 1;
    let (mut blocked, nothing) = (0u64, std::ptr::null::<u64>());
    // SAFETY: no new mask is given; the old one is one word, as the size says.
    let ret = unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, nothing, &raw mut blocked, size_of::<u64>())
    };
    crate::check(ret)?;
    let mut ignored = 0;
    for number in 1..=libc::SIGRTMAX() {
        let mut action = [0u64; ACTION_WORDS];
        // SAFETY: no new action is given; the kernel writes its `struct sigaction`, at most as large as this array.
        let ret = unsafe {
            libc::syscall(libc::SYS_rt_sigaction, number, nothing, action.as_mut_ptr(), size_of::<u64>())
        };
        crate::check(ret)?;
        ignored |= u64::from(action.first() == Some(&IGNORED)) << (number - 1);
    }
    Ok((blocked, ignored))
}

/// A System V shared memory segment, removed with the value.
#[derive(Debug)]
pub struct Segment {
    number: libc::c_int,
}

/// Makes a segment under this key.
pub fn make_segment(key: i32) -> io::Result<Segment> {
    // SAFETY: the call takes only numbers.
    let ret = unsafe { libc::shmget(key, 4096, libc::IPC_CREAT | libc::IPC_EXCL | 0o600) };
    crate::check(ret.into())?;
    Ok(Segment { number: ret })
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: removal takes no buffer. A segment that is gone already needs nothing more.
        unsafe { libc::shmctl(self.number, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}

/// Looks for a segment somebody made under this key.
pub fn find_segment(key: i32) -> io::Result<()> {
    // SAFETY: the call takes only numbers.
    crate::check(unsafe { libc::shmget(key, 0, 0) }.into()).map(|_| ())
}
