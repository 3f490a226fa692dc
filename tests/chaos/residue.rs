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

/// What a job's control groups are called before their name.
const PREFIX: &str = "pond-job-";

/// Everything of jobs that is there, as text; `known` are the names of jobs that were seen to run.
pub(crate) fn residue(state: &Path, daemon: Option<Pid>, known: &BTreeSet<String>) -> Vec<String> {
    let mark = state.display().to_string();
    // One process of a daemon waits for the next job; it has a record, control groups and a disk that are no job's.
    let waits = usize::from(daemon.is_some());
    let ready: BTreeSet<String> = spares(state).into_iter().take(waits).collect();
    let mut found: Vec<String> = ["jobs", "state/live", "state/runs"]
        .iter()
        .flat_map(|room| {
            names(&state.join("worker").join(room)).into_iter().map(move |name| format!("{room}/{name}"))
        })
        .filter(|path| !ready.iter().any(|name| *path == format!("state/live/{SPARE}{name}")))
        .collect();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    found.extend(mounts.lines().filter(|line| line.contains(&mark)).map(|line| format!("mount {line}")));
    let loops = names(Path::new("/sys/block")).into_iter().filter_map(|name| {
        let file = std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()?;
        file.contains(&mark).then(|| format!("loop {name} {file}"))
    });
    found.extend(loops.skip(waits));
    let known: BTreeSet<String> = known.difference(&ready).cloned().collect();
    found.extend(cgroups(&known).into_iter().map(|group| format!("control group {}", group.display())));
    if let Some(daemon) = daemon {
        // One waits for the next job, and holds nothing of any.
        found.extend(below(daemon, "job").into_iter().skip(1).map(|pid| format!("job {pid:?}")));
        found.extend(below(daemon, "gateway").into_iter().map(|pid| format!("gateway {pid:?}")));
    }
    found
}

/// What records that are no job's yet are called before their name.
const SPARE: &str = "spare.";

/// Names of control groups made for the next job.
fn spares(state: &Path) -> BTreeSet<String> {
    let live = names(&state.join("worker/state/live"));
    live.iter().filter_map(|name| name.strip_prefix(SPARE).map(str::to_owned)).collect()
}

/// Names of control groups of jobs that run, or ran and were not told yet: their own, or those their records were made with.
pub(crate) fn jobs(state: &Path) -> BTreeSet<String> {
    let rooms = ["live", "runs"].map(|room| state.join("worker/state").join(room));
    let named = rooms.iter().flat_map(|room| names(room));
    let made = names(&rooms[0]).into_iter().flat_map(|name| {
        let record = std::fs::read_to_string(rooms[0].join(name)).unwrap_or_default();
        record
            .split(PREFIX)
            .skip(1)
            .filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
            .collect::<Vec<_>>()
    });
    named.chain(made).collect()
}

fn cgroups(jobs: &BTreeSet<String>) -> Vec<PathBuf> {
    let (mut found, mut pending) = (Vec::new(), vec![PathBuf::from("/sys/fs/cgroup")]);
    while let Some(directory) = pending.pop() {
        // Groups come and go while this looks.
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap_or_default();
            if name.strip_prefix(PREFIX).is_some_and(|job| jobs.contains(job)) {
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
