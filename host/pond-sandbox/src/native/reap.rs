//! Cleans up after jobs whose owner died, from their records alone. Mounts, loop devices and processes went with the owner's
//! descriptors; what can be left is an empty control group, a record, a half-prepared disk and a half-written result. What a
//! job did on the network happened whatever became of it, so its gateway's word is put aside and not removed with the rest.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::cgroup::{self, CgroupFault};
use crate::container::{self, ReclaimFault};
use crate::record::{self, JobName, Live, Made, RecordFault};
use crate::state::StateDir;

#[derive(Debug, thiserror::Error)]
pub enum SweepFault {
    #[error(transparent)]
    Record(#[from] RecordFault),
    #[error(transparent)]
    Cgroup(#[from] CgroupFault),
    #[error(transparent)]
    Container(#[from] ReclaimFault),
    #[error("removing what a job left in {path}")]
    Directory { path: PathBuf, source: std::io::Error },
    #[error("putting a job's network record aside in {path}")]
    PutAside { path: PathBuf, source: std::io::Error },
}

/// Network records of runs without a result; the oldest go first.
const PUT_ASIDE: usize = 50;

/// What a sweep removed.
#[derive(Debug, Default)]
pub struct Swept {
    pub jobs: Vec<String>,
    /// Those whose container only an engine can remove that does not answer now. Their records stay, and no other job has to
    /// wait for them.
    pub waiting: Vec<String>,
    /// What could not be removed now. Its record stays, and no other job has to wait for it.
    pub stuck: Vec<SweepFault>,
}

/// Idempotent: a second sweep finds nothing but what is stuck.
pub fn sweep(state: &StateDir) -> Result<Swept, SweepFault> {
    let mut swept = Swept::default();
    let mut absent: HashSet<PathBuf> = HashSet::new();
    for dead in record::dead(state)? {
        let engine = match &dead.made {
            Some(Made::Container { engine, .. } | Made::Remainder { engine, .. }) => Some(engine),
            Some(Made::Native { .. }) | None => None,
        };
        // One that did not answer is not asked again for the next record.
        if engine.is_some_and(|engine| absent.contains(engine)) {
            swept.waiting.push(dead.job.as_str().to_owned());
            continue;
        }
        match remove(state, &dead.job, dead.made.as_ref()) {
            Err(SweepFault::Container(fault)) if fault.is_absence() => {
                absent.extend(engine.cloned());
                swept.waiting.push(dead.job.as_str().to_owned());
                continue;
            }
            Err(
                fault @ (SweepFault::Container(_)
                | SweepFault::Directory { .. }
                | SweepFault::PutAside { .. }),
            ) => {
                swept.stuck.push(fault);
                continue;
            }
            other => other?,
        }
        if !dead.is_spare {
            swept.jobs.push(dead.job.as_str().to_owned());
        }
        dead.close()?;
    }
    Ok(swept)
}

/// Ends a job that did not come to its end, as a sweep would: what was made for it goes, and then its record.
pub fn abandon(state: &StateDir, live: Live) -> Result<(), SweepFault> {
    remove(state, live.job(), Some(live.made()))?;
    Ok(live.close()?)
}

fn remove(state: &StateDir, job: &JobName, made: Option<&Made>) -> Result<(), SweepFault> {
    match made {
        Some(Made::Native { cgroups }) => cgroup::reclaim(cgroups)?,
        Some(Made::Container { engine, name }) => container::reclaim(state, job, engine, name)?,
        Some(Made::Remainder { engine, name, of }) => container::reclaim(state, of, engine, name)?,
        None => {}
    }
    let elsewhere = std::fs::read_link(state.output_mark(job)).ok();
    let ours = |path: &PathBuf| path.file_name().is_some_and(|name| *name == *StateDir::output_name(job));
    // The run's own directory last: it says where the others are.
    let run = state.runs().join(job.as_str());
    put_aside(state, job, &run.join(StateDir::EGRESS))
        .map_err(|source| SweepFault::PutAside { path: state.unfinished(), source })?;
    for directory in elsewhere.filter(ours).into_iter().chain([state.workshop(job), run]) {
        match std::fs::remove_dir_all(&directory) {
            // A directory that was to be made below a file never was.
            Err(source) if !matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Err(SweepFault::Directory { path: directory, source });
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Keeps a record that says anything, and so many of them.
fn put_aside(state: &StateDir, job: &JobName, record: &Path) -> io::Result<()> {
    match record.symlink_metadata() {
        Ok(found) if found.is_file() && found.len() > 0 => {}
        Ok(_) => return Ok(()),
        Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(()),
        Err(fault) => return Err(fault),
    }
    let room = state.unfinished();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&room)?;
    std::fs::rename(record, room.join(format!("{}.{}", job.as_str(), StateDir::EGRESS)))?;
    // A name begins with its time.
    let mut kept: Vec<PathBuf> =
        std::fs::read_dir(&room)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    kept.sort();
    for oldest in kept.iter().rev().skip(PUT_ASIDE) {
        std::fs::remove_file(oldest)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! A sweep follows its own marks, and no mark to what is not pond's.
    use std::io::Write;
    use std::os::unix::net::UnixListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::record::Record;

    #[test]
    fn only_an_unfinished_output_of_the_same_run_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDir::open(&place.path().join("state")).unwrap();
        let job = JobName::try_from("dead".to_owned()).unwrap();
        for (name, stays) in [(".pond-dead", false), (".pond-other", true), ("precious", true)] {
            let record = Record { job: job.clone(), made: Made::Native { cgroups: Vec::new() } };
            drop(Live::write(&state, record).unwrap());
            let target = place.path().join(name);
            for directory in [&target, &state.runs().join("dead"), &state.workshop(&job).join("rooms")] {
                std::fs::create_dir_all(directory).unwrap();
            }
            std::os::unix::fs::symlink(&target, state.output_mark(&job)).unwrap();
            let swept = sweep(&state).unwrap();
            assert_eq!((swept.jobs, swept.stuck.len()), (vec!["dead".to_owned()], 0));
            let left = [target.exists(), state.runs().join("dead").exists(), state.workshop(&job).exists()];
            assert_eq!(left, [stays, false, false], "{name}");
        }
    }

    /// An engine that says `answer` to everything, or nothing at all; and how many asked.
    fn engine(socket: &Path, answer: Option<&'static str>) -> Arc<AtomicUsize> {
        let listener = UnixListener::bind(socket).unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                if let Some(answer) = answer {
                    stream.write_all(answer.as_bytes()).unwrap();
                }
                held.push(stream);
            }
        });
        asked
    }

    #[test]
    fn an_engine_that_will_not_or_does_not_answer_keeps_nobody_waiting() {
        const WILL_NOT: &str = "HTTP/1.1 500 no\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
        // One that says no may say yes to another; one that is silent is asked once.
        for (answer, stuck, waiting, most) in [(Some(WILL_NOT), 2, 0, 2), (None, 0, 2, 1)] {
            let place = tempfile::tempdir().unwrap();
            let state = StateDir::open(&place.path().join("state")).unwrap();
            let socket = place.path().join("engine");
            let asked = engine(&socket, answer);
            for name in ["dead-1", "dead-2"] {
                let job = JobName::try_from(name.to_owned()).unwrap();
                let made = Made::Container { engine: socket.clone(), name: format!("pond-{name}") };
                drop(Live::write(&state, Record { job, made }).unwrap());
            }
            let swept = sweep(&state).unwrap();
            let found = (swept.jobs.len(), swept.stuck.len(), swept.waiting.len());
            assert_eq!((found, asked.load(Ordering::SeqCst)), ((0, stuck, waiting), most), "{swept:?}");
            assert_eq!(record::recorded(&state).unwrap().len(), 2);
        }
    }

    #[test]
    fn what_cannot_be_removed_keeps_nobody_else_waiting() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDir::open(&place.path().join("state")).unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, "").unwrap();
        let die = |name: &str, output: PathBuf| {
            let job = JobName::try_from(name.to_owned()).unwrap();
            std::fs::create_dir_all(state.runs().join(name)).unwrap();
            std::os::unix::fs::symlink(output, state.output_mark(&job)).unwrap();
            let record = Record { job, made: Made::Native { cgroups: Vec::new() } };
            drop(Live::write(&state, record).unwrap());
        };
        die("below-a-file", file.join(".pond-below-a-file"));
        assert_eq!(sweep(&state).unwrap().jobs, ["below-a-file"]);
        // No file system knows such a name, so nobody can tell whether it is gone.
        die("stuck", place.path().join("x".repeat(300)).join(".pond-stuck"));
        die("other", place.path().join(".pond-other"));
        let swept = sweep(&state).unwrap();
        assert_eq!((swept.jobs, swept.stuck.len()), (vec!["other".to_owned()], 1));
        assert_eq!(sweep(&state).unwrap().stuck.len(), 1, "its record stays");
    }

    #[test]
    fn what_a_dead_job_s_gateway_said_is_kept_and_bounded() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDir::open(place.path()).unwrap();
        for number in 10..10 + PUT_ASIDE + 3 {
            let job = JobName::try_from(format!("job-{number}")).unwrap();
            let run = state.runs().join(job.as_str());
            std::fs::create_dir(&run).unwrap();
            std::fs::write(run.join(StateDir::EGRESS), if number == 11 { "" } else { "said\n" }).unwrap();
            drop(Live::write(&state, Record { job, made: Made::Native { cgroups: Vec::new() } }).unwrap());
            sweep(&state).unwrap();
            assert!(!run.exists());
        }
        let mut kept: Vec<String> = std::fs::read_dir(state.unfinished())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        kept.sort();
        let expected: Vec<String> =
            (13..10 + PUT_ASIDE + 3).map(|number| format!("job-{number}.egress.jsonl")).collect();
        assert_eq!(kept, expected);
    }
}
