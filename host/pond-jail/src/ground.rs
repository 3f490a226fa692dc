//! The ground of the next sandbox: a mount namespace, the skeleton of its root, the host's toolchain and /dev, made before there is a
//! job to stand on it. Its /proc is missing: only who is in a pid namespace can mount that one's.
//!
//! Zone: privileged, before anything hostile exists. A ground names nothing of any job and holds nothing of an earlier one; it is used
//! once or not at all, and ends with the launcher. What it was laid from is kept, and said again by every plan that uses it: a
//! plan that asks for anything else first is refused. One that did not come off is laid again when somebody asks for it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use pond_sys::process::{Fork, Namespaces, exit_now, fork_into};
use pond_wire::jail::{Ground, Identity, JailPlan, Report, RootEntry, Step};
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, waitid};

use crate::ahead::{Ahead, Born};
use crate::disk::{Ordered, Patience};
use crate::enter::tell;
use crate::fault::{At, Failure};
use crate::idmap::Owners;
use crate::inside::{STORAGE, hear};
use crate::request::{Child, Lay, ground_of};
use crate::storage::Builder;
use crate::{idmap, inside, root, shown};

/// The launcher's word that there is a ground to lay; the ground itself travels along.
pub(crate) const GROUND: u8 = 2;

/// A ground as the launcher knows it: laid, being laid, or what it takes to lay it.
pub(crate) struct Laid {
    file: OwnedFd,
    place: Result<Place, Failure>,
    child: Child,
    disk: Option<Result<Ordered, Failure>>,
}

enum Place {
    /// Who will bear the child stands there.
    Bearer(Stand),
    Settled(Settled),
}

/// A child that stands on a ground, and what the launcher holds for it.
pub(crate) struct Settled {
    pub(crate) born: Born,
    pub(crate) footing: Footing,
}

/// A process that stands on the ground or is about to, and what the launcher holds for it.
struct Stand {
    ahead: Ahead,
    footing: Footing,
}

pub(crate) struct Footing {
    ground: Ground,
    /// Translates the owner of the checkout that is expected.
    owners: Option<Owners>,
}

impl Laid {
    pub(crate) fn lay(ahead: Option<Ahead>, request: Lay) -> Self {
        let disk = request.disk.map(|disk| disk.order(Patience::ForTheHost));
        let stand = ahead.map_or_else(Ahead::make, Ok).and_then(|ahead| Stand::make(ahead, &request.ground));
        let place = match &request.child {
            Child::Later => stand.map(Place::Bearer),
            Child::AtOnce(group) => stand.and_then(|stand| stand.bear(group.as_ref())).map(Place::Settled),
        };
        Self { file: request.ground, place, child: request.child, disk }
    }

    /// Whether a launch finds all of it here.
    pub(crate) fn has_child(&self) -> bool {
        match self.child {
            Child::Later => false,
            Child::AtOnce(_) => true,
        }
    }

    /// The child of what was laid, laid again if it did not come off or did not last. One that was born before is in no other group
    /// than its own.
    pub(crate) fn take(self, group: Option<&OwnedFd>) -> Result<(Settled, Option<Ordered>), Failure> {
        let settled = match self.place {
            Ok(Place::Settled(settled)) if group.is_none() && settled.born.is_there() => settled,
            Ok(Place::Bearer(stand)) if !stand.ahead.has_given_up() => stand.bear(group)?,
            failed => {
                drop(failed);
                let own = match &self.child {
                    Child::Later => None,
                    Child::AtOnce(own) => own.as_ref(),
                };
                Stand::make(Ahead::make()?, &self.file)?.bear(group.or(own))?
            }
        };
        Ok((settled, self.disk.transpose()?))
    }
}

impl Stand {
    fn make(ahead: Ahead, file: &OwnedFd) -> Result<Self, Failure> {
        let ground = ground_of(file)?;
        match ground.identity {
            Identity::Range { .. } if !rustix::process::geteuid().is_root() => {
                return Err(Failure { step: Step::CheckPlan, errno: Errno::PERM });
            }
            Identity::Range { base, .. } => idmap::write_range(ahead.process()?, base)?,
            Identity::Single { .. } => {}
        }
        ahead.tell(GROUND, &[file.as_fd()])?;
        let owners = match Builder::of(ground.identity) {
            Builder::Inside => None,
            Builder::Host { .. } => {
                let (views, spent) = shown::show(&ground.root, ground.identity)?.without_disk()?;
                let mounts: Vec<_> = views.iter().chain(&spent).map(AsFd::as_fd).collect();
                ahead.tell(STORAGE, &mounts)?;
                idmap::owner_namespace(ground.identity)?
            }
        };
        Ok(Self { ahead, footing: Footing { ground, owners } })
    }

    fn bear(self, group: Option<&OwnedFd>) -> Result<Settled, Failure> {
        Ok(Settled { born: Born::of(self.ahead, group)?, footing: self.footing })
    }
}

