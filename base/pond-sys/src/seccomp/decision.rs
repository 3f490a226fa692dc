//! What a filter may answer, and the questions about arguments that lead there.
//!
//! Zone: trusted, pure data. Invariant: every question settles on a verdict, whatever the arguments are.

/// The answer to one system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    /// Success, and nothing is done: for what programs ask out of caution and pond has seen to already.
    PretendDone,
    /// Whoever has the filter's listener says so for each call.
    AskPidOne,
    /// EPERM: the call exists and this job may not make it.
    NotPermitted,
    /// ENOSYS: programs fall back to an older call.
    NotImplemented,
    /// EAFNOSUPPORT: what a kernel without this address family says.
    FamilyUnsupported,
    /// EOPNOTSUPP: what a filesystem without this says; who copies files copies them without it.
    Unsupported,
    /// EPROTONOSUPPORT: what a kernel without this protocol says.
    ProtocolUnsupported,
    KillProcess,
}

impl Verdict {
    /// The value the filter program returns to the kernel.
    pub(super) const fn code(self) -> u32 {
        match self {
            Self::Allow => libc::SECCOMP_RET_ALLOW,
            Self::PretendDone => errno(0),
            Self::AskPidOne => libc::SECCOMP_RET_USER_NOTIF,
            Self::NotPermitted => errno(libc::EPERM),
            Self::NotImplemented => errno(libc::ENOSYS),
            Self::FamilyUnsupported => errno(libc::EAFNOSUPPORT),
            Self::Unsupported => errno(libc::EOPNOTSUPP),
            Self::ProtocolUnsupported => errno(libc::EPROTONOSUPPORT),
            Self::KillProcess => libc::SECCOMP_RET_KILL_PROCESS,
        }
    }
}

const fn errno(number: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | number.unsigned_abs()
}

/// How a call is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Settled(Verdict),
    Asks(&'static Question),
}

pub(super) const ALLOW: Decision = Decision::Settled(Verdict::Allow);
pub(super) const REFUSE: Decision = Decision::Settled(Verdict::NotPermitted);
pub(super) const ABSENT: Decision = Decision::Settled(Verdict::NotImplemented);
pub(super) const UNSUPPORTED: Decision = Decision::Settled(Verdict::Unsupported);
pub(super) const KILL: Decision = Decision::Settled(Verdict::KillProcess);

/// Is this word of an argument, under a mask, one of these values?
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) argument: Argument,
    pub(super) mask: u32,
    /// Never empty.
    pub(super) any_of: &'static [u32],
    pub(super) then: Decision,
    pub(super) otherwise: Decision,
}

/// The words some rule looks at: of an argument its low one, unless its name says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Argument {
    First,
    Second,
    Third,
    ThirdHigh,
}

impl Argument {
    /// Where the word lies in `struct seccomp_data` on the little-endian machines pond supports.
    pub(super) const fn offset(self) -> u32 {
        match self {
            Self::First => 16,
            Self::Second => 24,
            Self::Third => 32,
            Self::ThirdHigh => 36,
        }
    }
}
