//! The Landlock layer: reads and executes anywhere in the sandbox, writes only on the job's own storage, and neither signals nor
//! abstract sockets that leave the sandbox.
//!
//! Zone: host, in the child that becomes the job; where many are to come, pid 1 makes the rules and each child applies them to
//! itself. It stands by itself: its tests apply it with every other layer off.
//! Invariant: every access right and scope of this version is required, so that a kernel that lacks one refuses the launch.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use pond_wire::jail::{CheckoutView, Console, HOME, JailPlan, RootEntry, Step, WORKSPACE};
use rustix::io::Errno;

use crate::fault::Failure;
use crate::terminal;

const VERSION: ABI = ABI::V6;

/// Device nodes a job may write to.
const WRITABLE_DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"];

const DENIED: Failure = Failure { step: Step::Landlock, errno: Errno::NOTSUP };

/// What a sandbox may write, as the kernel has it: good for any number of processes.
pub(crate) struct Rules(RulesetCreated);

impl Rules {
    pub(crate) fn of(plan: &JailPlan) -> Result<Self, Failure> {
        let rules = Places::of(plan).rules()?;
        // Pid 1 has none of the three streams, and their places are where its children put their own: a copy lies above.
        let above = rules.try_clone().map_err(|_none_left| DENIED)?;
        Ok(Self(above))
    }

    /// Holds for the calling thread and whatever it starts, from now on.
    pub(crate) fn enforce(&self) -> Result<(), Failure> {
        let own = self.0.try_clone().map_err(|_none_left| DENIED)?;
        match own.restrict_self().map_err(LandlockFault::Rules)?.ruleset {
            RulesetStatus::FullyEnforced => Ok(()),
            RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => Err(DENIED),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum LandlockFault {
    #[error("building the rules: {0}")]
    Rules(#[from] landlock::RulesetError),
    #[error("opening a writable place: {0}")]
    Place(#[from] landlock::PathFdError),
}

impl From<LandlockFault> for Failure {
    fn from(fault: LandlockFault) -> Self {
        let errno = match fault {
            LandlockFault::Rules(_) => DENIED.errno,
            LandlockFault::Place(_) => Errno::NOENT,
        };
        Self { step: Step::Landlock, errno }
    }
}

/// What may be written.
struct Places<'a> {
    /// Must be there.
    storage: Vec<&'a Path>,
    /// Written to and controlled where they are there.
    devices: Vec<&'a Path>,
}

impl<'a> Places<'a> {
    fn of(plan: &'a JailPlan) -> Self {
        let workspace = match plan.checkout {
            CheckoutView::ReadOnly(_) => None,
            CheckoutView::Copy(_) | CheckoutView::Empty => Some(WORKSPACE),
        };
        let terminals = match plan.console {
            Console::Pipes => None,
            Console::Terminal { .. } => Some(terminal::PLACE),
        };
        let throwaway = plan.root.iter().filter_map(|entry| match entry {
            RootEntry::Throwaway { path, .. } | RootEntry::Mount { path, writable: true, .. } => {
                Some(path.as_str())
            }
            RootEntry::Mount { writable: false, .. }
            | RootEntry::Bind { .. }
            | RootEntry::Directory { .. }
            | RootEntry::Symlink { .. }
            | RootEntry::File { .. }
            | RootEntry::Device { .. } => None,
        });
        let storage = [HOME, "/tmp", "/dev/shm"].into_iter().chain(workspace).chain(throwaway);
        Self {
            storage: storage.map(Path::new).collect(),
            devices: WRITABLE_DEVICES.into_iter().chain(terminals).map(Path::new).collect(),
        }
    }

    fn rules(&self) -> Result<RulesetCreated, LandlockFault> {
        let everything = AccessFs::from_all(VERSION);
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(everything)?
            .scope(Scope::from_all(VERSION))?
            .create()?
            .add_rule(PathBeneath::new(PathFd::new("/")?, AccessFs::from_read(VERSION)))?;
        for place in &self.storage {
            rules = rules.add_rule(PathBeneath::new(PathFd::new(place)?, everything))?;
        }
        let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
        for place in &self.devices {
            if let Ok(file) = PathFd::new(place) {
                rules = rules.add_rule(PathBeneath::new(file, device))?;
            }
        }
        Ok(rules)
    }
}

#[cfg(test)]
mod tests;
