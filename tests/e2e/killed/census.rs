//! Everything a run can leave on a host, counted from inside a pid namespace that only runs of one test share.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::{World, cgroups, loops, names};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Census {
    /// Descriptors live and die with these.
    processes: BTreeSet<String>,
    namespaces: BTreeSet<PathBuf>,
    mounts: usize,
    loops: BTreeSet<String>,
    cgroups: BTreeSet<PathBuf>,
    /// Held locks: on records, and on ranges of ids.
    locks: Vec<String>,
    /// What stands in the state directory, results of finished runs aside.
    state: BTreeSet<String>,
    unfinished: BTreeSet<String>,
    /// What stands beside the state directory, and in the project.
    around: BTreeSet<String>,
}

/// What others on this host mounted where they keep passing things goes, here as well, when they remove the place. A mount that
/// names this test's directory, or pond's, is never theirs.
fn is_of_others(mount: &str, own: &str) -> bool {
    let place = mount.split(' ').nth(4).unwrap_or_default();
    let passes = ["/tmp/", "/run/", "/var/"].iter().any(|room| place.starts_with(room));
    passes && !mount.contains(own) && !mount.contains("/run/pond")
}

impl Census {
    /// Counts, with the control groups of these jobs. Finished runs and their output are removed, so that counts can be compared.
    pub(super) fn of(world: &World, jobs: &BTreeSet<String>) -> Self {
        let state = world.state();
        let runs = names(&state.join("runs"));
        let (finished, unfinished) = runs.iter().cloned().partition(|run| is_finished(&state, run));
        let jobs = jobs | &runs;
        let around = world.project().parent().unwrap().to_owned();
        let own = around.display().to_string();
        let out = around.join("out");
        if out.join("summary.json").exists() {
            std::fs::remove_dir_all(out).unwrap();
        }
        let census = Self {
            processes: processes(),
            namespaces: namespaces(),
            mounts: lines("/proc/self/mountinfo").iter().filter(|line| !is_of_others(line, &own)).count(),
            loops: loops(&state.display().to_string()),
            cgroups: cgroups(&jobs),
            locks: locks(),
            state: ["", "live", "scratch"].iter().flat_map(|room| below(&state, room)).collect(),
            unfinished,
            around: ["", "project"].iter().flat_map(|room| below(&around, room)).collect(),
        };
        for run in finished {
            std::fs::remove_dir_all(state.join("runs").join(run)).unwrap();
        }
        census
    }
}

/// Those of other pid namespaces count in the numbers, and locks of open files, which pond takes none of, are seen from all.
fn locks() -> Vec<String> {
    let flock = |line: String| Some(line.split_once(": FLOCK ")?.1.to_owned());
    lines("/proc/locks").into_iter().filter_map(flock).collect()
}

/// All but this one.
pub(super) fn processes() -> BTreeSet<String> {
    let is_other = |name: &String| name != "1" && name.bytes().all(|byte| byte.is_ascii_digit());
    names(Path::new("/proc")).into_iter().filter(is_other).collect()
}

fn namespaces() -> BTreeSet<PathBuf> {
    let own = std::iter::once("1".to_owned());
    let directories = processes().into_iter().chain(own).map(|pid| PathBuf::from(format!("/proc/{pid}/ns")));
    directories
        .flat_map(|directory| names(&directory).into_iter().map(move |name| directory.join(name)))
        .filter_map(|link| std::fs::read_link(link).ok())
        .collect()
}

fn below<'a>(state: &Path, room: &'a str) -> impl Iterator<Item = String> + use<'a> {
    names(&state.join(room)).into_iter().map(move |name| format!("{room}/{name}"))
}

fn is_finished(state: &Path, run: &str) -> bool {
    state.join("runs").join(run).join("run.json").exists()
}

fn lines(file: &str) -> Vec<String> {
    std::fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect()
}
