//! The control groups of one job: made, entered, watched, emptied, removed.
//!
//! Zone: host. Invariants: limits hold before anyone can enter; a handle dropped on any path kills what is inside and
//! removes the groups; removal waits a bounded time for the dying and reports what resists.

use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, fstat, mkdirat, unlinkat};
use rustix::io::Errno;

use super::disk_rate::DiskRate;
use super::fault::CgroupFault;
use super::host::{Duty, Hierarchy};
use super::settings::{self, Absent, CgroupLimits, Setting};
use super::usage::Usage;
use super::{PREFIX, files, signal};

/// A job's groups, one per hierarchy.
#[derive(Debug)]
pub struct JobCgroup {
    directory_name: String,
    groups: Vec<Group>,
    disk_rate: Option<DiskRate>,
}

/// The groups of a job of which at least that is made in which its first process is born.
#[derive(Debug)]
pub struct Birthplace(pub(super) JobCgroup);

impl Birthplace {
    /// Of a job all of whose groups are there before it.
    pub fn of(groups: JobCgroup) -> Self {
        Self(groups)
    }

    pub fn directory(&self) -> Option<BorrowedFd<'_>> {
        self.0.entry().v2
    }
}

#[derive(Debug)]
struct Group {
    hierarchy: Arc<Hierarchy>,
    directory: OwnedFd,
    /// v1 only: where the job's first process writes `0` to enter.
    tasks: Option<OwnedFd>,
}

/// How the job's first process gets in.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The directory to clone into.
    pub v2: Option<BorrowedFd<'a>>,
    /// Files to write `0` to, from the one thread that is to enter.
    pub v1: Vec<BorrowedFd<'a>>,
}

impl JobCgroup {
    /// No group yet.
    pub(super) fn none(name: &str) -> Self {
        Self { directory_name: directory_name(name), groups: Vec::new(), disk_rate: None }
    }

