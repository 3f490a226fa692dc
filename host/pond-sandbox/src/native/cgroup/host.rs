//! Which control groups this process may make, found out once per process.
//!
//! Zone: host. Invariant: a `CgroupHost` exists only if memory, processors and processes can all be limited.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Access, AtFlags, accessat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::fault::{CgroupFault, Controller, Remedy};
use super::files;
use super::job::{self, Birthplace, JobCgroup};
use super::layout::{self, Layout, Legacy, Place};
use super::settings::CgroupLimits;
use super::{delegate, unified};

/// The controllers no job runs without.
pub(super) const LIMITED: [Controller; 3] = [Controller::Memory, Controller::Cpu, Controller::Pids];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    V2,
    V1,
    /// Limits in v1, and a v2 group through which all of a job dies at once.
    Hybrid,
}

/// The groups below which jobs get theirs.
#[derive(Debug)]
pub struct CgroupHost {
    hierarchies: Vec<Arc<Hierarchy>>,
    mode: Mode,
}

/// A group of ours, or delegated to us, in one hierarchy.
#[derive(Debug)]
pub(super) struct Hierarchy {
    pub(super) directory: OwnedFd,
    pub(super) path: PathBuf,
    pub(super) duty: Duty,
}

impl Hierarchy {
    pub(super) fn is_unified(&self) -> bool {
        match self.duty {
            Duty::Everything | Duty::Killing => true,
            Duty::Limits(_) | Duty::Clearing => false,
        }
    }
}

/// What a job's group in a hierarchy is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Duty {
    /// v2 with all controllers.
    Everything,
    /// v2 with none: counts processor time and kills.
    Killing,
    /// v1.
    Limits(Vec<Controller>),
    /// Found again after its owner died; only to be emptied and removed.
    Clearing,
}

impl CgroupHost {
    pub fn detect() -> Result<Self, CgroupFault> {
        Self::within(&own_layout()?, geteuid().as_raw())
    }

    pub(super) fn within(layout: &Layout, uid: u32) -> Result<Self, CgroupFault> {
        let unbound = LIMITED.into_iter().find(|wanted| hierarchy_of(layout, *wanted).is_none());
        match (unbound, &layout.unified) {
            (None, _) => Self::legacy(layout, uid),
            (Some(_), Some(place)) => {
                let (directory, path) = unified::base(place, uid)?;
                let base = Arc::new(Hierarchy { directory, path, duty: Duty::Everything });
                Ok(Self { hierarchies: vec![base], mode: Mode::V2 })
            }
            (Some(controller), None) => {
                Err(CgroupFault::NoController { controller, remedy: Remedy::EnableController(controller) })
            }
        }
    }

