//! A kept disk in another range of ids: each of its files goes to who has the same id inside as its owner had.
//!
//! Zone: privileged, over a tree that a job made. Nothing runs on the disk meanwhile, no link is followed, and every step goes from one
//! directory to the next by name, so that the depth of the tree costs no descriptors. The workspace is nobody's of
//! the job's meanwhile: who is stopped half way is followed by one that finishes, since which ids are old can be told from the ids alone.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use pond_wire::jail::{JOB_ID, RANGE_IDS, Step};
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid};

use crate::fault::{At, Failure};

const STEP: Step = Step::MountScratch;
/// The upper layer of the workspace.
const WORKSPACE: &CStr = c"u";

/// Gives everything on the disk to the range at `base`, unless its workspace says that it is there already.
pub(crate) fn move_to(disk: &OwnedFd, base: u32) -> Result<(), Failure> {
    match rustix::fs::statat(disk, WORKSPACE, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(workspace) if workspace.st_uid != base + JOB_ID => {}
        // It is a new disk, or has not been elsewhere.
        Ok(_) | Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(Failure { step: STEP, errno }),
    }
    give(disk, WORKSPACE, 0, 0)?;
    let mut at = below(disk, c".")?;
    let mut waiting = vec![hand_over(&at, base, Some(WORKSPACE))?];
    while let Some(directories) = waiting.last_mut() {
        if let Some(name) = directories.pop() {
            at = below(&at, &name)?;
            waiting.push(hand_over(&at, base, None)?);
        } else {
            waiting.pop();
            if !waiting.is_empty() {
                at = below(&at, c"..")?;
            }
        }
    }
    give(disk, WORKSPACE, base + JOB_ID, base + JOB_ID)
}

/// Gives a directory's entries to the range, but for one that comes later; says which of them are directories.
fn hand_over(directory: &OwnedFd, base: u32, later: Option<&CStr>) -> Result<Vec<CString>, Failure> {
    let mut directories = Vec::new();
    for entry in Dir::read_from(directory).at(STEP)? {
        let name = entry.at(STEP)?.file_name().to_owned();
        if name.as_bytes() == b"." || name.as_bytes() == b".." {
            continue;
        }
        let found = rustix::fs::statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW).at(STEP)?;
        let (uid, gid) = moved(&found, base);
        if (uid, gid) != (found.st_uid, found.st_gid) && Some(name.as_c_str()) != later {
            give(directory, &name, uid, gid)?;
        }
        if FileType::from_raw_mode(found.st_mode).is_dir() {
            directories.push(name);
        }
    }
    Ok(directories)
}

fn give(directory: &OwnedFd, name: &CStr, uid: u32, gid: u32) -> Result<(), Failure> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::fs::chownat(directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).at(STEP)
}

/// Ranges begin at multiples of their size, and what lies below the first belongs to the host.
fn moved(found: &Stat, base: u32) -> (u32, u32) {
    let inside = |id: u32| if id < RANGE_IDS { id } else { base + id % RANGE_IDS };
    (inside(found.st_uid), inside(found.st_gid))
}

fn below(at: &OwnedFd, name: &CStr) -> Result<OwnedFd, Failure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty()).at(STEP)
}

#[cfg(test)]
mod tests {
    //! A tree that a job made, in one range and then in another.
    use super::*;
    use std::os::unix::fs::{MetadataExt, chown, lchown, symlink};
    use std::path::Path;

    const OLD: u32 = 0x7000_0000;
    const NEW: u32 = 0x7005_0000;

    fn owner(path: &Path) -> (u32, u32) {
        let found = path.symlink_metadata().unwrap();
        (found.uid(), found.gid())
    }

    #[test]
    fn everything_goes_to_the_same_id_inside_and_nothing_outside_is_touched() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let disk = place.path().join("disk");
        let deep = disk.join("u").join("d/".repeat(300));
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::create_dir(disk.join("w")).unwrap();
        std::fs::write(deep.join("file"), "").unwrap();
        let outside = place.path().join("outside");
        std::fs::write(&outside, "").unwrap();
        symlink(place.path(), disk.join("u/link")).unwrap();
        chown(&outside, Some(OLD + JOB_ID), Some(OLD)).unwrap();
        lchown(disk.join("u/link"), Some(OLD + 7), Some(OLD + JOB_ID)).unwrap();
        chown(deep.join("file"), Some(OLD + JOB_ID), Some(OLD + 65_535)).unwrap();
        chown(disk.join("u"), Some(OLD + JOB_ID), Some(OLD + JOB_ID)).unwrap();
        let open = || OwnedFd::from(std::fs::File::open(&disk).unwrap());

        move_to(&open(), OLD).unwrap();
        assert_eq!(owner(&deep.join("file")), (OLD + JOB_ID, OLD + 65_535), "it was there");
        move_to(&open(), NEW).unwrap();
        assert_eq!(owner(&deep.join("file")), (NEW + JOB_ID, NEW + 65_535));
        assert_eq!(owner(&disk.join("u/link")), (NEW + 7, NEW + JOB_ID));
        assert_eq!(owner(&disk.join("u")), (NEW + JOB_ID, NEW + JOB_ID));
        assert_eq!(owner(&disk.join("w")), (0, 0), "the host's own");
        assert_eq!(owner(&outside), (OLD + JOB_ID, OLD), "no link is followed");

        // Somebody was killed half way to a third range.
        chown(deep.join("file"), Some(0x7009_0000 + JOB_ID), None).unwrap();
        chown(disk.join("u"), Some(0), Some(0)).unwrap();
        move_to(&open(), OLD).unwrap();
        assert_eq!(owner(&deep.join("file")), (OLD + JOB_ID, OLD + 65_535));
    }
}
