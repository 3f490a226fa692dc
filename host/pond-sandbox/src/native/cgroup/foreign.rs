//! The control groups that an engine made for a container: found by a process inside, held open, and never written but for the one
//! limit that an engine has no sure word for.
//!
//! Zone: host. Found while that process is known to live, because after its death nobody can say where it had been; a group
//! that is held open can be read until whoever made it removes it.

use std::fs::read_to_string;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::disk_rate::DiskRate;
use super::fault::{CgroupFault, Controller, Remedy};
use super::host::LIMITED;
use super::job::host_swaps;
use super::settings::{Absent, CgroupLimits, Setting, disk, legacy, unified};
use super::usage::Usage;
use super::{files, layout};

/// Docker has no word for it; without it the kernel picks one process of the job instead of all.
const NOT_ASKED_FOR: &str = "memory.oom.group";
const PIDS: &str = "pids.max";
/// Engines of today pass it on or not, and nothing of the job has a socket yet.
const SOCKETS: &str = "memory.kmem.tcp.limit_in_bytes";

/// Kills whatever is in a group that bears this name, as everything of a container does.
pub(crate) fn kill_all_in(name: &str) -> io::Result<()> {
    for entry in std::fs::read_dir("/proc")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = number.and_then(Pid::from_raw) else { continue };
        // Held before it is looked at, so that it is the same process that is killed; one that is gone needs nothing.
        if let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
            && read_to_string(groups_of(pid)).is_ok_and(|own| own.contains(name))
        {
            match pidfd_send_signal(process, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    Ok(())
}

fn groups_of(pid: Pid) -> String {
    format!("/proc/{}/cgroup", pid.as_raw_nonzero())
}

#[derive(Debug)]
pub(crate) struct Foreign {
    groups: Vec<Group>,
}

#[derive(Debug)]
struct Group {
    directory: OwnedFd,
    path: PathBuf,
    /// All of v2, or what this v1 hierarchy controls.
    legacy: Option<Vec<Controller>>,
}

impl Foreign {
    /// The groups of this process; nothing if they are not those that bear the name, as everything of a container does.
    pub(crate) fn of(pid: Pid, name: &str) -> io::Result<Option<Self>> {
        let own = read_to_string(groups_of(pid))?;
        if !own.contains(name) {
            return Ok(None);
        }
        let layout = layout::parse(&read_to_string("/proc/self/mountinfo")?, &own);
        let unified = layout.unified.filter(|_| layout.legacy.is_empty()).map(|place| (place, None));
        let legacy = layout.legacy.into_iter().map(|found| (found.place, Some(found.controllers)));
        let open = |(place, legacy): (layout::Place, _)| {
            let directory = files::open_directory(&place.group)?;
            Ok(Group { directory, path: place.group, legacy })
        };
        let groups = legacy.chain(unified).map(open).collect::<Result<_, Errno>>()?;
        Ok(Some(Self { groups }))
    }

    /// What the groups have counted.
    pub(crate) fn usage(&self) -> Result<Usage, CgroupFault> {
        let mut usage = Usage::default();
        for group in &self.groups {
            let unread = |source| CgroupFault::Read { file: group.path.clone(), source };
            group.count(&mut usage).map_err(unread)?;
        }
        Ok(usage)
    }

    /// Whether the groups have these limits, by the kernel's word and not the engine's, with so many processes on top.
    pub(crate) fn hold(&self, limits: &CgroupLimits, further_pids: u64) -> Result<(), CgroupFault> {
        for controller in LIMITED {
            let has = |group: &&Group| {
                group.legacy.as_ref().is_none_or(|controllers| controllers.contains(&controller))
            };
            let remedy = Remedy::EnableController(controller);
            let missing = CgroupFault::NoController { controller, remedy };
            let group = self.groups.iter().find(has).ok_or(missing)?;
            let settings = match group.legacy {
                None => unified(limits),
                Some(_) => legacy(controller, limits),
            };
            for mut setting in settings {
                match setting.file {
                    NOT_ASKED_FOR => continue,
                    PIDS => setting.value = (limits.pids.get() + further_pids).to_string(),
                    SOCKETS => group.limit(&setting)?,
                    _ => {}
                }
                group.holds(setting)?;
            }
        }
        Ok(())
    }
}

impl Foreign {
    /// Whether the groups hold their processes to this rate, by the kernel's word.
    pub(crate) fn hold_disk(&self, rate: DiskRate) -> Result<(), CgroupFault> {
        let whole = self.groups.iter().find(|group| group.legacy.is_none());
        let missing = || CgroupFault::Read { file: PathBuf::from("io.max"), source: Errno::NOENT };
        whole.ok_or_else(missing)?.holds(disk(rate))
    }
}

impl Group {
    fn limit(&self, setting: &Setting) -> Result<(), CgroupFault> {
        let unset = |source| CgroupFault::Set {
            file: self.path.join(setting.file),
            wanted: setting.value.clone(),
            source,
        };
        files::put(self.directory.as_fd(), setting.file, &setting.value).map_err(unset)
    }

    fn holds(&self, setting: Setting) -> Result<(), CgroupFault> {
        let file = self.path.join(setting.file);
        match files::get(self.directory.as_fd(), setting.file) {
            Ok(found) if setting.taken(&found) => Ok(()),
            Ok(found) => Err(CgroupFault::NotTaken { file, wanted: setting.value, found }),
            Err(Errno::NOENT) if Self::does_without(&setting) => Ok(()),
            Err(source) => Err(CgroupFault::Read { file, source }),
        }
    }

    fn does_without(setting: &Setting) -> bool {
        match setting.absent {
            Absent::Fault => false,
            Absent::WithoutSwap { .. } => !host_swaps(),
        }
    }

    fn count(&self, usage: &mut Usage) -> Result<(), Errno> {
        let group = self.directory.as_fd();
        match &self.legacy {
            None => usage.read_unified(group),
            Some(controllers) => {
                controllers.iter().try_for_each(|controller| usage.read_legacy(*controller, group))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! On directories that stand for groups: one limit that is not the kernel's is enough.
    use std::path::Path;

    use pond_policy::limits::{Cpus, Memory, Pids};

    use super::*;

    fn limits() -> CgroupLimits {
        CgroupLimits {
            memory: Memory::parse("64m").unwrap(),
            cpus: Cpus::parse("1.5").unwrap(),
            pids: Pids::parse("100").unwrap(),
            disk_rate: None,
        }
    }

    fn group(path: &Path, legacy: Option<Vec<Controller>>) -> Group {
        Group { directory: files::open_directory(path).unwrap(), path: path.to_owned(), legacy }
    }

    const V2: [(&str, &str); 4] = [
        ("memory.max", "67108864\n"),
        ("memory.swap.max", "0\n"),
        ("cpu.max", "150000 100000\n"),
        ("pids.max", "128\n"),
    ];
    const V1: [(&str, &str); 5] = [
        ("memory.limit_in_bytes", "67108864\n"),
        ("memory.memsw.limit_in_bytes", "67108864\n"),
        ("cpu.cfs_period_us", "100000\n"),
        ("cpu.cfs_quota_us", "150000\n"),
        ("pids.max", "128\n"),
    ];

    #[test]
    fn every_limit_must_be_the_kernels() {
        let all = Some(LIMITED.to_vec());
        for (files, legacy) in [(&V2[..], None), (&V1[..], all)] {
            let directory = tempfile::tempdir().unwrap();
            let write = |file: &str, value: &str| std::fs::write(directory.path().join(file), value).unwrap();
            files.iter().for_each(|(file, value)| write(file, value));
            // The one that pond sets itself.
            write(SOCKETS, "");
            let is_legacy = legacy.is_some();
            let foreign = Foreign { groups: vec![group(directory.path(), legacy)] };
            foreign.hold(&limits(), 28).unwrap();
            let sockets = std::fs::read_to_string(directory.path().join(SOCKETS)).unwrap();
            assert_eq!(sockets, if is_legacy { "8388608" } else { "" });
            for (file, value) in files {
                for weaker in ["max\n", "-1\n", "9223372036854771712\n"] {
                    write(file, weaker);
                    let fault = foreign.hold(&limits(), 28).unwrap_err();
                    let CgroupFault::NotTaken { file: told, .. } = fault else { panic!("{file}: {fault}") };
                    assert_eq!(told, directory.path().join(file));
                }
                write(file, value);
            }
        }
    }

    #[test]
    fn a_rate_must_be_the_kernels_on_that_very_disk() {
        let directory = tempfile::tempdir().unwrap();
        let rate = DiskRate::for_tests(8, 16, 1 << 20);
        let foreign = Foreign { groups: vec![group(directory.path(), None)] };
        assert!(matches!(foreign.hold_disk(rate), Err(CgroupFault::Read { .. })));
        for (said, is_held) in [
            (
                "7:0 rbps=1 wbps=1 riops=max wiops=max\n8:16 rbps=1048576 wbps=1048576 riops=max wiops=max\n",
                true,
            ),
            ("8:16 rbps=1048576 wbps=max riops=max wiops=max\n", false),
            ("8:160 rbps=1048576 wbps=1048576 riops=max wiops=max\n", false),
            ("8:16 rbps=1048576 wbps=10485760 riops=max wiops=max\n", false),
            ("", false),
        ] {
            std::fs::write(directory.path().join("io.max"), said).unwrap();
            assert_eq!(foreign.hold_disk(rate).is_ok(), is_held, "{said}");
        }
        let foreign = Foreign { groups: vec![group(directory.path(), Some(LIMITED.to_vec()))] };
        assert!(foreign.hold_disk(rate).is_err(), "v1 holds none");
    }

    #[test]
    fn a_controller_that_is_not_there_holds_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let files = V1.iter().chain(&[(SOCKETS, "")]);
        files.for_each(|(file, value)| std::fs::write(directory.path().join(file), value).unwrap());
        for absent in LIMITED {
            let others = LIMITED.into_iter().filter(|controller| *controller != absent).collect();
            let foreign = Foreign { groups: vec![group(directory.path(), Some(others))] };
            let fault = foreign.hold(&limits(), 28).unwrap_err();
            assert!(matches!(fault, CgroupFault::NoController { controller, .. } if controller == absent));
        }
        std::fs::remove_file(directory.path().join("pids.max")).unwrap();
        let foreign = Foreign { groups: vec![group(directory.path(), Some(LIMITED.to_vec()))] };
        assert!(matches!(foreign.hold(&limits(), 28), Err(CgroupFault::Read { .. })));
    }
}
