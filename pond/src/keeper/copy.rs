//! Files into the sandbox and out of it: what its document says when it is made, and what somebody asks for while it runs.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, bail};
use pond_policy::life::Operation;
use pond_policy::sandboxes::Copied as Wanted;
use pond_sandbox::native::{Serving, ServingFault};
use pond_wire::jail::WORKSPACE;
use pond_worker::carry::{self, CarryFault};
use pond_worker::snapshot::Copied;
use rustix::fs::{Mode, OFlags};

use super::hub::Hub;
use super::protocol::Refusal;

/// What was copied.
pub(super) struct Done {
    pub(super) entries: u64,
    pub(super) bytes: u64,
    /// The first of what was not, printable.
    pub(super) skipped: Vec<String>,
}

/// What the document copies, before anything runs in it.
pub(super) fn materialise(serving: &Serving, copies: &[Wanted]) -> anyhow::Result<()> {
    for Wanted { source, target, exclude } in copies {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::open(Path::new(source), flags, Mode::empty());
        let opened = opened.with_context(|| format!("opening {source}, which no link may stand for"))?;
        let below = below(serving, target)?;
        carry::bring_in(serving.root(), below, opened.as_fd(), serving.owner(), exclude)
            .with_context(|| format!("copying {source} to {target}"))?;
    }
    Ok(())
}

/// Directories on the sandbox's disk that the copies need besides its workspace: what is a directory is one, and a file is in one.
pub(super) fn places(copies: &[Wanted]) -> anyhow::Result<Vec<String>> {
    let mut places: Vec<String> = Vec::new();
    for Wanted { source, target, .. } in copies {
        if target == WORKSPACE || target.starts_with(&format!("{WORKSPACE}/")) {
            continue;
        }
        let is_file = std::fs::symlink_metadata(source).is_ok_and(|found| found.is_file());
        let place = if is_file { target.rsplit_once('/').map_or("", |(above, _)| above) } else { target };
        if place.is_empty() {
            bail!("{target} would be a file in the root directory; choose a place in a directory");
        }
        if !places.iter().any(|known| known == place) {
            places.push(place.to_owned());
        }
    }
    Ok(places)
}

pub(super) fn bring_in(hub: &Hub, target: &str, descriptors: Vec<OwnedFd>) -> Result<Done, Refusal> {
    let source = only(hub, descriptors)?;
    during(hub, |serving| {
        let below = below(serving, target)?;
        Ok(carry::bring_in(serving.root(), below, source.as_fd(), serving.owner(), &[])?)
    })
}

pub(super) fn take_out(
    hub: &Hub,
    (source, name): (&str, &str),
    most: Option<u64>,
    descriptors: Vec<OwnedFd>,
) -> Result<Done, Refusal> {
    let into = only(hub, descriptors)?;
    during(hub, |serving| {
        let below = below(serving, source)?;
        Ok(carry::take_out(serving.root(), below, into.as_fd(), name, most)?)
    })
}

fn only(hub: &Hub, descriptors: Vec<OwnedFd>) -> Result<OwnedFd, Refusal> {
    hub.permit(Operation::Copy)?;
    let one: Result<[OwnedFd; 1], _> = descriptors.try_into();
    one.map(|[only]| only).map_err(|_| Refusal::new("copy_failed", "one descriptor travels with a copy"))
}

#[derive(Debug, thiserror::Error)]
enum CopyFault {
    #[error("{path} is out of reach in this sandbox: only what is below {reachable} can be copied")]
    OutOfReach { path: String, reachable: &'static str },
    #[error(transparent)]
    Carry(#[from] CarryFault),
}

/// A path inside, from the root that can be reached on this host.
fn below<'p>(serving: &Serving, path: &'p str) -> Result<&'p str, CopyFault> {
    let reachable = serving.reachable();
    serving.below_root(path).ok_or_else(|| CopyFault::OutOfReach { path: path.to_owned(), reachable })
}

/// The sandbox does not stop meanwhile.
fn during(hub: &Hub, act: impl FnOnce(&Serving) -> Result<Copied, CopyFault>) -> Result<Done, Refusal> {
    hub.touch();
    let copied = hub.ask(|serving| Ok::<_, ServingFault>(act(serving)));
    hub.touch();
    match copied {
        Err(fault) => Err(Refusal::new("sandbox_lost", fault.to_string())),
        Ok(Err(fault)) => Err(Refusal::new(code(&fault), format!("{:#}", anyhow::Error::from(fault)))),
        Ok(Ok(Copied { entries, bytes, skipped_names, .. })) => {
            Ok(Done { entries, bytes, skipped: skipped_names })
        }
    }
}

fn code(fault: &CopyFault) -> &'static str {
    let fault = match fault {
        CopyFault::OutOfReach { .. } => return "copy_path_invalid",
        CopyFault::Carry(fault) => fault,
    };
    match fault {
        CarryFault::Path(_) | CarryFault::Pattern(_) => "copy_path_invalid",
        CarryFault::Exists(_) => "copy_target_exists",
        CarryFault::Absent(_) => "copy_source_absent",
        CarryFault::Special(_) => "copy_special_file",
        CarryFault::Directory(_) => "copy_not_a_file",
        CarryFault::TooLarge(..) => "copy_too_large",
        CarryFault::Io { .. } | CarryFault::Tree(_) => "copy_failed",
    }
}
