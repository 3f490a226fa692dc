//! Whose files are whose: the id maps of a job, and the user namespace that translates the owners of its checkout.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pond_sys::process::{Child, Fork, Namespaces, fork_into};
use pond_wire::jail::{Identity, JOB_ID, RANGE_IDS, Step};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;
use rustix::process::{WaitId, WaitIdOptions, waitid};

use crate::fault::{At, Failure};

/// Writes the maps of a child made with a new user namespace. Only the privileged launcher can map a range from outside.
pub(crate) fn write_range(child: &Child, base: u32) -> Result<(), Failure> {
    let line = format!("0 {base} {RANGE_IDS}\n");
    write_map(child, "uid_map", &line)?;
    write_map(child, "gid_map", &line)
}

/// Maps the caller's own id from inside the new namespace: the one map an ordinary user may write.
pub(crate) fn write_single(uid: u32, gid: u32) -> Result<(), Failure> {
    let steps = [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{JOB_ID} {uid} 1\n")),
        ("gid_map", format!("{JOB_ID} {gid} 1\n")),
    ];
    for (file, text) in steps {
        write_proc(&format!("/proc/self/{file}"), &text)?;
    }
    Ok(())
}

fn write_map(child: &Child, file: &str, text: &str) -> Result<(), Failure> {
    write_proc(&format!("/proc/{}/{file}", child.pid.as_raw_nonzero()), text)
}

fn write_proc(path: &str, text: &str) -> Result<(), Failure> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
        .at(Step::WriteIdMaps)?;
    rustix::io::write(&file, text.as_bytes()).at(Step::WriteIdMaps).map(|_| ())
}

/// A user namespace under which the checkout's owner appears as the job's own id, for an idmapped mount. Letting go of it waits for
/// the process it was made with, which has ended by itself long before.
pub(crate) struct Owners {
    namespace: OwnedFd,
    holder: Child,
}

impl AsFd for Owners {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        if let Err(_reaped) = waitid(WaitId::PidFd(self.holder.pidfd.as_fd()), WaitIdOptions::EXITED) {}
    }
}

/// A namespace exists only while something refers to it, so a child is born in it and waits on a pipe until a descriptor
/// holds it; if this process dies first, the pipe ends it too.
pub(crate) fn owner_namespace(identity: Identity) -> Result<Option<Owners>, Failure> {
    let Identity::Range { base, owner_uid, owner_gid } = identity else { return Ok(None) };
    let (waits, ends) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).at(Step::MapOwner)?;
    match fork_into(Namespaces::User, None).at(Step::MapOwner)? {
        Fork::Child => {
            drop(ends);
            let code = rustix::io::read(&waits, &mut [0; 1]).map_or(1, |_| 0);
            pond_sys::process::exit_now(code)
        }
        Fork::Parent(holder) => {
            let namespace = map_holder(&holder, base, owner_uid, owner_gid)?;
            Ok(Some(Owners { namespace, holder }))
        }
    }
}

fn map_holder(holder: &Child, base: u32, owner_uid: u32, owner_gid: u32) -> Result<OwnedFd, Failure> {
    write_map(holder, "uid_map", &lines(base, owner_uid))?;
    write_map(holder, "gid_map", &lines(base, owner_gid))?;
    let path = format!("/proc/{}/ns/user", holder.pid.as_raw_nonzero());
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).at(Step::MapOwner)
}

fn lines(base: u32, owner: u32) -> String {
    extents(owner).iter().map(|(disk, inside, count)| format!("{disk} {} {count}\n", base + inside)).collect()
}

/// (id on disk, id inside, how many): the owner and the job change places, everybody else keeps their number. An owner
/// outside the range displaces the number the job takes.
fn extents(owner: u32) -> Vec<(u32, u32, u32)> {
    let (low, high) = (owner.min(JOB_ID), owner.max(JOB_ID));
    let mut extents = if owner == JOB_ID {
        vec![(0, 0, RANGE_IDS)]
    } else if owner >= RANGE_IDS {
        vec![(0, 0, JOB_ID), (owner, JOB_ID, 1), (JOB_ID + 1, JOB_ID + 1, RANGE_IDS - JOB_ID - 1)]
    } else {
        vec![
            (0, 0, low),
            (low, high, 1),
            (low + 1, low + 1, high - low - 1),
            (high, low, 1),
            (high + 1, high + 1, RANGE_IDS - high - 1),
        ]
    };
    extents.retain(|(_, _, count)| *count > 0);
    extents
}

#[cfg(test)]
mod tests {
    //! Every owner becomes the job's id, and no two ids ever become one.
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_owner_becomes_the_job_and_the_map_stays_one_to_one() {
        for owner in [0, 1, 999, 1000, 1001, 65_534, 65_535, 65_536, 4_000_000_000] {
            let mut disk = BTreeSet::new();
            let mut inside = BTreeSet::new();
            let mut owner_inside = None;
            for (first_disk, first_inside, count) in extents(owner) {
                for offset in 0..count {
                    assert!(disk.insert(first_disk + offset), "{owner}: disk id twice");
                    assert!(inside.insert(first_inside + offset), "{owner}: inside id twice");
                    if first_disk + offset == owner {
                        owner_inside = Some(first_inside + offset);
                    }
                }
            }
            assert_eq!(owner_inside, Some(JOB_ID), "owner {owner}");
            assert!(inside.iter().all(|id| *id < RANGE_IDS), "owner {owner}");
        }
    }
}
