//! Killing by list, where the kernel cannot kill a group at once.
//!
//! Zone: host. Invariant: a signal reaches only a process that was seen in the group while we held a descriptor for it, so
//! a recycled number never costs a stranger its life.

use std::iter;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::thread::sleep;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::files;

/// How to wait for the dying: briefly at first, about two seconds in all.
pub(super) fn pauses() -> impl Iterator<Item = Duration> {
    let longest = Duration::from_millis(20);
    iter::successors(Some(Duration::from_micros(100)), move |pause| Some(longest.min(*pause * 2))).take(107)
}

/// Says whether nothing is left.
pub(super) fn kill_listed(groups: &[BorrowedFd<'_>]) -> Result<bool, Errno> {
    for pause in pauses() {
        let found = listed(groups)?;
        if found.is_empty() {
            return Ok(true);
        }
        let held: Vec<(Pid, OwnedFd)> = found
            .into_iter()
            .filter_map(|pid| Some((pid, pidfd_open(pid, PidfdFlags::empty()).ok()?)))
            .collect();
        let still = listed(groups)?;
        for (_, process) in held.iter().filter(|(pid, _)| still.contains(pid)) {
            match pidfd_send_signal(process, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(error),
            }
        }
        sleep(pause);
    }
    Ok(false)
}

pub(super) fn listed(groups: &[BorrowedFd<'_>]) -> Result<Vec<Pid>, Errno> {
    let mut found = Vec::new();
    for group in groups {
        let list = match files::read_all(*group, "cgroup.procs") {
            // The group is gone, and whoever was in it.
            Err(Errno::NODEV) => continue,
            list => list?,
        };
        found.extend(list.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)));
    }
    Ok(found)
}
