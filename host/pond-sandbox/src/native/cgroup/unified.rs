//! The v2 group below which jobs get theirs, with its controllers handed down.
//!
//! Zone: host. In v2 a group that hands controllers to children holds no process itself, so whoever stands in a delegated
//! group first steps into a leaf of it. Invariant: only a group that is ours alone, or was delegated, is rearranged.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fgetxattr, mkdirat};
use rustix::io::Errno;
use rustix::process::getpid;

use super::fault::{CgroupFault, Remedy};
use super::host::{LIMITED, writable};
use super::layout::Place;
use super::{disk_rate, files};

/// The leaf for pond's own processes, beside the groups of jobs.
const SUPERVISOR: &str = "pond-supervisor";
/// Processes may fork while they are moved.
const ROUNDS: u32 = 8;

pub(super) fn base(place: &Place, uid: u32) -> Result<(OwnedFd, PathBuf), CgroupFault> {
    let own = match (place.group.file_name(), place.group.parent()) {
        (Some(name), Some(parent)) if name == SUPERVISOR => parent,
        (_, _) => place.group.as_path(),
    };
    let at_root = own == place.mount;
    match prepare(own, at_root, uid) {
        // Root logged in to a session does not own that session's group, and need not.
        Err(_) if uid == 0 && !at_root => prepare(&place.mount, false, uid),
        outcome => outcome,
    }
}

/// `whole` says that the group is all this process can see: the root of a container.
fn prepare(path: &Path, whole: bool, uid: u32) -> Result<(OwnedFd, PathBuf), CgroupFault> {
    let refused = |source| {
        let remedy = if uid == 0 { Remedy::WritableHierarchy } else { Remedy::DelegatedScope };
        CgroupFault::NotDelegated { directory: path.to_owned(), remedy, source }
    };
    let (directory, path) = writable(path).map_err(refused)?;
    let offered = files::get(directory.as_fd(), "cgroup.controllers").map_err(refused)?;
    let lists = |list: &str, name: &str| list.split_ascii_whitespace().any(|listed| listed == name);
    if let Some(controller) = LIMITED.into_iter().find(|controller| !lists(&offered, controller.name())) {
        let remedy = if uid == 0 { Remedy::EnableController } else { Remedy::DelegatedToUsers };
        return Err(CgroupFault::NoController { controller, remedy: remedy(controller) });
    }
    let handed_down = files::get(directory.as_fd(), "cgroup.subtree_control").map_err(refused)?;
    if LIMITED.into_iter().all(|controller| lists(&handed_down, controller.name())) {
        if !lists(&handed_down, "io") {
            disk_rate::hand_down(directory.as_fd(), &offered);
        }
        return Ok((directory, path));
    }
    match hand_down(directory.as_fd()) {
        Ok(()) => {}
        Err(Errno::BUSY) => {
            if !vacate(directory.as_fd(), whole).map_err(refused)? {
                return Err(CgroupFault::Occupied { directory: path, remedy: Remedy::DelegatedScope });
            }
            hand_down(directory.as_fd()).map_err(refused)?;
        }
        Err(source) => return Err(refused(source)),
    }
    disk_rate::hand_down(directory.as_fd(), &offered);
    Ok((directory, path))
}

fn hand_down(directory: BorrowedFd<'_>) -> Result<(), Errno> {
    let all = LIMITED.map(|controller| format!("+{controller}")).join(" ");
    files::put(directory, "cgroup.subtree_control", &all)
}

/// Moves everyone in the group into the leaf. Says whether the group could be emptied.
fn vacate(directory: BorrowedFd<'_>, whole: bool) -> Result<bool, Errno> {
    let residents = files::read_all(directory, "cgroup.procs")?;
    let alone = residents.lines().all(is_ours);
    if !(alone || whole || is_delegated(directory)) {
        return Ok(false);
    }
    match mkdirat(directory, SUPERVISOR, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    let leaf = files::open_subdirectory(directory, SUPERVISOR)?;
    for _ in 0..ROUNDS {
        let residents = files::read_all(directory, "cgroup.procs")?;
        if residents.is_empty() {
            return Ok(true);
        }
        for resident in residents.lines() {
            match files::put(leaf.as_fd(), "cgroup.procs", resident) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(false)
}

/// This process, or a child of it: its launcher.
fn is_ours(pid: &str) -> bool {
    let own = getpid().as_raw_nonzero().to_string();
    let parent = || {
        let stat = files::read_path(&format!("/proc/{pid}/stat")).ok()?;
        // The name before it may hold anything but ends at the last parenthesis; the state is one letter.
        Some(stat.rsplit_once(") ")?.1.split(' ').nth(1)? == own)
    };
    pid == own || parent() == Some(true)
}

/// The service manager marks what it delegates.
fn is_delegated(directory: BorrowedFd<'_>) -> bool {
    ["user.delegate", "trusted.delegate"].into_iter().any(|mark| {
        let mut value = [0; 2];
        fgetxattr(directory, mark, &mut value)
            .is_ok_and(|length| value.get(..length) == Some(b"1".as_slice()))
    })
}
