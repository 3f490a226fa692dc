//! Jobs that run to an end: their own, a cancellation's, a drain's.

use std::time::Duration;

use pond_control::store::{self, Stream};
use pond_policy::stage::State;
use pond_seal::Digest;
use pond_seal::result::{self, InputKind, Lease, Outcome, Output};
use rustix::process::Signal;

use crate::control::Control;
use crate::host::{Host, processes};

pub(crate) const LEASE: Duration = Duration::from_secs(60);

pub(crate) fn shell(line: &str) -> String {
    let line = serde_json::to_string(line).unwrap();
    format!(
        r#"{{"kind":"swarm","command":["sh","-c",{line}],"artifacts":["kept"],"sandbox":{{"profile":"untrusted-code-write","backend":"native"}}}}"#
    )
}

#[test]
fn a_job_runs_on_its_source_and_its_statement_holds() {
    let control = Control::start(LEASE);
    let project = tempfile::tempdir().unwrap();
    std::fs::write(project.path().join("greeting"), "hello\n").unwrap();
    let source = control.source(project.path());
    let host = Host::working(&control);
    let job =
        "cat greeting; echo aside >&2; echo changed > greeting; mkdir kept; echo one > kept/artifact; exit 3";
    let run = control.submit(&shell(job), Some(&source));
    let stage = control.wait_for(&run, &[State::Failed, State::Succeeded], &|| host.log());
    assert_eq!(stage.state, State::Failed, "exit 3 is a failure: {stage:?}");
    assert_eq!(control.stream(&stage, Stream::Stdout), b"hello\n");
    assert_eq!(control.stream(&stage, Stream::Stderr), b"aside\n");

    let statement = control.statement(&stage, &host.key()).result;
    let view = control.result(&stage);
    let lease = Lease { worker: view.worker.to_string(), epoch: view.epoch };
    assert_eq!((statement.job.id.as_str(), statement.job.attempt), (view.job.as_str(), 1));
    assert_eq!(statement.job.lease, Some(lease));
    assert_eq!(statement.outcome, Outcome::Exited { code: 3 });
    assert_eq!(statement.input.kind, InputKind::Bundle);
    let packed = pond_worker::pack::pack(
        &pond_sandbox::checkout::Checkout::open(project.path()).unwrap(),
        std::io::sink(),
    );
    assert_eq!(statement.input.tree_sha256, Some(packed.unwrap().input));
    assert!(matches!(statement.output, Output::Collected { changed: 2, .. }), "{:?}", statement.output);
    let tree = control.stream(&stage, Stream::Result);
    let told = statement.logs.iter().find(|log| log.stream == result::Stream::Result).unwrap();
    assert_eq!(told.sha256, Digest::of(&tree));
    let unpacked = tempfile::tempdir().unwrap();
    let into = std::fs::File::open(unpacked.path()).unwrap();
    pond_worker::unpack::unpack(
        &mut tree.as_slice(),
        std::os::fd::AsFd::as_fd(&into),
        pond_worker::pack::CAPS,
    )
    .unwrap();
    let patch = std::fs::read_to_string(unpacked.path().join("changes.patch")).unwrap();
    assert!(patch.contains("-hello") && patch.contains("+changed"), "{patch}");
    assert_eq!(std::fs::read_to_string(unpacked.path().join("artifacts/kept/artifact")).unwrap(), "one\n");
    host.wait("everything of the job to be gone", || host.residue().is_empty());
}

#[test]
fn a_job_without_a_source_begins_in_an_empty_directory() {
    let control = Control::start(LEASE);
    let host = Host::working(&control);
    let run = control.submit(&shell("ls -A | wc -l"), None);
    let stage = control.wait_for(&run, &[State::Failed, State::Succeeded], &|| host.log());
    assert_eq!((stage.state, control.stream(&stage, Stream::Stdout)), (State::Succeeded, b"0\n".to_vec()));
}

#[test]
fn output_of_many_pieces_arrives_whole() {
    let control = Control::start(LEASE);
    let host = Host::working(&control);
    let run = control.submit(&shell("seq 1 200000"), None);
    let stage = control.wait_for(&run, &[State::Failed, State::Succeeded], &|| host.log());
    let expected: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(stage.state, State::Succeeded);
    assert!(control.stream(&stage, Stream::Stdout) == expected.as_bytes(), "another output");
}

