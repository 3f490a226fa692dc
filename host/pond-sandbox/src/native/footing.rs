//! The ground of the next job, on the asking side: what was asked of the launcher before there was a job, and whether it is still what
//! a job of now would get.
//!
//! Zone: host. A ground ages: the host may replace a file, a directory or a mount that it shows. Invariant: a ground is used only
//! while everything it was made from is as it was; otherwise it is forgotten and the job's root is made from nothing.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use pond_wire::jail::{Ground, Identity};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::ids::{self, IdRange, IdsFault};
use super::launcher::LauncherFault;
use super::plan;
use super::scratch::Quota;
use super::toolchain::{self, Place};

/// The kernel tells whoever polls this file that the mount table changed since it was opened or last polled.
const MOUNT_TABLE: &str = "/proc/self/mountinfo";
/// What was looked at this short a time ago is not looked at again.
const JUST_NOW: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub enum FootingFault {
    #[error(transparent)]
    Ids(#[from] IdsFault),
    #[error(transparent)]
    Launcher(#[from] LauncherFault),
    #[error("watching the mount table")]
    Mounts(#[source] std::io::Error),
}

/// Who will own the next checkout, as far as that can be guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

/// What the launcher was told to make ready.
#[derive(Debug)]
pub(super) struct Footing {
    pub(super) places: Vec<Place>,
    /// Held from here on by the job that gets this ground.
    pub(super) range: Option<IdRange>,
    /// The disk that is laid with it.
    pub(super) disk: Option<Quota>,
    mounts: File,
    since: Instant,
}

impl Footing {
    /// Takes an id range and looks at the host; the launcher is yet to be told.
    pub(super) fn plan(owner: Owner, disk: Option<Quota>) -> Result<(Self, Ground), FootingFault> {
        // Before anything is looked at.
        let mounts = File::open(MOUNT_TABLE).map_err(FootingFault::Mounts)?;
        let (identity, range) = identity(owner)?;
        let places = toolchain::probe();
        let ground = plan::ground(&places, identity);
        Ok((Self { places, range, disk, mounts, since: Instant::now() }, ground))
    }

    /// Whether a job of now would get the same.
    pub(super) fn is_fresh(&self) -> bool {
        !self.mounts_changed() && (self.since.elapsed() < JUST_NOW || toolchain::probe() == self.places)
    }

    fn mounts_changed(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut changes = [PollFd::from_borrowed_fd(self.mounts.as_fd(), PollFlags::PRI)];
        // The kernel always says that the table can be read; a change is an error besides.
        poll(&mut changes, Some(&now)).is_err()
            || changes.iter().any(|change| change.revents().intersects(PollFlags::ERR | PollFlags::PRI))
    }
}

/// A private range for root; for an ordinary user the one id there is.
pub(super) fn identity(owner: Owner) -> Result<(Identity, Option<IdRange>), IdsFault> {
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        let range = ids::take_range()?;
        Ok((range_identity(&range, owner), Some(range)))
    } else {
        Ok((Identity::Single { uid: uid.as_raw(), gid: rustix::process::getegid().as_raw() }, None))
    }
}

pub(super) fn range_identity(range: &IdRange, owner: Owner) -> Identity {
    Identity::Range { base: range.base(), owner_uid: owner.uid, owner_gid: owner.gid }
}

#[cfg(test)]
mod tests {
    //! What a job of now would not get any more is not used.
    use super::*;
    use rustix::fs::CWD;
    use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags};

    fn footing() -> Footing {
        Footing::plan(Owner { uid: 0, gid: 0 }, None).unwrap().0
    }

    #[test]
    fn another_file_under_the_same_name_makes_a_ground_old() {
        let mut aged = footing();
        aged.since = Instant::now().checked_sub(JUST_NOW * 2).unwrap();
        let place = aged.places.iter_mut().find(|place| place.is("/usr")).unwrap();
        place.replace();
        assert!(!aged.is_fresh());
    }

    #[test]
    fn a_change_of_the_mount_table_makes_a_ground_old() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let footing = footing();
        let place = tempfile::tempdir().unwrap();
        let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).unwrap();
        rustix::mount::fsconfig_create(&context).unwrap();
        let made = FsMountFlags::FSMOUNT_CLOEXEC;
        let mount = rustix::mount::fsmount(&context, made, MountAttrFlags::empty()).unwrap();
        let moved = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(&mount, "", CWD, place.path(), moved).unwrap();
        rustix::mount::unmount(place.path(), UnmountFlags::DETACH).unwrap();
        assert!(!footing.is_fresh());
    }
}
