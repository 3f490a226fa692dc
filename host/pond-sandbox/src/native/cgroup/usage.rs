//! What a job used and which limits it ran into, in the words of the kernel's own counters.
//!
//! Zone: host. Nothing here comes from the job. A counter this kernel does not keep is `None`, never zero.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use super::fault::Controller;
use super::files;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub memory_peak_bytes: Option<u64>,
    /// Processes the kernel killed for memory.
    pub oom_kills: Option<u64>,
    pub pids_peak: Option<u64>,
    /// Forks refused because of the limit.
    pub pids_denied: Option<u64>,
    pub cpu_usec: Option<u64>,
    /// Periods in which the job had spent its share of processor time and had to wait.
    pub cpu_throttled_periods: Option<u64>,
}

impl Usage {
    pub(super) fn read_unified(&mut self, group: BorrowedFd<'_>) -> Result<(), Errno> {
        self.memory_peak_bytes = number(group, "memory.peak")?;
        self.oom_kills = field(group, "memory.events", "oom_kill")?;
        self.read_pids(group)?;
        self.read_cpu_time(group)?;
        self.cpu_throttled_periods = field(group, "cpu.stat", "nr_throttled")?;
        Ok(())
    }

    pub(super) fn read_legacy(&mut self, controller: Controller, group: BorrowedFd<'_>) -> Result<(), Errno> {
        match controller {
            Controller::Memory => self.read_legacy_memory(group),
            Controller::Cpu => self.read_legacy_cpu(group),
            Controller::Pids => self.read_pids(group),
            Controller::CpuAccounting => self.read_legacy_accounting(group),
        }
    }

    pub(super) fn read_cpu_time(&mut self, group: BorrowedFd<'_>) -> Result<(), Errno> {
        self.cpu_usec = field(group, "cpu.stat", "usage_usec")?;
        Ok(())
    }

    fn read_legacy_memory(&mut self, group: BorrowedFd<'_>) -> Result<(), Errno> {
        self.memory_peak_bytes = number(group, "memory.max_usage_in_bytes")?;
        self.oom_kills = field(group, "memory.oom_control", "oom_kill")?;
        Ok(())
    }

    fn read_legacy_cpu(&mut self, group: BorrowedFd<'_>) -> Result<(), Errno> {
        self.cpu_throttled_periods = field(group, "cpu.stat", "nr_throttled")?;
        Ok(())
    }

    fn read_legacy_accounting(&mut self, group: BorrowedFd<'_>) -> Result<(), Errno> {
        self.cpu_usec = number(group, "cpuacct.usage")?.map(|nanoseconds| nanoseconds / 1000);
        Ok(())
    }

    fn read_pids(&mut self, group: BorrowedFd<'_>) -> Result<(), Errno> {
        self.pids_peak = number(group, "pids.peak")?;
        self.pids_denied = field(group, "pids.events", "max")?;
        Ok(())
    }
}

fn number(group: BorrowedFd<'_>, file: &str) -> Result<Option<u64>, Errno> {
    Ok(existing(files::get(group, file))?.and_then(|text| text.parse().ok()))
}

fn field(group: BorrowedFd<'_>, file: &str, key: &str) -> Result<Option<u64>, Errno> {
    Ok(existing(files::get(group, file))?.and_then(|text| find(&text, key)))
}

pub(super) fn find(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.split_once(' ').filter(|(name, _)| *name == key)?.1.parse().ok())
}

fn existing(text: Result<String, Errno>) -> Result<Option<String>, Errno> {
    match text {
        Ok(text) => Ok(Some(text)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let events = "low 0\nhigh 0\nmax 3\noom 2\noom_kill 7\noom_group_kill 1";
        let cases = [
            ("oom_kill", Some(7)),
            ("oom", Some(2)),
            ("max", Some(3)),
            ("kill", None),
            ("oom_group_kill", Some(1)),
        ];
        for (key, expected) in cases {
            assert_eq!(find(events, key), expected, "{key}");
        }
        assert_eq!(find("max many", "max"), None);
    }
}
