//! What kind of failure a command on this machine ended with: a code for programs, beside the words for a person.
//!
//! A code goes by what failed, never by how it is worded. Who gives a failure its code does so where it happens ([`known`]); for
//! the rest the type of the cause decides.

use std::error::Error;

use pond_sandbox::checkout::CheckoutFault;
use pond_sandbox::native::LauncherFault;
use pond_sandbox::state::StateFault;

/// Words, and the code they go by.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
struct Known {
    code: &'static str,
    words: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The command line is not what the command takes.
    Usage,
    /// The sandbox, or the program in it, could not be started.
    NotStarted,
    /// The directory to work on is none that can be worked on.
    Checkout,
    /// The place for pond's own files is none.
    State,
    /// There is no run of this name.
    RunUnknown,
    /// Anything else.
    Other,
}

impl Failure {
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::NotStarted => "not_started",
            Self::Checkout => "checkout_unusable",
            Self::State => "state_unusable",
            Self::RunUnknown => "run_unknown",
            Self::Other => "failed",
        }
    }

    pub(crate) fn because(self, words: impl Into<String>) -> anyhow::Error {
        known(self.code(), words)
    }
}

/// A failure with a code of its own.
pub(crate) fn known(code: &'static str, words: impl Into<String>) -> anyhow::Error {
    Known { code, words: words.into() }.into()
}

/// The code of a failure: the first cause that has one says it.
pub(crate) fn code_of(fault: &anyhow::Error) -> &'static str {
    fault.chain().find_map(code_of_cause).unwrap_or(Failure::Other.code())
}

fn code_of_cause(cause: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(known) = cause.downcast_ref::<Known>() {
        return Some(known.code);
    }
    let kinds = [
        (cause.is::<CheckoutFault>(), Failure::Checkout),
        (cause.is::<StateFault>(), Failure::State),
        (cause.is::<LauncherFault>(), Failure::NotStarted),
    ];
    kinds.into_iter().find_map(|(is, kind)| is.then(|| kind.code()))
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_code_goes_by_the_cause_whatever_is_said_around_it() {
        let about = |fault: anyhow::Error| {
            code_of(&Err::<(), _>(fault).context("doing it").context("for you").unwrap_err())
        };
        assert_eq!(about(Failure::Usage.because("no such flag")), "usage");
        assert_eq!(about(known("command_shell", "a shell")), "command_shell");
        assert_eq!(about(CheckoutFault::NotADirectory("x".into()).into()), "checkout_unusable");
        let source = std::io::Error::from_raw_os_error(28);
        assert_eq!(about(StateFault { path: "x".into(), source }.into()), "state_unusable");
        assert_eq!(about(anyhow::anyhow!("whatever")), "failed");
    }
}