    /// Makes the groups of these hierarchies, limits set and seen to hold. On any fault dropping this removes what was made.
    pub(super) fn extend<'a>(
        &mut self,
        hierarchies: impl Iterator<Item = &'a Arc<Hierarchy>>,
        limits: &CgroupLimits,
    ) -> Result<(), CgroupFault> {
        let first = self.groups.len();
        self.disk_rate = limits.disk_rate;
        for hierarchy in hierarchies {
            self.groups.push(Group::make(hierarchy, &self.directory_name)?);
        }
        for group in self.groups.iter_mut().skip(first) {
            group.limit(&self.directory_name, limits)?;
        }
        Ok(())
    }

    /// Sets the limits of all its groups once more, and sees that they hold: since they were made, anybody with the right to may have
    /// changed them.
    pub(crate) fn limit_again(&mut self, limits: &CgroupLimits) -> Result<(), CgroupFault> {
        self.groups.iter_mut().try_for_each(|group| group.limit(&self.directory_name, limits))
    }

    /// Whether nothing that waited in them ran into a limit: the counters go on with the next job. With v1 groups nothing waits there.
    pub(crate) fn is_untouched(&self) -> bool {
        let mut usage = Usage::default();
        let mut whole = self.groups.iter().filter(|group| group.hierarchy.duty == Duty::Everything);
        let was_read = whole.all(|group| group.count(&mut usage).is_ok());
        was_read
            && [usage.oom_kills, usage.pids_denied].iter().all(|count| count.is_none_or(|count| count == 0))
    }

    /// Holds the job to its rate on the disk of its own as well, which is there only once it is being launched: what it writes is
    /// charged to its group there, and on the disk below to whoever made the image.
    pub fn hold_disk(&self, on: BorrowedFd<'_>) -> Result<(), CgroupFault> {
        let Some(rate) = self.disk_rate else { return Ok(()) };
        let unread = |source| CgroupFault::Read { file: self.display_path(), source };
        let device = fstat(on).map_err(unread)?.st_dev;
        let whole = self.groups.iter().filter(|group| group.hierarchy.duty == Duty::Everything);
        whole
            .into_iter()
            .try_for_each(|group| group.set(&self.directory_name, vec![settings::disk(rate.on(device))]))
    }

    pub(super) fn stands_in(&self, hierarchy: &Arc<Hierarchy>) -> bool {
        self.groups.iter().any(|group| Arc::ptr_eq(&group.hierarchy, hierarchy))
    }

    pub fn entry(&self) -> Entry<'_> {
        let unified = self.groups.iter().find(|group| group.hierarchy.is_unified());
        Entry {
            v2: unified.map(|group| group.directory.as_fd()),
            v1: self.groups.iter().filter_map(|group| Some(group.tasks.as_ref()?.as_fd())).collect(),
        }
    }

    #[cfg(test)]
    pub(super) fn directories(&self) -> Vec<PathBuf> {
        self.groups.iter().map(|group| group.path(&self.directory_name)).collect()
    }

    pub fn is_empty(&self) -> Result<bool, CgroupFault> {
        let unread = |source| CgroupFault::Read { file: self.display_path(), source };
        Ok(signal::listed(&self.descriptors()).map_err(unread)?.is_empty())
    }

    /// Sends every process of the job a SIGKILL it cannot outrun.
    pub fn kill(&self) -> Result<(), CgroupFault> {
        let failed = |source| CgroupFault::Kill { group: self.display_path(), source };
        for group in &self.groups {
            match files::put(group.directory.as_fd(), "cgroup.kill", "1") {
                Ok(()) => return Ok(()),
                // v1, a kernel without it, or a group already removed.
                Err(Errno::NOENT | Errno::NODEV) => {}
                Err(source) => return Err(failed(source)),
            }
        }
        for group in &self.groups {
            // Nothing is born any more, so killing by list comes to an end.
            match files::put(group.directory.as_fd(), "pids.max", "0") {
                Ok(()) | Err(Errno::NOENT | Errno::NODEV) => {}
                Err(source) => return Err(failed(source)),
            }
        }
        self.kill_listed()
    }

    /// Whether no more than one process is left, the dead that nobody has waited for included. What cannot be read is no yes.
    pub fn is_down_to_one(&self) -> bool {
        let counted =
            self.groups.iter().find_map(|group| files::get(group.directory.as_fd(), "pids.current").ok());
        counted.and_then(|text| text.trim().parse::<u64>().ok()).is_some_and(|left| left <= 1)
    }

    pub fn usage(&self) -> Result<Usage, CgroupFault> {
        let mut usage = Usage::default();
        for group in &self.groups {
            group
                .count(&mut usage)
                .map_err(|source| CgroupFault::Read { file: group.path(&self.directory_name), source })?;
        }
        Ok(usage)
    }

    /// Removes the groups once empty. Groups already gone are no fault.
    pub fn remove(mut self) -> Result<(), CgroupFault> {
        let groups = mem::take(&mut self.groups);
        let mut patience = signal::pauses();
        let attempts: Vec<_> =
            groups.iter().map(|group| group.remove(&self.directory_name, &mut patience)).collect();
        attempts.into_iter().collect()
    }

    /// Kills whatever is inside, then removes. For groups found again: nobody knows how far their launch had come, so
    /// none is taken to be empty because another is.
    pub fn end(self) -> Result<(), CgroupFault> {
        self.kill()?;
        self.kill_listed()?;
        self.remove()
    }

    fn kill_listed(&self) -> Result<(), CgroupFault> {
        let failed = |source| CgroupFault::Kill { group: self.display_path(), source };
        match signal::kill_listed(&self.descriptors()).map_err(failed)? {
            true => Ok(()),
            false => Err(CgroupFault::StillPopulated { group: self.display_path() }),
        }
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.groups.iter().map(|group| group.directory.as_fd()).collect()
    }

    fn display_path(&self) -> PathBuf {
        self.groups.first().map(|group| group.path(&self.directory_name)).unwrap_or_default()
    }
}

impl Drop for JobCgroup {
    /// For paths that never reach [`JobCgroup::remove`]; what resists here is reclaimed from its record.
    fn drop(&mut self) {
        if !self.groups.is_empty() && self.kill().is_ok() {
            let mut patience = signal::pauses();
            for group in &self.groups {
                group.remove(&self.directory_name, &mut patience).ok();
            }
        }
    }
}

impl Group {
    fn make(hierarchy: &Arc<Hierarchy>, directory_name: &str) -> Result<Self, CgroupFault> {
        let parent = hierarchy.directory.as_fd();
        let made = mkdirat(parent, directory_name, Mode::from_raw_mode(0o755)).and_then(|()| {
            files::open_subdirectory(parent, directory_name).inspect_err(|_| {
                unlinkat(parent, directory_name, AtFlags::REMOVEDIR).ok();
            })
        });
        match made {
            Ok(directory) => Ok(Self { hierarchy: Arc::clone(hierarchy), directory, tasks: None }),
            Err(source) => Err(CgroupFault::Create { group: hierarchy.path.join(directory_name), source }),
        }
    }

    fn path(&self, directory_name: &str) -> PathBuf {
        self.hierarchy.path.join(directory_name)
    }

