//! The repository around a checkout that is only a part of it: its ignore rules and its index lie above.
//!
//! Found by descriptor, going up a bounded number of directories to the first that holds a `.git`, on the same file system and
//! of the same owner or of whoever runs pond: what strangers left further up has no say. Nothing is opened through a link.
//! What is not found leaves nothing out, so the failure shows more, never less.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Mode, OFlags, Stat, fstat, openat};

use crate::beneath;

const LEVELS: usize = 32;
const METADATA: &[u8] = b".git";

/// The directory with the `.git`, and the way from there to the checkout.
#[derive(Debug)]
pub struct Above {
    top: OwnedFd,
    prefix: Vec<u8>,
}

impl Above {
    /// Nothing when the checkout has a `.git` of its own, or none above it that counts.
    pub fn find(checkout: BorrowedFd<'_>) -> Option<Self> {
        let own = fstat(checkout).ok()?;
        let mut below = own;
        let mut directory = checkout.try_clone_to_owned().ok()?;
        for _ in 0..LEVELS {
            if beneath::open_handle(&directory, METADATA).is_ok() {
                return Self::between(directory, checkout, &own);
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            directory = openat(&directory, "..", flags, Mode::empty()).ok()?;
            let here = fstat(&directory).ok()?;
            let is_root = same(&here, &below);
            if is_root || here.st_dev != own.st_dev || !is_trusted(&here, &own) {
                return None;
            }
            below = here;
        }
        None
    }

    /// The kernel's names say which way leads down; walking it again says whether that is so.
    fn between(top: OwnedFd, checkout: BorrowedFd<'_>, own: &Stat) -> Option<Self> {
        let name = |fd: BorrowedFd<'_>| std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok();
        let below = name(checkout)?;
        let prefix = below.strip_prefix(name(top.as_fd())?).ok()?.as_os_str().as_bytes().to_vec();
        let reached = fstat(beneath::open_handle(&top, &prefix).ok()?).ok()?;
        (!prefix.is_empty() && same(&reached, own)).then_some(Self { top, prefix })
    }

    pub(super) fn top(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }

    /// The checkout's path below the top, never empty and without a slash at either end.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The directories from the top down to the one that holds the checkout: their paths below the top.
    pub(super) fn directories(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self.prefix.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        std::iter::once(0).chain(ends).filter_map(|end| self.prefix.get(..end))
    }
}

fn same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

fn is_trusted(directory: &Stat, checkout: &Stat) -> bool {
    directory.st_uid == checkout.st_uid || directory.st_uid == rustix::process::geteuid().as_raw()
}
