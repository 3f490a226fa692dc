//! Whether a job gets a terminal, and what of the caller's it stands for.

use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd};

use pond_wire::jail::Console;
use pond_worker::terminal::{TerminalFault, UserTerminal};

use super::args::TerminalWish;
use crate::failure::Failure;
use crate::settings;

/// Every terminal understands this much.
const PLAIN_KIND: &str = "xterm";

pub(super) fn console(wish: TerminalWish) -> anyhow::Result<Console> {
    let stdin = std::io::stdin();
    let both = stdin.is_terminal() && std::io::stdout().is_terminal();
    match (wish, both) {
        (TerminalWish::Unwanted, _) | (TerminalWish::WherePossible, false) => Ok(Console::Pipes),
        (TerminalWish::Required, false) => {
            let words = "--tty needs a terminal on both standard input and standard output";
            Err(Failure::Usage.because(words))
        }
        (TerminalWish::Required | TerminalWish::WherePossible, true) => {
            let size = UserTerminal::size_of(stdin.as_fd());
            Ok(Console::Terminal { rows: size.ws_row, columns: size.ws_col })
        }
    }
}

/// The job's variables, and which terminal it has unless they say so.
pub(super) fn environment(console: Console, mut env: Vec<(String, String)>) -> Vec<(String, String)> {
    let is_named = env.iter().any(|(name, _)| name == "TERM");
    match console {
        Console::Terminal { .. } if !is_named => {
            let kind = settings::terminal_kind().unwrap_or_else(|| PLAIN_KIND.to_owned());
            env.push(("TERM".to_owned(), kind));
        }
        Console::Terminal { .. } | Console::Pipes => {}
    }
    env
}

/// From here until the value goes, keys are the job's.
pub(super) fn take(console: Console, stdin: BorrowedFd<'_>) -> Result<Option<UserTerminal>, TerminalFault> {
    match console {
        Console::Pipes => Ok(None),
        Console::Terminal { .. } => UserTerminal::take(stdin).map(Some),
    }
}
