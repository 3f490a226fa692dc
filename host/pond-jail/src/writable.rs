//! The Landlock layer: reads and executes anywhere in the sandbox, writes only on the job's own storage, and neither signals nor
//! abstract sockets that leave the sandbox.
//!
//! Zone: host, in the child that becomes the job. It stands by itself: its tests apply it with every other layer off.
//! Invariant: every access right and scope of this version is required, so that a kernel that lacks one refuses the launch.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use pond_wire::jail::{CheckoutView, Console, HOME, JailPlan, RootEntry, Step, WORKSPACE};
use rustix::io::Errno;

use crate::fault::Failure;
use crate::terminal;

const VERSION: ABI = ABI::V6;

/// Device nodes a job may write to.
const WRITABLE_DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"];

pub(crate) fn restrict_files(plan: &JailPlan) -> Result<(), Failure> {
    let denied = Failure { step: Step::Landlock, errno: Errno::NOTSUP };
    match Places::of(plan).enforce() {
        Ok(RulesetStatus::FullyEnforced) => Ok(()),
        Ok(RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced) | Err(LandlockFault::Rules(_)) => {
            Err(denied)
        }
        Err(LandlockFault::Place(_)) => Err(Failure { step: Step::Landlock, errno: Errno::NOENT }),
    }
}

#[derive(Debug, thiserror::Error)]
enum LandlockFault {
    #[error("building the rules: {0}")]
    Rules(#[from] landlock::RulesetError),
    #[error("opening a writable place: {0}")]
    Place(#[from] landlock::PathFdError),
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

    /// Holds for the calling thread and whatever it starts, from now on.
    fn enforce(&self) -> Result<RulesetStatus, LandlockFault> {
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
        Ok(rules.restrict_self()?.ruleset)
    }
}

#[cfg(test)]
mod tests;
