//! What to do when the machine ran out of something, for faults that carry only the kernel's reason. Pure.

use std::error::Error;
use std::io;

use rustix::io::Errno;

use crate::failure::{code_of, known};

/// The same fault, and what to do next where that helps.
pub(super) fn advised(fault: anyhow::Error) -> anyhow::Error {
    let text = format!("{fault:#}");
    match fault.chain().find_map(errno).and_then(advice) {
        // Some say it themselves.
        Some(advice) if !text.contains("POND_STATE_DIR") => {
            known(code_of(&fault), format!("{text}; {advice}"))
        }
        Some(_) | None => fault,
    }
}

/// Of files and processes. Control groups answer with a bare `Errno`, and mean other things by it.
fn errno(cause: &(dyn Error + 'static)) -> Option<Errno> {
    cause.downcast_ref::<io::Error>().and_then(Errno::from_io_error)
}

fn advice(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::NOSPC | Errno::DQUOT => {
            Some("remove old runs with `pond gc --keep 1`, or set POND_STATE_DIR to a directory with room")
        }
        Errno::MFILE | Errno::NFILE => Some("close files, or raise `ulimit -n`"),
        Errno::AGAIN | Errno::NOMEM => Some(
            "the host is out of processes or memory: end some, or raise `ulimit -u` and the limits of the control group \
             that pond runs in",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    fn told(cause: impl Into<anyhow::Error>) -> String {
        format!("{:#}", advised(Err::<(), _>(cause.into()).context("doing it").unwrap_err()))
    }

    #[test]
    fn the_advice_follows_the_reason() {
        for (errno, word) in
            [(Errno::NOSPC, "pond gc"), (Errno::MFILE, "ulimit -n"), (Errno::AGAIN, "ulimit -u")]
        {
            let text = told(io::Error::from(errno));
            assert!(text.starts_with("doing it: ") && text.contains(word), "{text}");
        }
        assert!(told(io::Error::from(Errno::NOENT)).ends_with("(os error 2)"));
        assert!(!told(Errno::NOSPC).contains("pond gc"), "a control group that is full is no disk");
    }
}
