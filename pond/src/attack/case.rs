//! What a case of the catalogue is: data, and one function per attempt.
//!
//! An attempt returns `Ok` when the attack worked. The same function runs inside, where it must fail the way `expect` says, and
//! unconfined, where it must work, or it proves nothing.

use std::io;
use std::time::Duration;

use pond_worker::collect::Collected;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::overseer::Act;
use super::scene::Scene;

/// One case of the catalogue: an id that never changes, and the ways it is tried.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) id: &'static str,
    pub(crate) what: &'static str,
    pub(crate) probes: &'static [Probe],
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe {
    pub(crate) name: &'static str,
    pub(crate) attempt: fn(&Scene) -> io::Result<()>,
    pub(crate) expect: Expect,
    pub(crate) room: Room,
    pub(crate) control: Control,
}

/// What a confined attempt meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// The thing is there, and the job may not.
    Denied,
    /// There is nothing of the kind inside.
    Absent,
    /// It works until a limit, and then no more.
    Capped,
}

const DENIED: [Errno; 8] = [
    Errno::PERM,
    Errno::ACCESS,
    Errno::NOSYS,
    Errno::ROFS,
    Errno::AFNOSUPPORT,
    Errno::PROTONOSUPPORT,
    Errno::OPNOTSUPP,
    Errno::XDEV,
];
const ABSENT: [Errno; 13] = [
    Errno::NOENT,
    Errno::NXIO,
    Errno::SRCH,
    Errno::NODEV,
    Errno::NODATA,
    Errno::CONNREFUSED,
    Errno::NETUNREACH,
    Errno::ADDRNOTAVAIL,
    Errno::NOTTY,
    Errno::NOSYS,
    Errno::ROFS,
    Errno::ACCESS,
    Errno::PERM,
];
const CAPPED: [Errno; 9] = [
    Errno::NOSPC,
    Errno::MFILE,
    Errno::AGAIN,
    Errno::NOMEM,
    Errno::FBIG,
    Errno::DQUOT,
    Errno::PERM,
    Errno::USERS,
    Errno::TOOMANYREFS,
];
const SIGKILL: u8 = 9;
const SIGXFSZ: u8 = 25;
const SIGSYS: u8 = 31;

impl Expect {
    pub(crate) fn errno(self, errno: i32) -> bool {
        let refusals: &[Errno] = match self {
            Self::Denied => &DENIED,
            Self::Absent => &ABSENT,
            Self::Capped => &CAPPED,
        };
        refusals.iter().any(|refusal| refusal.raw_os_error() == errno)
    }

    pub(crate) fn signal(self, signal: u8) -> bool {
        match self {
            Self::Denied => signal == SIGSYS,
            Self::Absent => false,
            Self::Capped => [SIGKILL, SIGXFSZ].contains(&signal),
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Absent => "absent",
            Self::Capped => "capped",
        }
    }
}

/// Where a probe runs inside.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Room {
    /// With the others, in one sandbox of the chosen profile.
    Shared,
    /// In a sandbox of its own: it fills a limit, or its ending is the answer.
    Own(Stage),
    /// Not at all: the host acts, and the attempt is only the control.
    Host(Act),
}

/// A sandbox for one probe.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stage {
    pub(crate) profile: Option<&'static str>,
    /// Fields of the block's `overrides`.
    pub(crate) limits: &'static [(&'static str, &'static str)],
    pub(crate) wall: Duration,
    pub(crate) output_bytes: u64,
    /// Run instead of the probe.
    pub(crate) command: &'static [&'static str],
    /// Bytes waiting on the job's input.
    pub(crate) input_bytes: usize,
    pub(crate) evidence: Evidence,
}

/// What shows that the attack was held, besides a refused attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Evidence {
    Attempt,
    OutOfMemory,
    ForksRefused,
    Throttled,
    MemoryWithinLimit,
    TimedOut,
    TooMuchOutput,
    /// The command ended by itself, with this code, however much it left running.
    Exited(u8),
    NotExecuted,
    /// What a person would be shown of its output passes.
    Shown(fn(&str) -> bool),
    /// The collected result passes.
    Result(fn(&Collected) -> bool),
}

impl Stage {
    /// Long enough for any bounded attempt on a busy machine.
    pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

    pub(crate) const PLAIN: Self = Self {
        profile: None,
        limits: &[],
        wall: Self::PATIENCE,
        output_bytes: 1 << 20,
        command: &[],
        input_bytes: 0,
        evidence: Evidence::Attempt,
    };
}

/// How the same attempt is made unconfined.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Control {
    Attempt(Unconfined),
    /// Nothing to compare with, and why.
    None(&'static str),
}

/// What an unconfined attempt needs, and which of its failures say more of this host than of the probe.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unconfined {
    pub(crate) shelter: Shelter,
    pub(crate) needs: Option<Power>,
    pub(crate) excuses: &'static [(Errno, &'static str)],
}

/// What an unconfined attempt stands in, so that nobody else notices it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shelter {
    None,
    Mounts,
    /// The directories it may fill are in memory and end with it: what a bomb does to a busy disk takes minutes to go away.
    Storage,
    Network,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Power {
    pub(crate) name: &'static str,
    pub(crate) set: CapabilitySet,
}

pub(crate) const OPEN: Unconfined = Unconfined { shelter: Shelter::None, needs: None, excuses: &[] };
pub(crate) const IN_OWN_MOUNTS: Unconfined = Unconfined { shelter: Shelter::Mounts, ..OPEN };
pub(crate) const IN_OWN_STORAGE: Unconfined = Unconfined { shelter: Shelter::Storage, ..OPEN };
pub(crate) const IN_OWN_NETWORK: Unconfined = Unconfined { shelter: Shelter::Network, ..OPEN };

pub(crate) const fn denied(name: &'static str, attempt: fn(&Scene) -> io::Result<()>) -> Probe {
    Probe { name, attempt, expect: Expect::Denied, room: Room::Shared, control: Control::Attempt(OPEN) }
}

pub(crate) const fn absent(name: &'static str, attempt: fn(&Scene) -> io::Result<()>) -> Probe {
    Probe { expect: Expect::Absent, ..denied(name, attempt) }
}

pub(crate) const fn capped(name: &'static str, attempt: fn(&Scene) -> io::Result<()>, stage: Stage) -> Probe {
    Probe { expect: Expect::Capped, room: Room::Own(stage), ..denied(name, attempt) }
}

impl Probe {
    /// The same probe, its control made in a shelter or with a need.
    pub(crate) const fn control(self, unconfined: Unconfined) -> Self {
        Self { control: Control::Attempt(unconfined), ..self }
    }

    /// The same probe, whose control may fail on some hosts for these reasons.
    pub(crate) const fn excused(self, excuses: &'static [(Errno, &'static str)]) -> Self {
        match self.control {
            Control::Attempt(unconfined) => {
                Self { control: Control::Attempt(Unconfined { excuses, ..unconfined }), ..self }
            }
            Control::None(_) => self,
        }
    }

    /// The same probe, whose control needs a capability even root may lack.
    pub(crate) const fn needs(self, name: &'static str, set: CapabilitySet) -> Self {
        match self.control {
            Control::Attempt(unconfined) => {
                let needs = Some(Power { name, set });
                Self { control: Control::Attempt(Unconfined { needs, ..unconfined }), ..self }
            }
            Control::None(_) => self,
        }
    }

    /// The same probe without a control.
    pub(crate) const fn uncontrolled(self, why: &'static str) -> Self {
        Self { control: Control::None(why), ..self }
    }
}
