//! What a dead job wrote, for reading until it is dropped; and whether it is still what the job wrote.
//!
//! Zone: host. The job's disk is a sparse file of the host's. When the host has no room left, the kernel takes what the job writes
//! and later drops it: nobody is told but who held a descriptor from before, and asks. So the job's own view and the device
//! below it are held open from before the job's first instruction. Asking costs microseconds and makes nothing be written.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::thread::JoinHandle;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// To stand in a directory, whatever lies in it.
const STANDING: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Dropping it removes it, and nothing of it is written to disk first.
#[derive(Debug)]
pub struct Upper {
    /// Goes first: whoever is the last to close a device waits until it is written back.
    device: Option<OwnedFd>,
    view: OwnedFd,
    layer: OwnedFd,
    /// The job's mounts, which nobody is in any more. The kernel waits for every processor to take an overlay apart; here it does so
    /// when this goes, and not between the end of the job and the word of it.
    mounts: Option<OwnedFd>,
    /// What is on the disk outlives this value, and the kernel is to write it back.
    is_kept: bool,
}

/// Free room of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub bytes: u64,
    pub inodes: u64,
}

impl Room {
    /// Nothing where the file system does not say.
    pub fn of(file: impl AsFd) -> Option<Self> {
        let free = rustix::fs::fstatvfs(file).ok()?;
        Some(Self { bytes: free.f_bavail.saturating_mul(free.f_frsize), inodes: free.f_favail })
    }
}

/// A disk the kernel takes apart beside whatever else is done. Dropping this waits until it has.
#[derive(Debug)]
pub struct Leaving(Option<JoinHandle<()>>);

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(Err(_panicked)) = self.0.take().map(JoinHandle::join) {}
    }
}

impl Upper {
    pub(super) fn new(layer: OwnedFd, view: OwnedFd, mounts: Option<OwnedFd>) -> io::Result<Self> {
        Ok(Self { device: device_below(&layer)?, view, layer, mounts, is_kept: false })
    }

    /// Of a disk that stays.
    pub(super) fn kept(layer: OwnedFd, view: OwnedFd, mounts: Option<OwnedFd>) -> io::Result<Self> {
        let mut upper = Self::new(layer, view, mounts)?;
        upper.is_kept = true;
        Ok(upper)
    }

    /// Free room of the job's `/tmp`, as long as its mounts are there. The way to it begins at the job's view and leads over the root
    /// that pond made, which no job can change; where the mounts are gone, one step up from the view is the view itself, and no
    /// mount lies below it.
    pub(super) fn tmp(&self) -> Option<Room> {
        self.mounts.as_ref()?;
        let root = rustix::fs::openat(&self.view, "..", STANDING, Mode::empty()).ok()?;
        let tmp = rustix::fs::openat(&root, "tmp", STANDING, Mode::empty()).ok()?;
        let device = |directory: &OwnedFd| rustix::fs::fstat(directory).map(|stat| stat.st_dev).ok();
        if device(&root)? == device(&tmp)? { None } else { Room::of(tmp) }
    }

    /// What lies in the job's memory file systems goes now: the group it was charged to is about to.
    pub(super) fn release_mounts(&mut self) {
        self.mounts = None;
    }

    /// An error when something that the job wrote, or what says where it lies, could not be kept. To be asked once everything has
    /// been read: what was lost before is known by then.
    pub fn check(&self) -> io::Result<()> {
        // The view is an overlay that promises to survive no crash: asked to flush, it flushes nothing, and says whether
        // anything below it was lost since it was mounted. Without an overlay there is nothing but to flush.
        rustix::fs::syncfs(&self.view)?;
        self.device.as_ref().map_or(Ok(()), pond_sys::fd::writeback_fault)
    }

    /// Lets go of it, which takes the kernel as long as a run's last words take pond.
    pub fn leave(self) -> Leaving {
        // Without a thread to be had it is dropped here, with the closure.
        Leaving(std::thread::Builder::new().spawn(move || drop(self)).ok())
    }

    /// Whether writing it back could take longer than the shutdown, which the kernel announces on the console first.
    fn holds_much(&self) -> bool {
        const FEW_BYTES: u64 = 1 << 20;
        const FEW_FILES: u64 = 256;
        rustix::fs::fstatvfs(&self.layer).map_or(true, |disk| {
            disk.f_blocks.saturating_sub(disk.f_bfree).saturating_mul(disk.f_frsize) > FEW_BYTES
                || disk.f_files.saturating_sub(disk.f_ffree) > FEW_FILES
        })
    }
}

impl AsFd for Upper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.layer.as_fd()
    }
}

impl Drop for Upper {
    fn drop(&mut self) {
        // Only an image can be shut down, and only by root; memory has nothing to write back in the first place.
        if !self.is_kept
            && self.holds_much()
            && let Err(_has_no_disk) = pond_sys::loopdev::shut_down_ext4(&self.layer)
        {}
    }
}

/// The block device that a directory lies on; none for one in memory.
fn device_below(directory: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let number = rustix::fs::fstat(directory)?.st_dev;
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    if major == 0 {
        return Ok(None);
    }
    let called = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}"))?;
    let name = called.file_name().ok_or(Errno::NODEV)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let device = rustix::fs::open(Path::new("/dev").join(name), flags, Mode::empty())?;
    if rustix::fs::fstat(&device)?.st_rdev == number { Ok(Some(device)) } else { Err(Errno::NODEV.into()) }
}
