//! Why something stands where it stands: a sentence for people and a code for programs, in one value with one spelling.
//!
//! Trust zone: all of them. The control plane writes it, the API hands it out in two fields, the command line prints it, and it is
//! the same text in events and logs: `sentence [code]`. The code is the last thing in brackets, so that nothing a user or a worker
//! puts into a sentence can pass for one.

use std::fmt;

named_enum! {
    /// Why a stage waits, or ended as it did, where no more particular code says it.
    pub enum Cause {
        /// Other stages have to succeed first.
        NeedsOthers => "needs_others",
        /// A stage it needs did not succeed.
        NeedsFailed => "needs_failed",
        /// Stages it needs changed the same path, each in its own way.
        NeedsConflict => "needs_conflict",
        /// What stages before it made cannot be put together.
        NeedsUnusable => "needs_unusable",
        /// No worker that may have it is there.
        NoWorker => "no_worker",
        /// Workers that may have it are there, and busy.
        WorkersBusy => "workers_busy",
        /// Somebody cancelled the run.
        Cancelled => "cancelled",
        ExitCode => "exit_code",
        Signal => "signal",
        TimedOut => "timed_out",
        MemoryLimit => "memory_limit",
        OutputLimit => "output_limit",
        Interrupted => "interrupted",
        /// Too many workers were lost on it.
        Poisoned => "poisoned",
        /// The operator demands more than when it was submitted.
        Withheld => "withheld",
        /// The offer would be too large.
        OfferTooLarge => "offer_too_large",
        /// The worker did not run it; its own code stands in the sentence.
        WorkerRefused => "worker_refused",
        /// Workers ran it and did not agree on its result.
        Distrusted => "distrusted",
    }
}

/// A sentence and its code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    pub sentence: String,
    /// Empty for what was written before there were codes.
    pub code: String,
}

impl Reason {
    pub fn new(code: &str, sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), code: code.to_owned() }
    }

    pub fn of(cause: Cause, sentence: impl Into<String>) -> Self {
        Self::new(cause.name(), sentence)
    }

    /// Reads back what `Display` wrote.
    pub fn parse(text: &str) -> Self {
        let is_code = |code: &str| {
            !code.is_empty() && code.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
        };
        let split = text.strip_suffix(']').and_then(|text| text.rsplit_once(" ["));
        match split.filter(|(_, code)| is_code(code)) {
            Some((sentence, code)) => Self::new(code, sentence),
            None => Self { sentence: text.to_owned(), code: String::new() },
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code.as_str() {
            "" => f.write_str(&self.sentence),
            code => write!(f, "{} [{code}]", self.sentence),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_read_back_as_it_was_written() {
        for cause in Cause::ALL {
            for sentence in ["", "too dear", "they said [exit_code]", "[", "a ] b ["] {
                let reason = Reason::of(*cause, sentence);
                assert_eq!(Reason::parse(&reason.to_string()), reason, "{reason}");
            }
        }
    }

    #[test]
    fn what_has_no_code_is_a_sentence() {
        for text in ["", "exited with code 1", "a [B]", "a []", "a [b", "[exit_code]", "a [b c]"] {
            assert_eq!(Reason::parse(text), Reason { sentence: text.to_owned(), code: String::new() });
        }
    }
}
