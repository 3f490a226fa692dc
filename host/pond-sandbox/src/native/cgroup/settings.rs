//! The limits of a job as the exact files and values that set them.
//!
//! Zone: host, pure. Invariant: the values written are never weaker than the limits asked for.

use pond_policy::limits::{Cpus, Memory, Pids};

use super::disk_rate::DiskRate;
use super::fault::Controller;

/// What a job may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CgroupLimits {
    pub memory: Memory,
    pub cpus: Cpus,
    pub pids: Pids,
    /// Where the host can hold it.
    pub disk_rate: Option<DiskRate>,
}

/// One file to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) file: &'static str,
    pub(super) value: String,
    pub(super) expect: Expect,
    pub(super) absent: Absent,
}

/// What reading the file back must show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    Same,
    /// The kernel rounds bytes down to whole pages; less is not weaker.
    AtMost,
    /// A table: one of its lines begins so.
    Line,
}

/// What it means that the file is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absent {
    Fault,
    /// No swap accounting: harmless on a host without swap, else this other file must be written.
    WithoutSwap {
        instead: Option<(&'static str, &'static str)>,
    },
}

/// Scheduling period in microseconds; the kernel's own default.
const PERIOD: u64 = 100_000;

pub(super) fn unified(limits: &CgroupLimits) -> Vec<Setting> {
    let quota = quota(limits.cpus);
    let disk = limits.disk_rate.map(disk);
    let always = [
        Setting { expect: Expect::AtMost, ..exactly("memory.max", limits.memory.bytes()) },
        Setting { absent: Absent::WithoutSwap { instead: None }, ..exactly("memory.swap.max", 0) },
        exactly("memory.oom.group", 1),
        exactly("cpu.max", format!("{quota} {PERIOD}")),
        exactly("pids.max", limits.pids.get()),
    ];
    always.into_iter().chain(disk).collect()
}

/// What one disk gives the job.
pub(super) fn disk(rate: DiskRate) -> Setting {
    Setting { expect: Expect::Line, ..exactly("io.max", rate) }
}

pub(super) fn legacy(controller: Controller, limits: &CgroupLimits) -> Vec<Setting> {
    let bytes = |file| Setting { expect: Expect::AtMost, ..exactly(file, limits.memory.bytes()) };
    match controller {
        Controller::Memory => vec![
            bytes("memory.limit_in_bytes"),
            Setting {
                absent: Absent::WithoutSwap { instead: Some(("memory.swappiness", "0")) },
                ..bytes("memory.memsw.limit_in_bytes")
            },
            Setting {
                expect: Expect::AtMost,
                ..exactly("memory.kmem.tcp.limit_in_bytes", in_sockets(limits.memory))
            },
        ],
        Controller::Cpu => {
            vec![exactly("cpu.cfs_period_us", PERIOD), exactly("cpu.cfs_quota_us", quota(limits.cpus))]
        }
        Controller::Pids => vec![exactly("pids.max", limits.pids.get())],
        Controller::CpuAccounting => vec![],
    }
}

/// What may wait in the job's TCP and UDP sockets. v2 counts that as memory; v1 does so apart, and not at all unless there is a limit.
fn in_sockets(memory: Memory) -> u64 {
    const LEAST: u64 = 4 << 20;
    const MOST: u64 = 256 << 20;
    (memory.bytes() / 8).clamp(LEAST, MOST)
}

fn exactly(file: &'static str, value: impl ToString) -> Setting {
    Setting { file, value: value.to_string(), expect: Expect::Same, absent: Absent::Fault }
}

fn quota(cpus: Cpus) -> u64 {
    u64::from(cpus.millis()) * PERIOD / 1000
}

impl Setting {
    pub(super) fn taken(&self, found: &str) -> bool {
        match self.expect {
            Expect::Same => found == self.value,
            Expect::Line => found.lines().any(|line| line.starts_with(&format!("{} ", self.value))),
            Expect::AtMost => match (found.parse::<u64>(), self.value.parse::<u64>()) {
                (Ok(found), Ok(wanted)) => found <= wanted,
                (Ok(_) | Err(_), _) => false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> CgroupLimits {
        CgroupLimits {
            memory: Memory::parse("64m").unwrap(),
            cpus: Cpus::parse("1.5").unwrap(),
            pids: Pids::parse("128").unwrap(),
            disk_rate: None,
        }
    }

    fn written(settings: Vec<Setting>) -> Vec<(&'static str, String)> {
        settings.into_iter().map(|setting| (setting.file, setting.value)).collect()
    }

    #[test]
    fn v2_files() {
        let expected = [
            ("memory.max", "67108864"),
            ("memory.swap.max", "0"),
            ("memory.oom.group", "1"),
            ("cpu.max", "150000 100000"),
            ("pids.max", "128"),
        ];
        assert_eq!(written(unified(&limits())), expected.map(|(file, value)| (file, value.to_owned())));
    }

    #[test]
    fn v1_files() {
        let cases: [(Controller, &[(&str, &str)]); 4] = [
            (
                Controller::Memory,
                &[
                    ("memory.limit_in_bytes", "67108864"),
                    ("memory.memsw.limit_in_bytes", "67108864"),
                    ("memory.kmem.tcp.limit_in_bytes", "8388608"),
                ],
            ),
            (Controller::Cpu, &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "150000")]),
            (Controller::Pids, &[("pids.max", "128")]),
            (Controller::CpuAccounting, &[]),
        ];
        for (controller, expected) in cases {
            let expected: Vec<_> =
                expected.iter().map(|(file, value)| (*file, (*value).to_owned())).collect();
            assert_eq!(written(legacy(controller, &limits())), expected, "{controller}");
        }
    }

    #[test]
    fn a_value_read_back_must_not_be_weaker() {
        let bytes = unified(&limits()).remove(0);
        let count = unified(&limits()).remove(4);
        let cases = [
            (&bytes, "67108864", true),
            (&bytes, "67104768", true),
            (&bytes, "67108865", false),
            (&bytes, "max", false),
            (&bytes, "9223372036854771712", false),
            (&bytes, "", false),
            (&count, "128", true),
            (&count, "64", false),
            (&count, "max", false),
        ];
        for (setting, found, taken) in cases {
            assert_eq!(setting.taken(found), taken, "{} said {found}", setting.file);
        }
    }
}