    fn limit(&mut self, directory_name: &str, limits: &CgroupLimits) -> Result<(), CgroupFault> {
        let hierarchy = Arc::clone(&self.hierarchy);
        match &hierarchy.duty {
            Duty::Everything => self.set(directory_name, settings::unified(limits)),
            Duty::Killing | Duty::Clearing => Ok(()),
            Duty::Limits(controllers) => {
                for controller in controllers {
                    let settings = settings::legacy(*controller, limits);
                    self.set(directory_name, settings.clone()).or_else(|fault| {
                        // There is never less memory with swap than without: upwards, that goes first.
                        let downwards = settings.into_iter().rev().collect();
                        self.set(directory_name, downwards).map_err(|_| fault)
                    })?;
                }
                let tasks = files::open_for_writing(self.directory.as_fd(), "tasks").map_err(|source| {
                    CgroupFault::Entry { file: self.path(directory_name).join("tasks"), source }
                })?;
                self.tasks = Some(tasks);
                Ok(())
            }
        }
    }

    fn set(&self, directory_name: &str, settings: Vec<Setting>) -> Result<(), CgroupFault> {
        for setting in settings {
            let file = || self.path(directory_name).join(setting.file);
            let found = match files::put_and_read(self.directory.as_fd(), setting.file, &setting.value) {
                Ok(found) => found,
                Err(Errno::NOENT) if self.does_without(&setting) => continue,
                Err(source) => return Err(CgroupFault::Set { file: file(), wanted: setting.value, source }),
            };
            if !setting.taken(&found) {
                return Err(CgroupFault::NotTaken { file: file(), wanted: setting.value, found });
            }
        }
        Ok(())
    }

    fn does_without(&self, setting: &Setting) -> bool {
        match setting.absent {
            Absent::Fault => false,
            Absent::WithoutSwap { instead: None } => !host_swaps(),
            Absent::WithoutSwap { instead: Some((file, value)) } => {
                let found = files::put_and_read(self.directory.as_fd(), file, value);
                found.is_ok_and(|found| found == value) || !host_swaps()
            }
        }
    }

    fn count(&self, usage: &mut Usage) -> Result<(), Errno> {
        let directory = self.directory.as_fd();
        match &self.hierarchy.duty {
            Duty::Everything => usage.read_unified(directory),
            Duty::Killing => usage.read_cpu_time(directory),
            Duty::Clearing => Ok(()),
            Duty::Limits(controllers) => {
                controllers.iter().try_for_each(|controller| usage.read_legacy(*controller, directory))
            }
        }
    }

    fn remove(
        &self,
        directory_name: &str,
        patience: &mut impl Iterator<Item = Duration>,
    ) -> Result<(), CgroupFault> {
        loop {
            match (unlinkat(&self.hierarchy.directory, directory_name, AtFlags::REMOVEDIR), patience.next()) {
                (Ok(()) | Err(Errno::NOENT), _) => return Ok(()),
                (Err(Errno::BUSY), Some(pause)) => sleep(pause),
                (Err(Errno::BUSY), None) => {
                    return Err(CgroupFault::StillPopulated { group: self.path(directory_name) });
                }
                (Err(source), _) => {
                    return Err(CgroupFault::Remove { group: self.path(directory_name), source });
                }
            }
        }
    }
}

pub(super) fn directory_name(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// Unknown counts as yes.
pub(super) fn host_swaps() -> bool {
    files::read_path("/proc/swaps").map_or(true, |swaps| swaps.lines().count() > 1)
}

/// Ends and removes the groups a record names, wherever the process that made them stood.
pub fn reclaim(directories: &[PathBuf]) -> Result<(), CgroupFault> {
    let mut job = JobCgroup { directory_name: String::new(), groups: Vec::new(), disk_rate: None };
    for path in directories {
        match orphan(path) {
            Ok((name, group)) if job.groups.is_empty() || job.directory_name == name => {
                job.directory_name = name.to_owned();
                job.groups.push(group);
            }
            Ok(_) => return Err(CgroupFault::Read { file: path.clone(), source: Errno::INVAL }),
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(source) => return Err(CgroupFault::Read { file: path.clone(), source }),
        }
    }
    job.end()
}

/// A record is a file: what it names must at least be called like a group of ours.
fn orphan(path: &Path) -> Result<(&str, Group), Errno> {
    let name = path.file_name().and_then(|name| name.to_str()).filter(|name| name.starts_with(PREFIX));
    let (Some(name), Some(parent)) = (name, path.parent()) else { return Err(Errno::INVAL) };
    let directory = files::open_directory(parent)?;
    let hierarchy = Arc::new(Hierarchy { directory, path: parent.to_owned(), duty: Duty::Clearing });
    let directory = files::open_subdirectory(hierarchy.directory.as_fd(), name)?;
    Ok((name, Group { hierarchy, directory, tasks: None }))
}