impl Footing {
    /// The entries of a plan that do not stand yet, and the owners' namespace if it is the right one.
    pub(crate) fn bear<'a>(
        &mut self,
        plan: &'a JailPlan,
    ) -> Result<(&'a [RootEntry], Option<Owners>), Failure> {
        let rest = rest(&self.ground, plan)?;
        let owners = self.owners.take().filter(|_| self.ground.identity == plan.identity);
        Ok((rest, owners))
    }
}

fn rest<'a>(ground: &Ground, plan: &'a JailPlan) -> Result<&'a [RootEntry], Failure> {
    let refused = Failure { step: Step::CheckPlan, errno: Errno::INVAL };
    let rest = plan.root.get(ground.root.len()..).filter(|_| ground.carries(plan));
    rest.ok_or(refused)
}

/// What the process that will be pid 1 stands on, as that process knows it.
pub(crate) struct Standing {
    ground: Ground,
    pub(crate) root: OwnedFd,
    /// What goes with the host's root.
    pub(crate) spent: Vec<OwnedFd>,
}

impl Standing {
    // tidy: privileged sequence
    pub(crate) fn make(file: &OwnedFd, launcher: &OwnedFd) -> Result<Self, Failure> {
        let ground = ground_of(file)?;
        pond_sys::process::unshare_mounts().at(Step::CreateNamespaces)?;
        rustix::system::sethostname(ground.hostname.as_bytes()).at(Step::Hostname)?;
        // With the identity this process was born with.
        let sources = root::open_sources(&ground.root)?;
        let mounts = match Builder::of(ground.identity) {
            Builder::Inside => {
                inside::map_own_id(ground.identity)?;
                inside::take_identity(ground.identity)?;
                build(&ground, sources, || shown::show(&ground.root, ground.identity)?.without_disk())?
            }
            Builder::Host { .. } => build_apart(&ground, sources, launcher)?,
        };
        let mut mounts = mounts.into_iter();
        let root = mounts.next().ok_or(Failure { step: Step::BuildRoot, errno: Errno::BADMSG })?;
        Ok(Self { ground, root, spent: mounts.collect() })
    }

    /// The entries of a plan that do not stand yet.
    pub(crate) fn rest<'a>(&self, plan: &'a JailPlan) -> Result<&'a [RootEntry], Failure> {
        rest(&self.ground, plan)
    }
}

/// Everything that stands, in the mount namespace of this process: the root, then what is spent.
fn build(
    ground: &Ground,
    mut sources: VecDeque<OwnedFd>,
    views: impl FnOnce() -> Result<(Vec<OwnedFd>, Vec<OwnedFd>), Failure>,
) -> Result<Vec<OwnedFd>, Failure> {
    let root = root::build(&ground.root, ground.shm, &mut sources)?;
    let (views, spent) = views()?;
    root::hang(&root, &ground.root, &views)?;
    Ok(std::iter::once(root).chain(spent).collect())
}

/// The same by a process that takes the inner identity for it and ends. Whoever bears pid 1 in a control group of the host's root
/// needs the one it was born with, and there is no way back to that.
fn build_apart(
    ground: &Ground,
    sources: VecDeque<OwnedFd>,
    launcher: &OwnedFd,
) -> Result<Vec<OwnedFd>, Failure> {
    let step = Step::BuildRoot;
    let (comes, goes) = pond_sys::socket::pair().at(step)?;
    let builder = match fork_into(Namespaces::Inherit, None).at(step)? {
        Fork::Parent(builder) => builder,
        Fork::Child => {
            let views = || {
                let mut mounts = hear(launcher, STORAGE, Step::OpenRoot)?.into_iter();
                let views = mounts.by_ref().take(shown::places(&ground.root).count()).collect();
                Ok((views, mounts.collect()))
            };
            let built = inside::take_identity(ground.identity).and_then(|()| build(ground, sources, views));
            match built {
                Ok(mounts) => {
                    let mounts: Vec<_> = mounts.iter().map(AsFd::as_fd).collect();
                    tell(goes.as_fd(), Report::Prepared, &mounts);
                }
                Err(failure) => tell(goes.as_fd(), failure.report(), &[]),
            }
            exit_now(0)
        }
    };
    drop(goes);
    let mut said = [0; Report::BYTES];
    let (length, mounts) = pond_sys::socket::receive(&comes, &mut said).at(step)?;
    waitid(WaitId::PidFd(builder.pidfd.as_fd()), WaitIdOptions::EXITED).at(step)?;
    match said.get(..length).map(Report::decode) {
        Some(Ok(Report::Prepared)) => Ok(mounts),
        Some(Ok(Report::Failed { step, errno })) => {
            Err(Failure { step, errno: Errno::from_raw_os_error(errno) })
        }
        Some(_) | None => Err(Failure { step, errno: Errno::CONNRESET }),
    }
}

#[cfg(test)]
mod tests;
