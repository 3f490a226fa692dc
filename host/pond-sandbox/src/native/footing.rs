//! The ground of the next job, on the asking side: what was asked of the launcher before there was a job, and whether it is still what
//! a job of now would get.
//!
//! Zone: host. A ground ages: the host may replace a file, a directory or a mount that it shows. Invariant: a ground is used only
//! while everything it was made from is as it was; otherwise it is forgotten and the job's root is made from nothing.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pond_wire::jail::{Ground, Identity};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::ids::{self, IdRange, IdsFault};
use super::launcher::LauncherFault;
use super::scratch::Quota;
use super::toolchain::{self, Place};
use super::{mounts, plan};

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
    /// Its child waits on it, in the groups that were made with it: a launch has nothing to prepare.
    pub(super) has_child: bool,
    /// Where the places are, links followed, and every mount they depend on.
    found: Vec<PathBuf>,
    mounted: Vec<String>,
    /// The kernel tells whoever polls this file that the mount table changed since it was opened or last polled.
    table: File,
    since: Instant,
}

impl Footing {
    /// Takes an id range and looks at the host; the launcher is yet to be told.
    pub(super) fn plan(owner: Owner, disk: Option<Quota>) -> Result<(Self, Ground), FootingFault> {
        // Before anything is looked at.
        let table = File::open(mounts::TABLE).map_err(FootingFault::Mounts)?;
        let places = toolchain::probe();
        let found = toolchain::sources(&places).map_err(FootingFault::Mounts)?;
        let mounted = mounts::around(&found).map_err(FootingFault::Mounts)?;
        let (identity, range) = identity(owner)?;
        let ground = plan::ground(&places, identity);
        let since = Instant::now();
        Ok((Self { places, range, disk, has_child: false, found, mounted, table, since }, ground))
    }

    /// Whether a job of now would get the same. Other people's mounts come and go; only those that its places depend on count.
    pub(super) fn is_fresh(&self) -> bool {
        if self.table_changed() {
            return self.mounts_are_the_same() && self.places_are_the_same();
        }
        self.since.elapsed() < JUST_NOW || self.places_are_the_same()
    }

    fn places_are_the_same(&self) -> bool {
        toolchain::probe() == self.places
    }

    fn mounts_are_the_same(&self) -> bool {
        mounts::around(&self.found).is_ok_and(|mounted| mounted == self.mounted)
    }

    fn table_changed(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut changes = [PollFd::from_borrowed_fd(self.table.as_fd(), PollFlags::PRI)];
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

    /// Mounts a file system of its own where it is told to, which is gone with what this gives.
    struct Mounted(PathBuf);

    impl Mounted {
        fn at(place: PathBuf) -> Self {
            let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).unwrap();
            rustix::mount::fsconfig_create(&context).unwrap();
            let made = FsMountFlags::FSMOUNT_CLOEXEC;
            let mount = rustix::mount::fsmount(&context, made, MountAttrFlags::empty()).unwrap();
            let moved = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            rustix::mount::move_mount(&mount, "", CWD, &place, moved).unwrap();
            Self(place)
        }
    }

    impl Drop for Mounted {
        fn drop(&mut self) {
            rustix::mount::unmount(&self.0, UnmountFlags::DETACH).unwrap();
        }
    }

    #[test]
    fn a_mount_that_its_places_depend_on_makes_a_ground_old_and_no_other() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let elsewhere = tempfile::tempdir().unwrap();
        let mut footing = footing();
        let mounted = Mounted::at(elsewhere.path().to_owned());
        assert!(footing.table_changed());
        drop(mounted);
        let _mounted = Mounted::at(elsewhere.path().to_owned());
        assert!(footing.is_fresh());
        // As if this were a place that is shown, and then what lies above one.
        for found in [elsewhere.path().to_owned(), elsewhere.path().join("below")] {
            assert!(footing.mounts_are_the_same());
            footing.found.push(found);
            assert!(!footing.mounts_are_the_same());
            footing.found.pop();
        }
    }
}
