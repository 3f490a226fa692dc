//! How fast a job may write to and read from the disk its copy lies on: what the operator asks for, and whether this host can.
//!
//! Zone: host. v1 cannot hold what goes through the page cache, so only v2 is asked, and only where the `io` controller is handed
//! down and the directory lies on a disk of its own. What cannot be held is said, never passed off as held. The groups of a
//! container are its engine's: there the rate is asked for by the disk's name, and read back from the kernel as every other limit.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{major, makedev, minor, stat};
use rustix::io::Errno;

use super::files;
use super::host::{self, CgroupHost, Mode};
use super::layout::Layout;

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
    #[error("the job's disk is memory")]
    Memory,
    #[error("the disk {major}:{minor} has no name below /dev, by which an engine could be told of it")]
    NoName { major: u32, minor: u32 },
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
    pub(crate) fn on(self, device: u64) -> Self {
        Self { major: major(device), minor: minor(device), ..self }
    }

    #[cfg(test)]
    pub(crate) const fn for_tests(major: u32, minor: u32, bytes_per_second: u64) -> Self {
        Self { major, minor, bytes_per_second }
    }

    pub const fn bytes_per_second(&self) -> u64 {
        self.bytes_per_second
    }

    /// The disk as an engine is told of it, seen to be this one.
    pub(crate) fn name(&self) -> Result<String, NoDiskRate> {
        let Self { major, minor, .. } = *self;
        let told = files::read_path(&format!("/sys/dev/block/{major}:{minor}/uevent")).unwrap_or_default();
        let name = told.lines().find_map(|line| line.strip_prefix("DEVNAME="));
        let path = name.map(|name| format!("/dev/{name}"));
        let is_it =
            |path: &String| stat(path.as_str()).is_ok_and(|found| found.st_rdev == makedev(major, minor));
        path.filter(is_it).ok_or(NoDiskRate::NoName { major, minor })
    }

    /// What the groups of containers can be held to on the disk that `directory` lies on: an engine hands down whatever the root
    /// of the hierarchy has.
    pub(crate) fn of_containers(directory: &Path, bytes_per_second: u64) -> Result<Self, NoDiskRate> {
        let layout = host::own_layout().map_err(|_| NoDiskRate::NoController)?;
        let root = layout.unified.as_ref().map(|place| place.mount.join("cgroup.controllers"));
        let offered = root.and_then(|file| files::read_path(file.to_str()?).ok());
        can_hold(&layout, &offered.unwrap_or_default())?;
        let (major, minor) = disk_of(directory).map_err(NoDiskRate::NoDisk)?;
        let rate = Self { major, minor, bytes_per_second };
        rate.name().map(|_| rate)
    }
}

/// Whether groups below the root of this layout, which has these controllers, can hold a rate.
fn can_hold(layout: &Layout, offered: &str) -> Result<(), NoDiskRate> {
    if !layout.legacy.is_empty() || layout.unified.is_none() {
        return Err(NoDiskRate::Legacy);
    }
    let is_offered = offered.split_ascii_whitespace().any(|name| name == "io");
    is_offered.then_some(()).ok_or(NoDiskRate::NoController)
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::fault::Controller;
    use super::super::layout::{Legacy, Place};
    use super::*;

    #[test]
    fn containers_are_held_to_a_rate_only_on_v2_with_io() {
        let place = Place { mount: PathBuf::from("/m"), group: PathBuf::from("/m/g") };
        let legacy = Legacy { controllers: vec![Controller::Memory], place: place.clone() };
        let v2 = Layout { unified: Some(place.clone()), legacy: Vec::new() };
        let hybrid = Layout { unified: Some(place), legacy: vec![legacy] };
        assert_eq!(can_hold(&v2, "cpuset cpu io memory pids\n"), Ok(()));
        assert_eq!(can_hold(&v2, "cpu iommu memory pids\n"), Err(NoDiskRate::NoController));
        assert_eq!(can_hold(&hybrid, "io"), Err(NoDiskRate::Legacy));
        assert_eq!(can_hold(&Layout::default(), "io"), Err(NoDiskRate::Legacy));
    }

    /// A name is given only for the disk that really has it.
    #[test]
    fn a_disk_is_named_as_the_kernel_names_it() {
        let entries = std::fs::read_dir("/sys/block").unwrap().flatten();
        let named = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let device = stat(format!("/dev/{name}").as_str()).ok()?.st_rdev;
            Some((DiskRate { major: major(device), minor: minor(device), bytes_per_second: 1 }, name))
        });
        let mut seen = 0;
        for (rate, name) in named {
            assert_eq!(rate.name(), Ok(format!("/dev/{name}")));
            seen += 1;
        }
        assert!(seen > 0, "this host has no disk to look at");
        let none = DiskRate { major: 0, minor: 4095, bytes_per_second: 1 };
        assert_eq!(none.name(), Err(NoDiskRate::NoName { major: 0, minor: 4095 }));
    }
}
