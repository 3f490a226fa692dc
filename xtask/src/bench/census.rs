//! Counts what a sandbox could leave on a host. Processes and control groups are those of the bench alone; the rest is the
//! whole host's, so nothing else should be running.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::stand::read;

/// A thing to count, and whether one more of it after many launches is a leak or only the kernel's bookkeeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thing {
    Processes,
    Mounts,
    Loops,
    Groups,
    Descriptors,
    NetworkNamespaces,
    KernelMemoryGroups,
    SlabKib,
}

impl Thing {
    pub(super) const ALL: [Thing; 8] = [
        Thing::Processes,
        Thing::Mounts,
        Thing::Loops,
        Thing::Groups,
        Thing::Descriptors,
        Thing::NetworkNamespaces,
        Thing::KernelMemoryGroups,
        Thing::SlabKib,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Thing::Processes => "processes of pond",
            Thing::Mounts => "mounts",
            Thing::Loops => "loop devices in use",
            Thing::Groups => "control groups of jobs",
            Thing::Descriptors => "descriptors of instrument and launcher",
            Thing::NetworkNamespaces => "network namespaces (slab objects)",
            Thing::KernelMemoryGroups => "memory groups known to the kernel, dying ones included",
            Thing::SlabKib => "unreclaimable slab, KiB",
        }
    }

    /// The kernel frees its own objects when it gets to it; whatever pond made itself has to be gone at once.
    pub(super) fn is_exact(self) -> bool {
        match self {
            Thing::Processes | Thing::Mounts | Thing::Loops | Thing::Groups | Thing::Descriptors => true,
            Thing::NetworkNamespaces | Thing::KernelMemoryGroups | Thing::SlabKib => false,
        }
    }
}

pub(super) type Census = BTreeMap<Thing, i64>;

/// By what the bench's own things are known.
#[derive(Debug)]
pub(super) struct Ours {
    /// Where the measured programs lie.
    pub(super) directory: PathBuf,
    /// The instrument; its descriptors are counted, and those of what it started.
    pub(super) instrument: u32,
    /// Names of jobs that were launched.
    pub(super) jobs: BTreeSet<String>,
}

pub(super) fn take(ours: &Ours) -> Result<Census> {
    let mut descriptors = 0;
    for pid in descendants(ours.instrument)? {
        descriptors += names(Path::new(&format!("/proc/{pid}/fd"))).len();
    }
    let backed = |name: &String| Path::new("/sys/block").join(name).join("loop/backing_file").exists();
    let loops = names(Path::new("/sys/block")).iter().filter(|name| backed(name)).count();
    let count = |things: usize| i64::try_from(things).context("too many to count");
    Ok(BTreeMap::from([
        (Thing::Processes, count(processes(&ours.directory)?)?),
        (Thing::Mounts, count(read("/proc/self/mountinfo")?.lines().count())?),
        (Thing::Loops, count(loops)?),
        (Thing::Groups, count(job_groups(ours))?),
        (Thing::Descriptors, count(descriptors)?),
        (Thing::NetworkNamespaces, cell("/proc/slabinfo", "net_namespace", 1)?),
        (Thing::KernelMemoryGroups, cell("/proc/cgroups", "memory", 2)?),
        (Thing::SlabKib, cell("/proc/meminfo", "SUnreclaim:", 1)?),
    ]))
}

/// The number in a column of the line that starts with `name`.
fn cell(file: &str, name: &str, column: usize) -> Result<i64> {
    let table = read(file)?;
    let line = table.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let line = line.into_iter().find(|line| line.first() == Some(&name));
    let value = line.and_then(|line| line.get(column)?.parse().ok());
    value.with_context(|| format!("{file} does not say how many {name} there are"))
}

/// Launchers and inits run the measured program, whatever they are called.
pub(super) fn processes(directory: &Path) -> Result<usize> {
    let runs_ours =
        |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.starts_with(directory));
    Ok(parents()?.keys().filter(|pid| runs_ours(pid)).count())
}

fn job_groups(ours: &Ours) -> usize {
    let of_instrument = format!("bench-{}-", ours.instrument);
    // What is ready for a job, and what one got that was, are called after nobody.
    let is_ours =
        |job: &str| ours.jobs.contains(job) || job.starts_with(&of_instrument) || job.starts_with("spare-");
    groups(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.and_then(|name| name.strip_prefix("pond-job-")).is_some_and(is_ours)
    })
}

/// Control groups in any hierarchy whose parent has this name.
pub(super) fn groups_below(name: &str) -> usize {
    groups(|path| path.parent().is_some_and(|parent| parent.ends_with(name)))
}

fn groups(is_counted: impl Fn(&Path) -> bool) -> usize {
    let mut pending = vec![PathBuf::from("/sys/fs/cgroup")];
    let mut found = 0;
    while let Some(directory) = pending.pop() {
        for name in names(&directory) {
            let path = directory.join(&name);
            if path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
                found += usize::from(is_counted(&path));
                pending.push(path);
            }
        }
    }
    found
}

/// A process and everything below it.
pub(super) fn descendants(ancestor: u32) -> Result<Vec<u32>> {
    let parents = parents()?;
    let mut family = vec![ancestor];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        family.extend(parents.iter().filter(|(_, of)| **of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    Ok(family)
}

/// Every process but the kernel's own threads, with its parent.
fn parents() -> Result<BTreeMap<u32, u32>> {
    const KERNEL_THREADS: u32 = 2;
    let mut parents = BTreeMap::new();
    for pid in names(Path::new("/proc")).iter().filter_map(|name| name.parse::<u32>().ok()) {
        // One that ended meanwhile is no longer there to count.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let parent =
            stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse().ok());
        let parent = parent.with_context(|| format!("process {pid} has no parent"))?;
        if parent != KERNEL_THREADS && pid != KERNEL_THREADS {
            parents.insert(pid, parent);
        }
    }
    Ok(parents)
}

pub(super) fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}
