//! The counters of a control group that somebody else made: a container's, by a process inside it. Only read.

use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use super::fault::Controller;
use super::layout;
use super::usage::Usage;

/// Whether the process is in a group that bears this name, as everything in a container is in one that bears the container's.
pub(crate) fn is_in_group_named(pid: Pid, name: &str) -> std::io::Result<bool> {
    Ok(groups_of(pid)?.contains(name))
}

/// What the groups that hold this process have counted.
pub(crate) fn usage_of(pid: Pid) -> std::io::Result<Usage> {
    let mountinfo = std::fs::read_to_string("/proc/self/mountinfo")?;
    let layout = layout::parse(&mountinfo, &groups_of(pid)?);
    let mut usage = Usage::default();
    for legacy in &layout.legacy {
        let group = open(&legacy.place.group)?;
        for controller in &legacy.controllers {
            match controller {
                Controller::Memory => usage.read_legacy_memory(group_fd(&group))?,
                Controller::Cpu => usage.read_legacy_cpu(group_fd(&group))?,
                Controller::Pids => usage.read_pids(group_fd(&group))?,
                Controller::CpuAccounting => usage.read_legacy_accounting(group_fd(&group))?,
            }
        }
    }
    if let Some(place) = layout.unified.filter(|_| layout.legacy.is_empty()) {
        usage.read_unified(group_fd(&open(&place.group)?))?;
    }
    Ok(usage)
}

fn groups_of(pid: Pid) -> std::io::Result<String> {
    std::fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_nonzero()))
}

fn open(group: &Path) -> Result<std::os::fd::OwnedFd, Errno> {
    rustix::fs::open(group, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn group_fd(group: &std::os::fd::OwnedFd) -> std::os::fd::BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(group)
}
