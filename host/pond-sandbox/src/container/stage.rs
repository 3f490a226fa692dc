//! What a container binds, under names on this host: the job's storage and what it is shown of the host,
//! hung up by the launcher, and a few files of /etc.
//!
//! The names are needed from the engine's first look to the container's start. Then the container holds the mounts and the
//! names go. Everything has a fixed name, so taking it down never walks a tree.

use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use pond_wire::jail::{JailPlan, MOST_SHOWN, Report, Step, staged};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::plan::{STAGED, base_name, staged_files};
use crate::native::{Launcher, LauncherFault, Scenery};

#[derive(Debug, thiserror::Error)]
pub enum StageFault {
    #[error("making {path}")]
    Make { path: PathBuf, source: io::Error },
    #[error("taking {path} down")]
    TakeDown { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Launcher(#[from] LauncherFault),
    #[error("could not {}", .step.describe())]
    Step { step: Step, source: io::Error },
    #[error("the launcher ended before the storage was there")]
    Gone,
}

/// Storage that hangs in a directory. Dropping this leaves it to the record.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) directory: PathBuf,
    pub(super) layer: Layer,
}

/// The upper layer and the job's view of it, for whoever collects the result.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) upper: OwnedFd,
    pub(super) view: OwnedFd,
}

impl Stage {
    pub(super) fn build(
        launcher: &Launcher,
        directory: PathBuf,
        plan: &JailPlan,
        scenery: &Scenery<'_>,
    ) -> Result<Self, StageFault> {
        let failed = |source| StageFault::Make { path: directory.clone(), source };
        std::fs::DirBuilder::new().mode(0o700).create(&directory).map_err(failed)?;
        for (name, content) in staged_files(plan) {
            let path = directory.join(name);
            std::fs::write(&path, content).map_err(failed)?;
            // The job reads it, whatever the caller's umask is.
            std::fs::set_permissions(&path, Permissions::from_mode(0o644)).map_err(failed)?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let at = rustix::fs::open(&directory, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        let (report, said) = launcher.stage(plan, at.as_fd(), scenery)?.ok_or(StageFault::Gone)?;
        let mut said = said.into_iter();
        match (report, said.next().zip(said.next())) {
            (Report::Prepared, Some((upper, view))) => Ok(Self { directory, layer: Layer { upper, view } }),
            (Report::Failed { step, errno }, _) => {
                Err(StageFault::Step { step, source: io::Error::from_raw_os_error(errno) })
            }
            (Report::Prepared, None)
            | (
                Report::Started
                | Report::Doors
                | Report::Exited { .. }
                | Report::Signaled { .. }
                | Report::Serving
                | Report::Began
                | Report::Connected,
                _,
            ) => Err(StageFault::Gone),
        }
    }
}

/// The job's copy and its home, for a container that does not bind them. While this is held the mounts live, names or not.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) workspace: OwnedFd,
    pub(super) home: OwnedFd,
}

impl Stage {
    pub(super) fn parcel(&self) -> Result<Parcel, StageFault> {
        let open = |name: &str| {
            let path = self.directory.join(name);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            rustix::fs::open(&path, flags, Mode::empty())
                .map_err(|errno| StageFault::Make { path, source: errno.into() })
        };
        Ok(Parcel { workspace: open(staged::WORKSPACE)?, home: open(staged::HOME)? })
    }
}

/// Idempotent. What a container holds stays with it.
pub(super) fn take_down(directory: &Path) -> Result<(), StageFault> {
    let failed = |source| StageFault::TakeDown { path: directory.to_owned(), source };
    let gone = |done: io::Result<()>| match done {
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    let storage = [staged::WORKSPACE, staged::HOME, staged::TERMINALS].map(str::to_owned);
    for name in storage.into_iter().chain((0..MOST_SHOWN).map(staged::shown)) {
        let place = directory.join(name);
        match unmount(&place, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            // Nothing hangs there.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
        let removed = match std::fs::remove_dir(&place) {
            Err(fault) if fault.kind() == io::ErrorKind::NotADirectory => std::fs::remove_file(&place),
            other => other,
        };
        gone(removed).map_err(failed)?;
    }
    for path in STAGED {
        gone(std::fs::remove_file(directory.join(base_name(path)))).map_err(failed)?;
    }
    gone(std::fs::remove_dir(directory)).map_err(failed)
}