    fn legacy(layout: &Layout, uid: u32) -> Result<Self, CgroupFault> {
        let killer = layout.unified.as_ref().and_then(killer);
        let mode = if killer.is_some() { Mode::Hybrid } else { Mode::V1 };
        // Every v2 group counts processor time, so the separate v1 counter is worth a group only without one.
        let wanted: &[Controller] = match mode {
            Mode::V1 => &[Controller::Memory, Controller::Cpu, Controller::Pids, Controller::CpuAccounting],
            Mode::Hybrid | Mode::V2 => &LIMITED,
        };
        let mut hierarchies: Vec<Arc<Hierarchy>> = killer.into_iter().map(Arc::new).collect();
        let serving =
            |legacy: &&Legacy| legacy.controllers.iter().any(|controller| wanted.contains(controller));
        for Legacy { controllers, place } in layout.legacy.iter().filter(serving) {
            match legacy_base(place, uid) {
                Ok((directory, path)) => {
                    let duty = Duty::Limits(controllers.clone());
                    hierarchies.push(Arc::new(Hierarchy { directory, path, duty }));
                }
                // A host that cannot count is poorer; one that cannot limit is refused.
                Err(_) if controllers == &[Controller::CpuAccounting] => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(Self { hierarchies, mode })
    }

    pub(super) fn hierarchies(&self) -> &[Arc<Hierarchy>] {
        &self.hierarchies
    }

    /// Whether the groups of jobs have files that limit their disk.
    pub(super) fn hands_down_io(&self) -> bool {
        let handed = |hierarchy: &Arc<Hierarchy>| {
            files::get(hierarchy.directory.as_fd(), "cgroup.subtree_control")
                .is_ok_and(|handed| handed.split_ascii_whitespace().any(|name| name == "io"))
        };
        self.hierarchies.iter().any(handed)
    }

    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Where the groups of a job of this name will stand, to be recorded before they do: [`super::reclaim`] needs nothing else.
    pub fn directories(&self, name: &str) -> Vec<PathBuf> {
        self.hierarchies.iter().map(|hierarchy| hierarchy.path.join(job::directory_name(name))).collect()
    }

    /// Makes the groups of one job, limits set and seen to hold.
    pub fn create(&self, name: &str, limits: &CgroupLimits) -> Result<JobCgroup, CgroupFault> {
        self.complete(self.begin(name, limits)?, limits)
    }

    /// Makes the one group that a job's first process has to be born in, where there is one.
    pub fn begin(&self, name: &str, limits: &CgroupLimits) -> Result<Birthplace, CgroupFault> {
        let sound = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if !(1..=80).contains(&name.len()) || !name.bytes().all(sound) {
            return Err(CgroupFault::BadName);
        }
        let mut job = JobCgroup::none(name);
        job.extend(self.hierarchies.iter().filter(|hierarchy| hierarchy.is_unified()), limits)?;
        Ok(Birthplace(job))
    }

    /// Whether none is missing.
    pub fn is_complete(&self, begun: &Birthplace) -> bool {
        self.hierarchies.iter().all(|hierarchy| begun.0.stands_in(hierarchy))
    }

    /// Makes those that are missing, which that process enters before it does anything.
    pub fn complete(&self, begun: Birthplace, limits: &CgroupLimits) -> Result<JobCgroup, CgroupFault> {
        let Birthplace(mut job) = begun;
        let missing: Vec<_> = self.hierarchies.iter().filter(|hierarchy| !job.stands_in(hierarchy)).collect();
        job.extend(missing.into_iter(), limits)?;
        Ok(job)
    }
}

pub(super) fn own_layout() -> Result<Layout, CgroupFault> {
    let read = |file: &str| {
        files::read_path(file).map_err(|source| CgroupFault::Read { file: PathBuf::from(file), source })
    };
    Ok(layout::parse(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?))
}

pub(super) fn hierarchy_of(layout: &Layout, controller: Controller) -> Option<&Legacy> {
    layout.legacy.iter().find(|legacy| legacy.controllers.contains(&controller))
}

/// A v2 group beside the v1 limits, if a process of ours may be moved below it.
fn killer(place: &Place) -> Option<Hierarchy> {
    let (directory, path) = writable(&place.group).ok()?;
    files::open_for_writing(directory.as_fd(), "cgroup.procs").ok()?;
    Some(Hierarchy { directory, path, duty: Duty::Killing })
}

/// Our own group, or the one root made for this user.
fn legacy_base(place: &Place, uid: u32) -> Result<(OwnedFd, PathBuf), CgroupFault> {
    writable(&place.group).or_else(|source| {
        writable(&delegate::directory(&place.mount, uid)).map_err(|_| {
            let remedy = if uid == 0 { Remedy::WritableHierarchy } else { Remedy::DelegatedByRoot { uid } };
            CgroupFault::NotDelegated { directory: place.group.clone(), remedy, source }
        })
    })
}

pub(super) fn writable(path: &Path) -> Result<(OwnedFd, PathBuf), Errno> {
    let directory = files::open_directory(path)?;
    accessat(&directory, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::empty())?;
    Ok((directory, path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_lacks_a_controller_is_refused_by_name() {
        let place = Place { mount: PathBuf::from("/nowhere"), group: PathBuf::from("/nowhere") };
        let legacy =
            |controllers: &[Controller]| Legacy { controllers: controllers.to_vec(), place: place.clone() };
        let refusal = |layout: &Layout| CgroupHost::within(layout, 1000).unwrap_err().to_string();
        let memory_only = Layout { unified: None, legacy: vec![legacy(&[Controller::Memory])] };
        assert_eq!(
            refusal(&memory_only),
            format!("no cpu control group is to be had here; {}", Remedy::EnableController(Controller::Cpu))
        );
        let all = Layout { unified: None, legacy: vec![legacy(&LIMITED)] };
        assert_eq!(
            refusal(&all),
            "no job group may be made in /nowhere; have root run once per boot: sudo pond host delegate 1000"
        );
    }
}
