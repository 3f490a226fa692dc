//! System-call filters, from one readable table to a small classic-BPF program.
//!
//! Zone: compiled by the trusted launcher, enforced by the kernel on hostile code. Pure up to [`install()`].
//! Invariants: a foreign architecture kills the process; a number the table does not name is never allowed;
//! numbers are compared by their low 32 bits, the only ones the kernel reads for the calls checked here, pointers whole;
//! installing allocates nothing and makes one system call, so it is safe between fork and exec.

pub(crate) mod arguments;
mod compile;
mod decision;
mod export;
mod gateway;
mod init;
mod install;
mod names;
mod recent;
mod table;
mod workload;

#[cfg(test)]
mod interpret;
#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod tests;

pub use compile::{Filter, Instruction, compile};
pub use decision::Verdict;
pub use export::{Allowance, Condition, allowances};
pub use install::{install, install_on_every_thread, install_with_listener};
pub use table::always_refused;

/// Who the filter is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// A job: everything a build, a test suite or an agent needs, nothing that reaches for the kernel.
    Workload,
    /// The same in a sandbox whose pid 1 counts sockets for routing messages, as [`crate::counted`] does.
    WorkloadCounted,
    /// A job that may also run debuggers on its own processes.
    WorkloadDebug,
    /// Pid 1 of a sandbox once the job has started: wait, relay, exit. Anything else ends it.
    Init,
    /// A job's gateway: sockets, memory and time. No file, no program, no process; anything else ends it.
    Gateway,
}
