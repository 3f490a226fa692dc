//! What jobs could leave on a worker's machine: processes, mounts, loop devices, control groups, directories.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

/// Processes below this one, to any depth, oldest first, who bear this name: their own or their first argument.
pub(crate) fn below(root: Pid, word: &str) -> Vec<Pid> {
    let parents: Vec<(i32, i32)> =
        numbers().into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut family = BTreeSet::from([root.as_raw_nonzero().get()]);
    loop {
        let more = parents.iter().filter(|(pid, parent)| family.contains(parent) && !family.contains(pid));
        let more: Vec<i32> = more.map(|(pid, _)| *pid).collect();
        if more.is_empty() {
            break;
        }
        family.extend(more);
    }
    let is_named = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).take(2).any(|part| part == word.as_bytes())
    };
    family.into_iter().filter(is_named).filter_map(Pid::from_raw).collect()
}

fn numbers() -> Vec<i32> {
    names(Path::new("/proc")).iter().filter_map(|name| name.parse().ok()).collect()
}

fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Everything of jobs that is there, as text; `known` are the names of jobs that were seen to run.
pub(crate) fn residue(state: &Path, daemon: Option<Pid>, known: &BTreeSet<String>) -> Vec<String> {
    let mark = state.display().to_string();
    let mut found: Vec<String> = ["jobs", "state/live", "state/runs"]
        .iter()
        .flat_map(|room| {
            names(&state.join("worker").join(room)).into_iter().map(move |name| format!("{room}/{name}"))
        })
        .collect();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    found.extend(mounts.lines().filter(|line| line.contains(&mark)).map(|line| format!("mount {line}")));
    for name in names(Path::new("/sys/block")) {
        let file =
            std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).unwrap_or_default();
        if file.contains(&mark) {
            found.push(format!("loop {name} {file}"));
        }
    }
    found.extend(cgroups(known).into_iter().map(|group| format!("control group {}", group.display())));
    if let Some(daemon) = daemon {
        // One waits for the next job, and holds nothing of any.
        found.extend(below(daemon, "job").into_iter().skip(1).map(|pid| format!("job {pid:?}")));
        found.extend(below(daemon, "gateway").into_iter().map(|pid| format!("gateway {pid:?}")));
    }
    found
}

/// Names of jobs that run, or ran and were not told yet.
pub(crate) fn jobs(state: &Path) -> BTreeSet<String> {
    let rooms = ["live", "runs"].map(|room| names(&state.join("worker/state").join(room)));
    rooms.into_iter().flatten().collect()
}

fn cgroups(jobs: &BTreeSet<String>) -> Vec<PathBuf> {
    let (mut found, mut pending) = (Vec::new(), vec![PathBuf::from("/sys/fs/cgroup")]);
    while let Some(directory) = pending.pop() {
        // Groups come and go while this looks.
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap_or_default();
            if name.strip_prefix("pond-job-").is_some_and(|job| jobs.contains(job)) {
                found.push(entry.path());
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                pending.push(entry.path());
            }
        }
    }
    found
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}
