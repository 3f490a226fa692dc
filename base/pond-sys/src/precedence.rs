//! What puts a process ahead of the host's others, and is inherited by whatever it starts.
//!
//! A launcher may be started by one that has all of it: a service with a real-time class, a shell at a high priority. Limits
//! of a control group do not bind real-time tasks, and a task that is exempt from the out-of-memory killer holds the whole
//! group up at its limit. What a caller gave up (`nice`, `chrt --idle`) stays given up.

use std::fs::File;
use std::io::{self, Read, Write};

use rustix::process::{getpriority_process, setpriority_process};

const OOM_SCORE: &str = "/proc/self/oom_score_adj";
/// `ioprio_set` takes the calling thread for the number 0 of this kind.
const IOPRIO_WHO_PROCESS: libc::c_int = 1;
const IOPRIO_CLASS_SHIFT: u32 = 13;
const IOPRIO_CLASS_REALTIME: libc::c_long = 1;

/// Gives up every precedence of this process, before it starts another.
pub fn give_up() -> io::Result<()> {
    give_up_real_time()?;
    if getpriority_process(None)? < 0 {
        setpriority_process(None, 0)?;
    }
    give_up_real_time_io()?;
    give_up_exemption()
}

fn give_up_real_time() -> io::Result<()> {
    // SAFETY: takes a number and returns one.
    let policy = crate::check(unsafe { libc::sched_getscheduler(0) }.into())?;
    let policy = policy & !libc::c_long::from(libc::SCHED_RESET_ON_FORK);
    if [libc::SCHED_FIFO, libc::SCHED_RR].map(libc::c_long::from).contains(&policy) {
        let none = libc::sched_param { sched_priority: 0 };
        // SAFETY: the kernel reads one sched_param that outlives the call.
        crate::check(unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const none) }.into())?;
    }
    Ok(())
}

fn give_up_real_time_io() -> io::Result<()> {
    // SAFETY: the call takes only numbers.
    let priority = crate::check(unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0) })?;
    if priority >> IOPRIO_CLASS_SHIFT == IOPRIO_CLASS_REALTIME {
        // SAFETY: the call takes only numbers.
        crate::check(unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, 0) })?;
    }
    Ok(())
}

fn give_up_exemption() -> io::Result<()> {
    let mut file = File::options().read(true).write(true).open(OOM_SCORE)?;
    let mut score = [0; 8];
    let length = file.read(&mut score)?;
    if score.get(..length).is_some_and(|score| score.starts_with(b"-")) {
        file.write_all(b"0")?;
    }
    Ok(())
}
