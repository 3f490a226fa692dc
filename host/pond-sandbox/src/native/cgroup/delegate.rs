//! What root does once, so that an ordinary user can limit jobs on a v1 host.
//!
//! Zone: host, as root. A user who owns a group's directory may make groups below it and move own processes in; the group's
//! own limits stay root's. v2 needs none of this: there the service manager delegates.

use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Mode, Uid, chown, mkdir};
use rustix::io::Errno;

use super::fault::CgroupFault;
use super::host::{LIMITED, hierarchy_of, own_layout};

pub(super) fn directory(mount: &Path, uid: u32) -> PathBuf {
    mount.join(format!("pond-user-{uid}"))
}

/// Gives a user one group per controller, and says which. Doing it again changes nothing.
pub fn delegate(uid: u32, gid: u32) -> Result<Vec<PathBuf>, CgroupFault> {
    let layout = own_layout()?;
    let mut given: Vec<PathBuf> = Vec::new();
    for controller in LIMITED {
        let legacy = hierarchy_of(&layout, controller).ok_or(CgroupFault::NothingToDelegate)?;
        let directory = directory(&legacy.place.mount, uid);
        if !given.contains(&directory) {
            hand_over(&directory, uid, gid)
                .map_err(|source| CgroupFault::Delegate { directory: directory.clone(), source })?;
            given.push(directory);
        }
    }
    Ok(given)
}

fn hand_over(directory: &Path, uid: u32, gid: u32) -> Result<(), Errno> {
    match mkdir(directory, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    chown(directory, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
}
