//! One launch, from a request to a running sandbox: the parent's half.
//!
//! The parent keeps the host's privileges and does only what needs them: the namespaces, the id maps and the disk. What needs
//! no plan is done before there is one (`ahead.rs` does what needs no request either). The child builds its own root meanwhile, on
//! another core, and takes the disk over as descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pond_sys::process::Child;
use pond_wire::jail::{Identity, Report, Scratch, Step};
use rustix::io::Errno;

use crate::ahead::{Ahead, Born};
use crate::disk::{Disk, Ordered, Patience};
use crate::fault::{At, Failure};
use crate::ground::{Footing, Laid, Settled};
use crate::request::{Groundwork, Launch};
use crate::storage::{Builder, Storage};
use crate::{idmap, inside, request, storage};

/// A child that waits for its orders, and what it gets with them.
pub(crate) struct Prepared {
    child: Born,
    disk: Option<Ordered>,
    /// What it stands on, if that was there before it.
    footing: Option<Footing>,
}

pub(crate) fn prepare(ahead: Ahead, groundwork: Groundwork) -> Result<Prepared, Failure> {
    let child = Born::of(ahead, groundwork.group.as_ref())?;
    Prepared { child, disk: None, footing: None }.with(groundwork.disk)
}

/// On a ground that was laid before, with the disk that was laid with it unless another comes.
pub(crate) fn prepare_on(laid: Laid, groundwork: Groundwork) -> Result<Prepared, Failure> {
    stand(laid, groundwork.group.as_ref())?.with(groundwork.disk)
}

/// With all that was laid, of which nothing is missing.
pub(crate) fn prepared_by(laid: Laid) -> Result<Prepared, Failure> {
    stand(laid, None)
}

fn stand(laid: Laid, group: Option<&OwnedFd>) -> Result<Prepared, Failure> {
    let (Settled { born, footing }, disk) = laid.take(group)?;
    Ok(Prepared { child: born, disk, footing: Some(footing) })
}

impl Prepared {
    /// With this disk, if there is one, and none that was there before.
    fn with(self, disk: Option<Disk>) -> Result<Self, Failure> {
        match disk.map(|disk| disk.order(Patience::None)).transpose() {
            Ok(ordered) => Ok(Self { disk: ordered.or(self.disk), ..self }),
            Err(failure) => {
                self.child.send_away();
                Err(failure)
            }
        }
    }
}

/// Carries one launch out. A failure is reported to whoever asked; the launcher itself lives on.
pub(crate) fn launch(prepared: Option<Result<Prepared, Failure>>, launch: &Launch) {
    // Whoever sends a plan without preparing for it has lost count.
    let unprepared = Failure { step: Step::CreateNamespaces, errno: Errno::CHILD };
    let ended = prepared.unwrap_or(Err(unprepared)).and_then(|prepared| attempt(prepared, launch));
    if let Err(failure) = ended {
        tell(launch.report.as_fd(), failure.report(), &[]);
    }
}

/// The asking side may be gone, which is its answer: the lifeline ends the job, so there is nobody left to tell.
pub(crate) fn tell(report: BorrowedFd<'_>, what: Report, descriptors: &[BorrowedFd<'_>]) {
    if let Err(_gone) = pond_sys::socket::send(report, &what.encode(), descriptors) {}
}

/// Gives the child its identity, its orders and its disk. If any of it fails the closed socket ends the child.
fn attempt(prepared: Prepared, launch: &Launch) -> Result<(), Failure> {
    let Prepared { child: Born { child, to_it: to_child }, disk, mut footing } = prepared;
    let plan = request::plan_of(&launch.plan)?;
    let (rest, owners) = match &mut footing {
        Some(footing) => footing.bear(&plan)?,
        None => (plan.root.as_slice(), None),
    };
    let child: Child = child.arrive()?;
    tell(launch.report.as_fd(), Report::Started, &[child.pidfd.as_fd()]);
    match plan.identity {
        Identity::Range { .. } if !rustix::process::geteuid().is_root() => {
            return Err(Failure { step: Step::CheckPlan, errno: Errno::PERM });
        }
        Identity::Range { base, .. } if footing.is_none() => idmap::write_range(&child, base)?,
        Identity::Range { .. } | Identity::Single { .. } => {}
    }
    pond_sys::socket::send(&to_child, &[inside::ORDERS], &launch.descriptors()).at(Step::WriteIdMaps)?;
    let made = || match (plan.scratch, &disk) {
        (Scratch::Ext4Image | Scratch::KeptImage, Some(disk)) => disk.collect(),
        (Scratch::Tmpfs(cap), None) => storage::scratch(cap),
        (Scratch::Ext4Image | Scratch::KeptImage, None) | (Scratch::Tmpfs(_), Some(_)) => {
            Err(Failure { step: Step::MountScratch, errno: Errno::INVAL })
        }
    };
    match Builder::of(plan.identity) {
        Builder::Inside => Ok(()),
        Builder::Host { .. } => {
            let storage = storage::build(&plan, rest, owners, made, launch.checkout.as_fd())?;
            send_storage(&storage, &to_child)
        }
    }
}

fn send_storage(storage: &Storage, to_child: &OwnedFd) -> Result<(), Failure> {
    let own = [&storage.workspace, &storage.home, &storage.upper].into_iter().chain(&storage.shown);
    let mounts: Vec<_> = own.chain(&storage.spent).map(AsFd::as_fd).collect();
    match pond_sys::socket::send(to_child, &[inside::STORAGE], &mounts) {
        // The child failed at its own half and has said so already.
        Err(fault) if fault.raw_os_error() == Some(Errno::PIPE.raw_os_error()) => Ok(()),
        other => other.at(Step::MountWorkspace),
    }
}
