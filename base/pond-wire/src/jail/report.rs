//! Fixed-size answers of the launcher and of init: which step failed, or how the job ended.
//!
//! The job never holds the socket these travel on, so a report is the word of pond's own processes. Decoding still refuses any
//! byte it does not know.

/// The steps of a launch, in order. A failure names its step; the number is stable on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    ReadPlan,
    CheckPlan,
    MapOwner,
    OpenRoot,
    OpenCheckout,
    MountScratch,
    MountWorkspace,
    CreateNamespaces,
    WriteIdMaps,
    EnterCgroup,
    BecomeRootInside,
    CgroupNamespace,
    Hostname,
    Loopback,
    Doors,
    BuildRoot,
    MountTmp,
    MountProc,
    MountDevices,
    PivotRoot,
    Furnish,
    Announce,
    Rlimits,
    ForkJob,
    DropIdentity,
    DropCapabilities,
    NoNewPrivileges,
    Landlock,
    Seccomp,
    Confirm,
    Exec,
    GuardInit,
    Terminal,
    Everywhere,
    Unpack,
    Connect,
    WorkingDirectory,
}

impl Step {
    const ALL: [(Step, &'static str); 37] = [
        (Step::ReadPlan, "read the plan"),
        (Step::CheckPlan, "check the plan"),
        (Step::MapOwner, "map the checkout's owner"),
        (Step::OpenRoot, "open the host's toolchain directories"),
        (Step::OpenCheckout, "open the checkout"),
        (Step::MountScratch, "mount the scratch space"),
        (Step::MountWorkspace, "mount the workspace"),
        (Step::CreateNamespaces, "create the namespaces"),
        (Step::WriteIdMaps, "write the id maps"),
        (Step::EnterCgroup, "enter the control group"),
        (Step::BecomeRootInside, "take the inner identity"),
        (Step::CgroupNamespace, "enter the cgroup namespace"),
        (Step::Hostname, "set the host name"),
        (Step::Loopback, "bring the loopback interface up"),
        (Step::Doors, "open the gateway's doors"),
        (Step::BuildRoot, "build the root"),
        (Step::MountTmp, "mount /tmp and /dev/shm"),
        (Step::MountProc, "mount /proc"),
        (Step::MountDevices, "mount the devices"),
        (Step::PivotRoot, "leave the host's root"),
        (Step::Furnish, "put files into the home directory"),
        (Step::Announce, "announce readiness"),
        (Step::Rlimits, "set the resource limits"),
        (Step::ForkJob, "fork the job"),
        (Step::DropIdentity, "take the job's identity"),
        (Step::DropCapabilities, "drop all capabilities"),
        (Step::NoNewPrivileges, "forbid new privileges"),
        (Step::Landlock, "enforce Landlock"),
        (Step::Seccomp, "install the system call filter"),
        (Step::Confirm, "confirm that forbidden acts fail"),
        (Step::Exec, "execute the command"),
        (Step::GuardInit, "confine the init process"),
        (Step::Terminal, "make the job's terminal"),
        (Step::Everywhere, "lead every connection to the gateway"),
        (Step::Unpack, "bring the checkout in"),
        (Step::Connect, "connect to a port inside"),
        (Step::WorkingDirectory, "enter the working directory"),
    ];

    pub fn describe(self) -> &'static str {
        Self::ALL.iter().find(|(step, _)| *step == self).map_or("", |(_, text)| text)
    }

    fn code(self) -> u8 {
        Self::ALL
            .iter()
            .position(|(step, _)| *step == self)
            .and_then(|at| u8::try_from(at).ok())
            .unwrap_or(u8::MAX)
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).map(|(step, _)| *step)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// The launcher made init; its pidfd travels with this report.
    Started,
    /// The gateway's listeners stand; they travel with this report, in the plan's order.
    Doors,
    /// Init finished its mounts; the upper layer travels with this report, the job's view of it, and the master of the job's
    /// terminal if it has one.
    Prepared,
    /// A step failed with this errno; the job did not run.
    Failed { step: Step, errno: i32 },
    /// The job ended by itself.
    Exited { code: u8, usage: Usage },
    /// A signal ended the job.
    Signaled { signal: u8, usage: Usage },
    /// Pid 1 of a sandbox that lasts takes requests from now on.
    Serving,
    /// The process of an exec was made; the master of its terminal travels with this report if it has one.
    Began,
    /// A connection inside was begun; the socket travels with this report.
    Connected,
}

