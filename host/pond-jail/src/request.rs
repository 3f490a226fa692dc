//! Receiving a request: one packet, a sealed plan, and the descriptors that belong to it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pond_wire::jail::{Console, Identity, JailPlan, MAX_PLAN_BYTES, Scratch, Step};
use rustix::fs::SealFlags;
use rustix::io::Errno;

use crate::disk::Disk;
use crate::fault::{At, Failure, Fault};

pub(crate) struct Request {
    pub(crate) report: OwnedFd,
    pub(crate) rest: VecDeque<OwnedFd>,
    pub(crate) plan: OwnedFd,
}

/// A request whose plan was read and whose descriptors have names.
pub(crate) struct Order {
    pub(crate) plan: JailPlan,
    /// Absent when the job gets a terminal, which is made inside.
    pub(crate) stdio: Option<[OwnedFd; 3]>,
    pub(crate) lifeline: OwnedFd,
    pub(crate) checkout: OwnedFd,
    pub(crate) disk: Option<Disk>,
    pub(crate) cgroups: Cgroups,
}

/// The job's control groups: born inside the v2 one, moved into the v1 ones by the launcher before its first step.
pub(crate) struct Cgroups {
    pub(crate) v2: Option<OwnedFd>,
    pub(crate) v1: Vec<OwnedFd>,
}

/// The next request, or nothing when the asking side is gone. A packet without even a report socket has nobody to tell.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> Result<Option<Request>, Fault> {
    let mut byte = [0; 8];
    let (length, descriptors) = pond_sys::socket::receive(socket, &mut byte).map_err(Fault::Receive)?;
    if length == 0 && descriptors.is_empty() {
        return Ok(None);
    }
    let mut rest = VecDeque::from(descriptors);
    match (rest.pop_front(), rest.pop_front()) {
        (Some(plan), Some(report)) => Ok(Some(Request { report, rest, plan })),
        _ => Err(Fault::Receive(std::io::ErrorKind::InvalidInput.into())),
    }
}

/// Reads the plan and gives each descriptor its name.
pub(crate) fn read(mut rest: VecDeque<OwnedFd>, plan: &OwnedFd) -> Result<Order, Failure> {
    let plan = read_plan(plan)?;
    let mut next = || rest.pop_front().ok_or(Failure { step: Step::ReadPlan, errno: Errno::BADF });
    let stdio = match plan.console {
        Console::Pipes => Some([next()?, next()?, next()?]),
        Console::Terminal { .. } => None,
    };
    let lifeline = next()?;
    let checkout = next()?;
    let disk = match plan.scratch {
        Scratch::Ext4Image => Some(Disk { image: next()?, template: next()? }),
        Scratch::Tmpfs(_) => None,
    };
    let mut cgroups = Cgroups { v2: None, v1: Vec::new() };
    for entry in rest {
        if rustix::fs::fstat(&entry).is_ok_and(|stat| stat.st_mode & 0o170_000 == 0o040_000) {
            cgroups.v2 = Some(entry);
        } else {
            cgroups.v1.push(entry);
        }
    }
    match plan.identity {
        Identity::Range { .. } if !rustix::process::geteuid().is_root() => {
            Err(Failure { step: Step::CheckPlan, errno: Errno::PERM })
        }
        Identity::Range { .. } | Identity::Single { .. } => {
            Ok(Order { plan, stdio, lifeline, checkout, disk, cgroups })
        }
    }
}

/// The plan arrives in a sealed memory file, so what is checked is what is carried out.
fn read_plan(file: &OwnedFd) -> Result<JailPlan, Failure> {
    let sealed = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    let refused = Failure { step: Step::ReadPlan, errno: Errno::INVAL };
    if !rustix::fs::fcntl_get_seals(file).at(Step::ReadPlan)?.contains(sealed) {
        return Err(refused);
    }
    let size = u64::try_from(rustix::fs::fstat(file).at(Step::ReadPlan)?.st_size).map_err(|_| refused)?;
    if size > MAX_PLAN_BYTES {
        return Err(Failure { step: Step::ReadPlan, errno: Errno::TOOBIG });
    }
    let mut bytes = vec![0; usize::try_from(size).map_err(|_| refused)?];
    let read = rustix::io::pread(file.as_fd(), &mut *bytes, 0).at(Step::ReadPlan)?;
    if read != bytes.len() {
        return Err(refused);
    }
    serde_json::from_slice(&bytes).map_err(|_| refused)
}
