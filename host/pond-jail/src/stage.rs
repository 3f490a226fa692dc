//! Storage for a container: the same disk, overlay and owners as a native job's, hung up in a directory the engine can bind.
//!
//! Zone: privileged. What is hung up has names on the host until the container holds it; whoever asked takes them down then.
//! What they hang on is made without any rights, so that an engine that does not see the mounts shows the job nothing.

use std::os::fd::{AsFd, OwnedFd};

use pond_wire::jail::{Console, Identity, JOB_ID, Report, Scratch, Step, staged};
use rustix::fs::{FileType, Mode, fstat, mkdirat, mknodat};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, move_mount};

use crate::enter::tell;
use crate::fault::{At, Failure};
use crate::request::{Stage, plan_of};
use crate::{home, storage, terminal};

pub(crate) fn stage(request: &Stage) {
    let report = request.report.as_fd();
    match attempt(request) {
        Ok((upper, view)) => tell(report, Report::Prepared, &[upper.as_fd(), view.as_fd()]),
        Err(failure) => tell(report, failure.report(), &[]),
    }
}

/// The upper layer, and the job's view of it.
fn attempt(request: &Stage) -> Result<(OwnedFd, OwnedFd), Failure> {
    let plan = plan_of(&request.plan)?;
    let (Identity::Range { base, .. }, Scratch::Ext4Image | Scratch::KeptImage) =
        (plan.identity, plan.scratch)
    else {
        return Err(Failure { step: Step::CheckPlan, errno: Errno::PERM });
    };
    let disk = || request.disk.attach()?.mount();
    let made = storage::build(&plan, &plan.root, None, disk, request.checkout.as_fd())?;
    home::furnish_mount(&plan, &made.home, base + JOB_ID)?;
    for (index, view) in made.shown.iter().enumerate() {
        hang(view, &request.directory, &staged::shown(index))?;
    }
    hang(&made.workspace, &request.directory, staged::WORKSPACE)?;
    hang(&made.home, &request.directory, staged::HOME)?;
    match plan.console {
        Console::Pipes => {}
        Console::Terminal { .. } => {
            hang(&terminal::mount(base + JOB_ID)?, &request.directory, staged::TERMINALS)?;
        }
    }
    let view = storage::open_directory(&made.workspace, ".").at(Step::MountWorkspace)?;
    Ok((made.upper, view))
}

fn hang(mount: &OwnedFd, directory: &OwnedFd, name: &str) -> Result<(), Failure> {
    let step = Step::MountWorkspace;
    if FileType::from_raw_mode(fstat(mount).at(step)?.st_mode).is_dir() {
        mkdirat(directory, name, Mode::empty()).at(step)?;
    } else {
        mknodat(directory, name, FileType::RegularFile, Mode::empty(), 0).at(step)?;
    }
    move_mount(mount, "", directory, name, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).at(step)
}
