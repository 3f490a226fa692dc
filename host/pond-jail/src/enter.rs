//! One launch, from a request to a running sandbox: the parent's half.
//!
//! The parent keeps the host's privileges and does only what needs them: the id maps and the disk. The child builds
//! its own root meanwhile, on another core, and takes the disk over as descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pond_sys::process::{Child, Fork, Namespaces, fork_into};
use pond_wire::jail::{Identity, Report, Step};
use rustix::io::Errno;

use crate::fault::{At, Failure};
use crate::request::{Order, Request};
use crate::storage::{Builder, Storage};
use crate::{check, idmap, inside, request, storage};

/// Carries one request out. A failure is reported to whoever asked; the launcher itself lives on.
pub(crate) fn launch(request: Request) {
    let Request { report, rest, plan } = request;
    if let Err(failure) = attempt(rest, &plan, &report) {
        tell(report.as_fd(), failure.report(), &[]);
    }
}

/// The asking side may be gone, which is its answer: the lifeline ends the job, so there is nobody left to tell.
pub(crate) fn tell(report: BorrowedFd<'_>, what: Report, descriptors: &[BorrowedFd<'_>]) {
    if let Err(_gone) = pond_sys::socket::send(report, &what.encode(), descriptors) {}
}

fn attempt(
    rest: std::collections::VecDeque<OwnedFd>,
    plan: &OwnedFd,
    report: &OwnedFd,
) -> Result<(), Failure> {
    let order = request::read(rest, plan)?;
    check::check(&order.plan)?;
    let (ours, theirs) = pond_sys::socket::pair().at(Step::CreateNamespaces)?;
    let group = order.cgroups.v2.as_ref().map(AsFd::as_fd);
    match fork_into(Namespaces::Sandbox, group).at(Step::CreateNamespaces)? {
        // From here the child is pid 1 of the sandbox: all capabilities, but only over its own namespaces.
        Fork::Child => {
            drop(ours);
            inside::main(order, &theirs, report)
        }
        Fork::Parent(child) => {
            drop(theirs);
            tell(report.as_fd(), Report::Started, &[child.pidfd.as_fd()]);
            admit(&order, &child, &ours)
        }
    }
}

/// Gives the child its identity and its disk. If any of it fails the closed socket ends the child, which has
/// run nothing of the job.
fn admit(order: &Order, child: &Child, to_child: &OwnedFd) -> Result<(), Failure> {
    if let Identity::Range { base, .. } = order.plan.identity {
        idmap::write_range(child, base)?;
    }
    pond_sys::socket::send(to_child, &[inside::ADMITTED], &[]).at(Step::WriteIdMaps)?;
    match Builder::of(order.plan.identity) {
        Builder::Inside => Ok(()),
        Builder::Host { .. } => {
            let owners = idmap::owner_namespace(order.plan.identity)?;
            let Storage { workspace, home, upper, spent: _until_sent } =
                storage::build(&order.plan, order.disk.as_ref(), order.checkout.as_fd(), owners.as_ref())?;
            let mounts = [workspace.as_fd(), home.as_fd(), upper.as_fd()];
            match pond_sys::socket::send(to_child, &[inside::STORAGE], &mounts) {
                // The child failed at its own half and has said so already.
                Err(fault) if fault.raw_os_error() == Some(Errno::PIPE.raw_os_error()) => Ok(()),
                other => other.at(Step::MountWorkspace),
            }
        }
    }
}
