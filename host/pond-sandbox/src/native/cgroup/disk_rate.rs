//! How fast a job may write to and read from the disk its copy lies on: what the operator asks for, and whether this host can.
//!
//! Zone: host. v1 cannot hold what goes through the page cache, so only v2 is asked, and only where the `io` controller is handed
//! down and the directory lies on a disk of its own. What cannot be held is said, never passed off as held.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{major, minor, stat};
use rustix::io::Errno;

use super::files;
use super::host::{CgroupHost, Mode};

/// Bytes a second, each way, on one disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskRate {
    major: u32,
    minor: u32,
    bytes_per_second: u64,
}

/// Why the rate is not held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoDiskRate {
    #[error("control groups v1 cannot limit what goes through the page cache")]
    Legacy,
    #[error("the io controller is not handed down to the groups of jobs")]
    NoController,
    #[error("the disk of an ordinary user's job is memory")]
    Memory,
    #[error("the state directory lies on no disk of its own ({0})")]
    NoDisk(#[source] Errno),
}

impl fmt::Display for DiskRate {
    /// As `io.max` takes it, and as it begins the line it gives back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { major, minor, bytes_per_second: rate } = self;
        write!(f, "{major}:{minor} rbps={rate} wbps={rate}")
    }
}

impl DiskRate {
    /// The same on another disk.
    pub(super) fn on(self, device: u64) -> Self {
        Self { major: major(device), minor: minor(device), ..self }
    }

    pub const fn bytes_per_second(&self) -> u64 {
        self.bytes_per_second
    }
}

impl CgroupHost {
    /// What holds jobs to this rate on the disk that `directory` lies on.
    pub fn disk_rate(&self, directory: &Path, bytes_per_second: u64) -> Result<DiskRate, NoDiskRate> {
        match self.mode() {
            Mode::V1 | Mode::Hybrid => return Err(NoDiskRate::Legacy),
            Mode::V2 if !self.hands_down_io() => return Err(NoDiskRate::NoController),
            Mode::V2 => {}
        }
        let (major, minor) = disk_of(directory).map_err(NoDiskRate::NoDisk)?;
        Ok(DiskRate { major, minor, bytes_per_second })
    }
}

/// Hands the controller down where there is one; a host without it is poorer, and says so when it is asked.
pub(super) fn hand_down(directory: BorrowedFd<'_>, offered: &str) {
    let is_offered = offered.split_ascii_whitespace().any(|name| name == "io");
    if is_offered && let Err(_poorer) = files::put(directory, "cgroup.subtree_control", "+io") {}
}

/// The whole disk: limits are not taken for a part of one.
fn disk_of(directory: &Path) -> Result<(u32, u32), Errno> {
    let device = stat(directory)?.st_dev;
    let (major, minor) = (major(device), minor(device));
    let entry = format!("/sys/dev/block/{major}:{minor}");
    if files::read_path(&format!("{entry}/partition")).is_err() {
        // One that is no block device at all has no entry either.
        return files::read_path(&format!("{entry}/dev")).map(|_| (major, minor));
    }
    // A part's directory lies in the disk's.
    let whole = files::read_path(&format!("{entry}/../dev"))?;
    let (major, minor) = whole.trim().split_once(':').ok_or(Errno::NODEV)?;
    Ok((major.parse().map_err(|_| Errno::NODEV)?, minor.parse().map_err(|_| Errno::NODEV)?))
}
