//! Control groups: the limits of a job on memory, processors and processes, and the surest way to end all of it.
//!
//! Zone: host. Three layouts: v2, v1, and hybrid (limits in v1, plus a v2 group to kill through).
//! Invariants: a limit that was not read back as asked ends the launch; nothing outside groups of pond's own making is
//! written, except to hand controllers down a delegated v2 group; a group is removed only when empty; everything here can
//! be undone later from names or recorded paths alone.

mod around;
mod delegate;
mod disk_rate;
mod fault;
mod files;
mod foreign;
mod host;
mod job;
mod layout;
mod settings;
mod signal;
mod unified;
mod usage;

#[cfg(test)]
mod live_tests;

pub use around::Around;
pub use delegate::delegate;
pub use disk_rate::{DiskRate, NoDiskRate};
pub use fault::{CgroupFault, Controller, Remedy};
pub(crate) use foreign::{Foreign, kill_all_in};
pub use host::{CgroupHost, Mode};
pub use job::{Birthplace, Entry, JobCgroup, reclaim};
pub use settings::CgroupLimits;
pub use usage::Usage;

/// Every group pond makes for a job is called this and the job's name.
const PREFIX: &str = "pond-job-";
