//! Budgets of a run with a real worker: what it is told, what it keeps to, and what is kept of a run that was ended.

use pond_control::store::{Outcome, StageView, Stream};
use pond_policy::stage::State;
use pond_seal::offer::Offer;
use pond_seal::result;

use crate::control::{Control, clock, copy, offer_in, reply_with};
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

/// A control plane that counts nothing: its run may have everything, and only the offer says less.
fn offered(line: &str, change: fn(&mut Offer)) -> (Control, Host, StageView) {
    let control = Control::start(LEASE);
    let host = Host::working(&control);
    let own = copy(&control.key);
    control.between(move |_, bytes| {
        let Some(mut offer) = offer_in(&bytes, &own) else { return Some(bytes) };
        change(&mut offer);
        Some(reply_with(&offer, &own))
    });
    let run = control.submit(&shell(line), None);
    let stage = control.wait_for(&run, &ENDED, &|| host.log());
    (control, host, stage)
}

#[test]
fn a_worker_holds_its_job_to_the_offer_when_nobody_else_does() {
    let (control, host, stage) = offered("echo begun; sleep 600", |offer| offer.deadline_seconds = 3);
    let ended = control.statement(&stage, &host.key()).result.outcome;
    assert_eq!(ended, result::Outcome::TimedOut {}, "{stage:?}\n{}", host.log());

    let (control, host, stage) =
        offered("yes too much; sleep 600", |offer| offer.allotted.output_bytes = 5000);
    let ended = control.statement(&stage, &host.key()).result.outcome;
    assert_eq!(ended, result::Outcome::Killed { limit: result::Limit::Output }, "{}", host.log());
    assert_eq!(control.stream(&stage, Stream::Stdout).len(), 5000);

    let line = "head -c 4000000 /dev/urandom > large";
    let (_control, host, stage) = offered(line, |offer| offer.allotted.artifact_bytes = 100_000);
    let told = (stage.state, stage.reason.sentence.as_str());
    assert_eq!(told, (State::Failed, "the worker could not run it: budget_artifacts"), "{}", host.log());
}
