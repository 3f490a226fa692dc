//! What ended a job, in one word a person and a machine both understand.

use pond_sandbox::native::{AFTER_KILL, Ending, KILLED, in_the_way, remedy};
use pond_worker::supervise::{Ended, Stop};
use serde::{Deserialize, Serialize};

/// The limit that ended a job, or the way it ended by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub(crate) enum Verdict {
    Exited {
        code: u8,
    },
    Signaled {
        signal: u8,
    },
    TimedOut,
    Killed {
        limit: Limit,
    },
    Interrupted,
    /// Whoever read its output had gone, as in `pond run … | head`.
    Unread,
    NotLaunched {
        step: String,
        reason: String,
        remedy: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    Memory,
    Output,
}

/// What kept pond from doing all it should once the job had ended. The run is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shortfall {
    /// Somebody interrupted it.
    Interrupted,
    /// It could not keep the result, or not hand everything over.
    Failed,
}

const SIGKILL: u8 = 9;

impl Verdict {
    /// Whether the job ended by itself and was not content, for a reason that only it knows.
    pub(super) fn is_failure_of_its_own(&self) -> bool {
        match self {
            Self::Exited { code } => *code != 0,
            Self::Signaled { .. }
            | Self::TimedOut
            | Self::Killed { .. }
            | Self::Interrupted
            | Self::Unread
            | Self::NotLaunched { .. } => false,
        }
    }

    pub(crate) fn of(ended: &Ended, checkout: &str) -> Self {
        if let Ending::NotLaunched { step, errno } = ended.over.ending {
            let kernels = || std::io::Error::from_raw_os_error(errno).to_string();
            let reason = in_the_way(step, errno, checkout).unwrap_or_else(kernels);
            let remedy = remedy(step, errno).map(str::to_owned);
            return Self::NotLaunched { step: step.describe().to_owned(), reason, remedy };
        }
        match ended.stop {
            Some(Stop::TimedOut) => return Self::TimedOut,
            Some(Stop::TooMuchOutput) => return Self::Killed { limit: Limit::Output },
            Some(Stop::Interrupted) => return Self::Interrupted,
            Some(Stop::Unread) => return Self::Unread,
            None => {}
        }
        let out_of_memory = ended.over.usage.oom_kills.is_some_and(|kills| kills > 0);
        match ended.over.ending {
            // The kernel chooses its victim: the command itself, or init and everything with it.
            Ending::Signaled { signal: SIGKILL, .. } | Ending::NotBegun | Ending::Lost if out_of_memory => {
                Self::Killed { limit: Limit::Memory }
            }
            Ending::Exited { code, .. } => Self::Exited { code },
            Ending::Signaled { signal, .. } => Self::Signaled { signal },
            Ending::NotBegun => Self::NotLaunched {
                step: "finish the sandbox".to_owned(),
                reason: KILLED.to_owned(),
                remedy: Some(AFTER_KILL.to_owned()),
            },
            Ending::Lost | Ending::NotLaunched { .. } => Self::Signaled { signal: SIGKILL },
        }
    }

    /// pond ended the job, or was told to.
    pub(super) fn was_stopped(&self) -> bool {
        match self {
            Self::TimedOut | Self::Interrupted | Self::Unread | Self::Killed { limit: Limit::Output } => true,
            Self::Exited { .. } | Self::Signaled { .. } | Self::NotLaunched { .. } => false,
            Self::Killed { limit: Limit::Memory } => false,
        }
    }

    /// The exit code of pond itself, where it also has something to say of its own. A job that pond ended has its code by that.
    pub(super) fn code_with(&self, shortfall: Option<Shortfall>) -> u8 {
        match (self, shortfall) {
            (Self::Exited { .. } | Self::Signaled { .. }, Some(Shortfall::Failed)) => 125,
            (Self::Exited { .. } | Self::Signaled { .. }, Some(Shortfall::Interrupted)) => 130,
            (Self::Exited { .. } | Self::Signaled { .. }, None)
            | (
                Self::TimedOut
                | Self::Killed { .. }
                | Self::Interrupted
                | Self::Unread
                | Self::NotLaunched { .. },
                _,
            ) => self.code(),
        }
    }

    /// The exit code of pond itself when it did all that it should.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Exited { code } => *code,
            Self::Signaled { signal } => 128u8.saturating_add(*signal),
            Self::TimedOut => 124,
            Self::NotLaunched { .. } => 125,
            Self::Killed { .. } => 137,
            Self::Interrupted => 130,
            // As a shell has it for a command that wrote to a pipe without a reader.
            Self::Unread => 141,
        }
    }

    pub(crate) fn sentence(&self) -> String {
        match self {
            Self::Exited { code } => format!("exit {code}"),
            Self::Signaled { signal } => format!("killed by signal {signal}"),
            Self::TimedOut => "killed: time limit".to_owned(),
            Self::Killed { limit: Limit::Memory } => "killed: memory limit".to_owned(),
            Self::Killed { limit: Limit::Output } => "killed: output limit".to_owned(),
            Self::Interrupted => "interrupted".to_owned(),
            Self::Unread => "ended: nobody reads its output any more".to_owned(),
            Self::NotLaunched { step, reason, remedy } => {
                let remedy = remedy.as_ref().map(|text| format!("; {text}")).unwrap_or_default();
                format!("did not run: could not {step}: {reason}{remedy}")
            }
        }
    }
}
