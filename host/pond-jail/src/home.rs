//! What a job finds in its home directory: settings that lead its tools to the gateway, theirs to change.
//!
//! Runs as root of the sandbox, after the host's tree is gone and before anything of the job runs: the directory is fresh
//! and empty, so nothing can stand in the way of a path. Everything made belongs to the job.

use std::os::fd::OwnedFd;

use pond_wire::jail::{HOME, HomeFile, Identity, JOB_ID, JailPlan, Step};
use rustix::fs::{CWD, Gid, Mode, OFlags, Uid, fchown, mkdirat, openat};
use rustix::io::Errno;

use crate::fault::{At, Failure};

/// From inside, where the job's id is what it sees as its own.
pub(crate) fn furnish(plan: &JailPlan) -> Result<(), Failure> {
    if plan.home.is_empty() {
        return Ok(());
    }
    let owner = match plan.identity {
        Identity::Single { .. } => None,
        Identity::Range { .. } => Some(JOB_ID),
    };
    let home = openat(CWD, HOME, DIRECTORY, Mode::empty()).at(Step::Furnish)?;
    plan.home.iter().try_for_each(|file| put(&home, file, owner).at(Step::Furnish))
}

/// From outside, on a mount that nobody uses yet; `owner` is the job's id on the host.
pub(crate) fn furnish_mount(plan: &JailPlan, home: &OwnedFd, owner: u32) -> Result<(), Failure> {
    let home = openat(home, ".", DIRECTORY, Mode::empty()).at(Step::Furnish)?;
    plan.home.iter().try_for_each(|file| put(&home, file, Some(owner)).at(Step::Furnish))
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn put(home: &OwnedFd, file: &HomeFile, owner: Option<u32>) -> Result<(), Errno> {
    let (parents, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let mut at = home.try_clone().map_err(|_| Errno::MFILE)?;
    for part in parents.split('/').filter(|part| !part.is_empty()) {
        match mkdirat(&at, part, Mode::from_raw_mode(0o700)) {
            Ok(()) => {
                at = openat(&at, part, DIRECTORY, Mode::empty())?;
                give(&at, owner)?;
            }
            // Another file of the plan stands in it.
            Err(Errno::EXIST) => at = openat(&at, part, DIRECTORY, Mode::empty())?,
            Err(errno) => return Err(errno),
        }
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let target = openat(&at, name, flags, Mode::from_raw_mode(0o600))?;
    let mut rest = file.content.as_bytes();
    while !rest.is_empty() {
        let written = rustix::io::write(&target, rest)?;
        rest = rest.get(written..).ok_or(Errno::IO)?;
    }
    give(&target, owner)
}

/// To the job; an ordinary user's sandbox has no other owner to begin with.
fn give(file: &OwnedFd, owner: Option<u32>) -> Result<(), Errno> {
    match owner {
        None => Ok(()),
        Some(id) => fchown(file, Some(Uid::from_raw(id)), Some(Gid::from_raw(id))),
    }
}
