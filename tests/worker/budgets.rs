//! Budgets of a run with a real worker: what it is told, what it keeps to, and what is kept of a run that was ended.

use pond_control::store::{Outcome, Stream};
use pond_policy::stage::State;

use crate::control::{Control, clock};
use crate::ends::{LEASE, shell};
use crate::host::Host;

const ENDED: [State; 4] = [State::Succeeded, State::Failed, State::Cancelled, State::Refused];

#[test]
fn a_stage_that_prints_too_much_ends_its_run_and_its_words_are_kept() {
    let control = Control::start(LEASE);
    let host = Host::working(&control);
    let run = control.submit_within("{\"max_output_bytes\": 5000}", &shell("yes too much; sleep 600"));
    let stage = control.wait_for(&run, &ENDED, &|| host.log());
    let told = (stage.state, stage.reason.code.as_str());
    assert_eq!(told, (State::Cancelled, "budget_output"), "{stage:?}\n{}", host.log());
    let sentence = "the run's max_output_bytes is 5000 bytes, and it came to 5001";
    assert_eq!(stage.reason.sentence, sentence, "{}", host.log());
    let kept = control.stream(&stage, Stream::Stdout);
    assert_eq!(kept.len(), 5001, "the worker stops at the byte that is too many");
    assert_eq!(control.result(&stage).outcome, Outcome::Failed, "signed, verified and kept");
}

#[test]
fn a_run_whose_time_is_up_is_ended_and_its_worker_is_told_why() {
    let control = Control::start(LEASE);
    let host = Host::working(&control);
    let run = control.submit_within("{\"wall_clock\": \"5m\"}", &shell("echo begun; sleep 600"));
    let stage = control.wait_for(&run, &[State::Running, State::Failed], &|| host.log());
    host.wait("output", || !control.stream(&stage, Stream::Stdout).is_empty());
    let overdue = clock().plus(std::time::Duration::from_secs(400));
    assert_eq!(control.block_on(control.plane.store.end_overdue(overdue)).unwrap(), 1);
    let stage = control.wait_for(&run, &ENDED, &|| host.log());
    let told = (stage.state, stage.reason.code.as_str());
    assert_eq!(told, (State::Cancelled, "budget_wall_clock"), "{stage:?}\n{}", host.log());
    host.wait_for_line("budget_wall_clock");
    assert_eq!(control.stream(&stage, Stream::Stdout), b"begun\n");
    assert_eq!(control.result(&stage).outcome, Outcome::Failed);
}

#[test]
fn a_result_that_is_too_large_for_the_run_is_not_kept() {
    let control = Control::start(LEASE);
    let host = Host::working(&control);
    let line = "head -c 400000 /dev/urandom > large; echo made; sleep 5";
    let run = control.submit_within("{\"max_artifact_bytes\": 100000}", &shell(line));
    let begun = control.wait_for(&run, &[State::Running, State::Failed], &|| host.log());
    let stage = control.wait_for(&run, &ENDED, &|| host.log());
    let told = (stage.state, stage.reason.code.as_str());
    assert_eq!(told, (State::Cancelled, "budget_artifacts"), "{stage:?}\n{}", host.log());
    assert_eq!(control.stream(&begun, Stream::Stdout), b"made\n", "its words are");
    assert!(control.stream(&begun, Stream::Result).len() <= 100_000);
    host.wait_for_line("are left of what the run may keep");
}
