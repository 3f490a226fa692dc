//! A person's terminal while a job draws on it: what the job may make it do, and that it is given back as it was.
//!
//! HOSTILE INPUT: every byte towards the terminal was written by the job. [`Filter`] lets through what a full-screen program
//! needs and nothing that makes the terminal answer, remember, write the clipboard or act outside its window; where a program
//! would wait for an answer, pond gives one of its own.
//! [`UserTerminal`] puts the terminal's modes back on every way out but SIGKILL.

mod answer;
mod filter;
mod sequence;
mod user;

pub use filter::Filter;
pub use user::{TerminalFault, UserTerminal};