#[test]
fn a_cancelled_job_is_killed_and_what_it_did_is_told() {
    let control = Control::start(LEASE);
    let host = Host::working(&control);
    let run = control.submit(&shell("echo begun > made; echo begun; sleep 471101"), None);
    let stage = control.wait_for(&run, &[State::Running], &|| host.log());
    host.wait("output", || control.stream(&stage, Stream::Stdout) == b"begun\n");
    assert!(!processes("471101").is_empty());
    control.cancel(&run);
    let stage = control.wait_for(&run, &[State::Cancelled], &|| host.log());
    host.wait("the sandbox to be gone", || processes("471101").is_empty());
    host.wait("everything of the job to be gone", || host.residue().is_empty());
    assert_eq!(stage.state, State::Cancelled);
}

/// What is signed says all that was written, so all of it must be handed on, however slowly it is taken.
#[test]
fn what_a_cancelled_job_wrote_is_handed_on_before_it_is_signed_for() {
    let control = Control::start(LEASE);
    control.delay("/orch/chunks", Duration::from_secs(9));
    let host = Host::working(&control);
    // More than a pipe holds.
    let run = control.submit(&shell("head -c 350000 /dev/zero; sleep 471104"), None);
    let stage = control.wait_for(&run, &[State::Running], &|| host.log());
    host.wait("the first of it", || !control.stream(&stage, Stream::Stdout).is_empty());
    control.cancel(&run);
    // A heartbeat says so, while the answer to the first piece is still on its way.
    host.wait_for_line("job_cancelled");
    control.delay("/orch/chunks", Duration::ZERO);
    let stage = control.wait_for(&run, &[State::Cancelled], &|| host.log());
    let statement = control.statement(&stage, &host.key()).result;
    assert_eq!(statement.outcome, Outcome::Interrupted {}, "{}", host.log());
    assert_eq!(control.result(&stage).outcome, store::Outcome::Failed, "{}", host.log());
    assert!(control.stream(&stage, Stream::Stdout) == vec![0; 350_000], "another output");
}

/// It is told at once, by who was asked, and nothing waits for a lease to lapse.
#[test]
fn a_stage_that_a_worker_refuses_ends_with_the_reason() {
    let control = Control::start(LEASE);
    let open = r#"{"kind":"swarm","command":["true"],"sandbox":{"profile":"none"}}"#;
    let by_poll = control.submit(open, None);
    let host = Host::working(&control);
    let reason = |run| control.wait_for(run, &[State::Refused], &|| host.log()).reason.to_string();
    let expected = "the worker could not run it: unconfined_refused [worker_refused]";
    assert_eq!(reason(&by_poll), expected);
    // The worker has two slots; of what waits for them, the last comes with the answer to a result.
    let runs: Vec<_> = (0..3).map(|_| control.submit(&shell("sleep 0.3"), None)).collect();
    let with_an_answer = control.submit(open, None);
    assert_eq!(reason(&with_an_answer), expected);
    for run in &runs {
        control.wait_for(run, &[State::Succeeded], &|| host.log());
    }
    assert_eq!(host.commands(), runs.len(), "{}", host.log());
}

#[test]
fn a_drained_worker_finishes_what_it_has_and_takes_no_more() {
    let control = Control::start(LEASE);
    let mut host = Host::working(&control);
    let run = control.submit(&shell("echo begun; sleep 3; echo done"), None);
    let stage = control.wait_for(&run, &[State::Running], &|| host.log());
    host.wait("output", || control.stream(&stage, Stream::Stdout) == b"begun\n");
    host.signal(Signal::TERM);
    host.wait_for_line("draining");
    let later = control.submit(&shell("true"), None);
    assert!(host.wait_for_end().success(), "{}", host.log());
    assert_eq!(control.stage(&run).state, State::Succeeded);
    assert_eq!(control.stage(&later).state, State::Queued);
}

#[test]
fn what_is_ready_for_the_next_job_is_for_one_job_and_goes_with_the_daemon() {
    let control = Control::start(LEASE);
    let mut host = Host::working(&control);
    host.wait("something to be ready", || host.spare().is_some());
    let (record, first) = host.spare().unwrap();
    assert!(!first.is_empty() && first.iter().all(|group| group.is_dir()), "{first:?}");
    let run = control.submit(&shell("true"), None);
    control.wait_for(&run, &[State::Succeeded], &|| host.log());
    host.wait("other things to be ready", || host.spare().is_some_and(|(other, _)| other != record));
    let (_, next) = host.spare().unwrap();
    assert!(next.iter().all(|group| group.is_dir() && !first.contains(group)), "{next:?}");
    host.signal(Signal::TERM);
    assert!(host.wait_for_end().success(), "{}", host.log());
    assert_eq!(host.residue(), Vec::<std::path::PathBuf>::new());
    assert!(!first.iter().chain(&next).any(|group| group.exists()), "{first:?} {next:?}");
}

