//! Processes that die at the worst moment, and a control plane that cannot be reached: no sandbox outlives its lease, and
//! nothing is left behind.

use std::time::Duration;

use pond_control::store::Stream;
use pond_policy::stage::State;
use rustix::process::{Pid, Signal, kill_process};

use crate::control::Control;
use crate::ends::{LEASE, shell};
use crate::host::{Host, processes};

/// A job that says it has begun, and then does nothing for a long time.
fn begun(control: &Control, host: &Host, mark: &str) -> pond_control::store::RunId {
    let run = control.submit(&shell(&format!("echo begun; echo more > file; sleep {mark}")), None);
    let stage = control.wait_for(&run, &[State::Running], &|| host.log());
    host.wait("output", || control.stream(&stage, Stream::Stdout) == b"begun\n");
    assert!(!processes(mark).is_empty());
    run
}

fn jobs_of(host: &Host) -> Vec<Pid> {
    let parent = host.daemon().as_raw_nonzero().get().to_string();
    let child = |pid: &String| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map(|(_, rest)| rest.to_owned()).unwrap_or_default();
        fields.split_whitespace().nth(1) == Some(parent.as_str())
    };
    let jobs = processes("job").into_iter().filter(child);
    jobs.map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()).collect()
}

#[test]
fn a_killed_job_process_takes_its_sandbox_along() {
    let control = Control::start(LEASE);
    let host = Host::working(&control);
    begun(&control, &host, "471201");
    let jobs = jobs_of(&host);
    assert_eq!(jobs.len(), 1, "{}", host.log());
    kill_process(jobs[0], Signal::KILL).unwrap();
    host.wait("the sandbox to be gone", || processes("471201").is_empty());
    host.wait_for_line("job_failed");
    // The next job begins with sweeping.
    let next = control.submit(&shell("true"), None);
    control.wait_for(&next, &[State::Succeeded], &|| host.log());
    host.wait("everything to be gone", || host.residue().is_empty());
}

#[test]
fn what_a_killed_process_had_ready_for_the_next_job_is_swept() {
    let control = Control::start(LEASE);
    let host = Host::working(&control);
    host.wait("something to be ready", || host.spare().is_some());
    let (record, groups) = host.spare().unwrap();
    let waiting = jobs_of(&host);
    assert_eq!(waiting.len(), 1, "{}", host.log());
    kill_process(waiting[0], Signal::KILL).unwrap();
    host.wait("its end", || jobs_of(&host).is_empty());
    assert!(record.exists() && groups.iter().all(|group| group.is_dir()), "or the test proves nothing");
    let next = control.submit(&shell("true"), None);
    control.wait_for(&next, &[State::Succeeded], &|| host.log());
    host.wait("all of it to be gone", || !record.exists() && !groups.iter().any(|group| group.exists()));
}

#[test]
fn a_killed_daemon_s_jobs_are_handed_in_once_it_starts_again() {
    // A lease nobody waits for.
    let control = Control::start(Duration::from_secs(24 * 3600));
    let mut host = Host::working(&control);
    let run = begun(&control, &host, "471202");
    let first = control.stage(&run).job.unwrap();
    host.signal(Signal::KILL);
    host.wait_for_end();
    host.wait("the sandbox to be gone", || processes("471202").is_empty());
    assert!(!host.residue().is_empty(), "or the test proves nothing");
    host.start();
    host.wait("another try", || {
        let stage = control.stage(&run);
        let job = stage.job.filter(|_| stage.state == State::Running);
        job.is_some_and(|job| (job.id, job.epoch) == (first.id.clone(), first.epoch + 1))
    });
    control.cancel(&run);
    control.wait_for(&run, &[State::Cancelled], &|| host.log());
    host.wait("everything to be gone", || host.residue().is_empty());
}

#[test]
fn a_lease_that_cannot_be_renewed_ends_the_sandbox_in_time() {
    let lease = Duration::from_secs(15);
    let control = Control::start(lease);
    let host = Host::working(&control);
    let run = begun(&control, &host, "471203");
    control.between(|path, bytes| (path != "/orch/heartbeat").then_some(bytes));
    // The control plane still hears it; only the worker does not know, and must assume the worst.
    host.wait_for_line("lease_lost");
    host.wait("the sandbox to be gone", || processes("471203").is_empty());
    host.wait("everything to be gone", || host.residue().is_empty());
    control.between(|_, bytes| Some(bytes));
    assert_ne!(control.stage(&run).state, State::Succeeded);
}

#[test]
fn a_job_that_was_given_to_somebody_else_is_killed() {
    let control = Control::start(LEASE);
    let host = Host::working(&control);
    begun(&control, &host, "471204");
    control.between(|path, bytes| {
        let lost = br#"{"version":1,"verdict":{"kind":"lost"}}"#;
        Some(if path == "/orch/heartbeat" { lost.to_vec() } else { bytes })
    });
    host.wait_for_line("lease_lost");
    host.wait("the sandbox to be gone", || processes("471204").is_empty());
    assert_eq!(control.calls("/orch/complete"), 0, "nothing of it is told");
}

#[test]
fn pieces_whose_answers_get_lost_are_stored_once() {
    let control = Control::start(LEASE);
    let host = Host::working(&control);
    let asked = std::sync::atomic::AtomicUsize::new(0);
    control.between(move |path, bytes| {
        let count = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let is_lost = matches!(path, "/orch/chunks" | "/orch/complete" | "/orch/acknowledge")
            && count.is_multiple_of(2);
        (!is_lost).then_some(bytes)
    });
    let run = control.submit(&shell("echo one; sleep 1; echo two; sleep 1; echo three"), None);
    let stage = control.wait_for(&run, &[State::Succeeded, State::Failed], &|| host.log());
    assert_eq!(stage.state, State::Succeeded, "{stage:?} {}", host.log());
    assert_eq!(control.stream(&stage, Stream::Stdout), b"one\ntwo\nthree\n");
}

/// A source whose answer got lost costs a try, not the stage.
#[test]
fn a_source_that_gets_lost_on_the_way_is_fetched_again() {
    let control = Control::start(LEASE);
    let project = tempfile::tempdir().unwrap();
    std::fs::write(project.path().join("greeting"), "hello\n").unwrap();
    let source = control.source(project.path());
    let host = Host::working(&control);
    let lost = std::sync::atomic::AtomicBool::new(false);
    control.between(move |path, bytes| {
        let is_first =
            path == "/orch/bundle/redeem" && !lost.swap(true, std::sync::atomic::Ordering::Relaxed);
        (!is_first).then_some(bytes)
    });
    let run = control.submit(&shell("cat greeting"), Some(&source));
    let stage = control.wait_for(&run, &[State::Succeeded, State::Failed, State::Refused], &|| host.log());
    assert_eq!(stage.state, State::Succeeded, "{stage:?} {}", host.log());
    assert_eq!((control.calls("/orch/bundle/redeem"), control.result(&stage).epoch), (2, 2));
    assert_eq!(control.stream(&stage, Stream::Stdout), b"hello\n");
}