/// What the job's main process used, as the kernel counted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub max_rss_kib: u64,
    pub cpu_micros: u64,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ReportFault {
    #[error("a report of {0} bytes")]
    Length(usize),
    #[error("a report of unknown kind {0}")]
    Kind(u8),
    #[error("a report naming unknown step {0}")]
    Step(u8),
}

impl Report {
    pub const BYTES: usize = 24;

    pub fn encode(self) -> [u8; Self::BYTES] {
        let (kind, detail, errno, usage) = match self {
            Self::Started => (1, 0, 0, Usage::default()),
            Self::Prepared => (2, 0, 0, Usage::default()),
            Self::Failed { step, errno } => (3, step.code(), errno, Usage::default()),
            Self::Exited { code, usage } => (4, code, 0, usage),
            Self::Signaled { signal, usage } => (5, signal, 0, usage),
            Self::Doors => (6, 0, 0, Usage::default()),
            Self::Serving => (7, 0, 0, Usage::default()),
            Self::Began => (8, 0, 0, Usage::default()),
            Self::Connected => (9, 0, 0, Usage::default()),
        };
        let mut bytes = [0; Self::BYTES];
        let fields = [kind, detail, 0, 0]
            .into_iter()
            .chain(errno.to_le_bytes())
            .chain(usage.max_rss_kib.to_le_bytes())
            .chain(usage.cpu_micros.to_le_bytes());
        for (slot, byte) in bytes.iter_mut().zip(fields) {
            *slot = byte;
        }
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, ReportFault> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().map_err(|_| ReportFault::Length(bytes.len()))?;
        let [kind, detail, _, _, errno @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = *bytes;
        let [_, _, _, _, _, _, _, _, rss @ .., _, _, _, _, _, _, _, _] = *bytes;
        let [_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, cpu @ ..] = *bytes;
        let usage = Usage { max_rss_kib: u64::from_le_bytes(rss), cpu_micros: u64::from_le_bytes(cpu) };
        match kind {
            1 => Ok(Self::Started),
            2 => Ok(Self::Prepared),
            3 => {
                let step = Step::from_code(detail).ok_or(ReportFault::Step(detail))?;
                Ok(Self::Failed { step, errno: i32::from_le_bytes(errno) })
            }
            4 => Ok(Self::Exited { code: detail, usage }),
            5 => Ok(Self::Signaled { signal: detail, usage }),
            6 => Ok(Self::Doors),
            7 => Ok(Self::Serving),
            8 => Ok(Self::Began),
            9 => Ok(Self::Connected),
            other => Err(ReportFault::Kind(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Every report survives the wire, and nothing unknown becomes one.
    use super::*;

    #[test]
    fn every_report_round_trips() {
        let usage = Usage { max_rss_kib: 7, cpu_micros: u64::MAX };
        let failures = Step::ALL.iter().map(|(step, _)| Report::Failed { step: *step, errno: -1 });
        let others = [
            Report::Started,
            Report::Doors,
            Report::Prepared,
            Report::Serving,
            Report::Began,
            Report::Connected,
            Report::Exited { code: 255, usage },
            Report::Signaled { signal: 9, usage },
        ];
        for report in failures.chain(others) {
            assert_eq!(Report::decode(&report.encode()), Ok(report));
        }
    }

    #[test]
    fn unknown_bytes_are_refused() {
        let mut bytes = Report::Started.encode();
        bytes[0] = 10;
        assert_eq!(Report::decode(&bytes), Err(ReportFault::Kind(10)));
        bytes[0] = 3;
        bytes[1] = 200;
        assert_eq!(Report::decode(&bytes), Err(ReportFault::Step(200)));
        assert_eq!(Report::decode(b"short"), Err(ReportFault::Length(5)));
    }
}