/// What waits for a job long is written back meanwhile, also while there is no room.
#[test]
fn a_host_that_was_full_for_a_moment_costs_no_job() {
    let control = Control::start(LEASE);
    let host = Host::with_own_disk(&control);
    host.wait("something to be ready", || host.spare().is_some());
    // A disk is made after the record.
    std::thread::sleep(Duration::from_secs(1));
    let filler = host.state().join("filler");
    let mut full = std::fs::File::create(&filler).unwrap();
    for size in [1 << 20, 1 << 12] {
        while std::io::Write::write_all(&mut full, &vec![1; size]).is_ok() {}
    }
    rustix::fs::sync();
    std::fs::remove_file(&filler).unwrap();
    drop(full);
    let run = control.submit(&shell("echo made > made"), None);
    let stage = control.wait_for(&run, &[State::Failed, State::Refused, State::Succeeded], &|| host.log());
    assert_eq!(stage.state, State::Succeeded, "{}", host.log());
}

#[test]
fn a_second_signal_gives_jobs_up() {
    let control = Control::start(LEASE);
    let mut host = Host::working(&control);
    let run = control.submit(&shell("echo begun; sleep 471102"), None);
    let stage = control.wait_for(&run, &[State::Running], &|| host.log());
    host.wait("output", || control.stream(&stage, Stream::Stdout) == b"begun\n");
    host.signal(Signal::INT);
    host.wait_for_line("draining");
    assert!(!processes("471102").is_empty(), "the first lets it finish");
    host.signal(Signal::INT);
    assert!(host.wait_for_end().success(), "{}", host.log());
    assert_eq!(processes("471102"), Vec::<String>::new());
    assert_eq!(host.residue(), Vec::<std::path::PathBuf>::new());
}

/// The lease is over with the result that was taken. A worker that hears of the one before the other has lost nothing, and the job that
/// the answer brings is carried out.
#[test]
fn a_result_whose_answer_takes_its_time_is_no_lost_lease() {
    let control = Control::start(LEASE);
    control.delay("/orch/complete", Duration::from_secs(2));
    let runs: Vec<_> = (0..4).map(|_| control.submit(&shell("true"), None)).collect();
    let host = Host::working(&control);
    for run in &runs {
        let stage = control.wait_for(run, &[State::Failed, State::Succeeded], &|| host.log());
        assert_eq!(stage.state, State::Succeeded);
    }
    host.wait("all to be told", || host.log().matches("job_accepted").count() == runs.len());
    assert!(control.calls("/orch/acknowledge") > 0, "nobody asked about a lease meanwhile\n{}", host.log());
    assert!(!host.log().contains("lease_lost") && !host.log().contains("job_failed"), "{}", host.log());
    assert_eq!(host.commands(), runs.len());
}

#[test]
fn a_drained_worker_gives_back_the_job_that_an_answer_brings() {
    let control = Control::start(LEASE);
    control.delay("/orch/complete", Duration::from_secs(3));
    let long = control.submit(&shell("echo begun; sleep 471103"), None);
    let host = Host::working(&control);
    let stage = control.wait_for(&long, &[State::Running], &|| host.log());
    host.wait("output", || control.stream(&stage, Stream::Stdout) == b"begun\n");
    let runs = [control.submit(&shell("true"), None), control.submit(&shell("true"), None)];
    // The one slot that is left takes the first; its end asks for the second.
    control.wait_for(&runs[0], &[State::Succeeded], &|| host.log());
    control.wait_for(&runs[1], &[State::Leased], &|| host.log());
    host.signal(Signal::TERM);
    control.wait_for(&runs[1], &[State::Queued], &|| host.log());
    assert_eq!((host.commands(), control.calls("/orch/decline")), (1, 1), "{}", host.log());
    control.cancel(&long);
    host.wait("the sandbox to be gone", || processes("471103").is_empty());
}
