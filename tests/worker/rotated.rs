//! A worker changes its keys: jobs go on under the new ones, the old ones are worth nothing, and an answer that gets lost on the way
//! leaves nobody locked out.

use std::process::Stdio;

use pond_control::store::Stream;
use pond_policy::stage::State;

use crate::control::Control;
use crate::ends::{LEASE, shell};
use crate::host::Host;

/// What `pond worker rotate` says and how it ends.
fn rotate(host: &Host) -> (bool, String) {
    let output =
        host.pond(&["worker", "rotate"]).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

fn runs(control: &Control, host: &Host) {
    let run = control.submit(&shell("echo ran"), None);
    let stage = control.wait_for(&run, &[State::Succeeded], &|| host.log());
    assert_eq!(control.stream(&stage, Stream::Stdout), b"ran\n");
    control.statement(&stage, &host.key());
}

#[test]
fn a_worker_with_new_keys_goes_on_and_its_old_key_is_kept_for_old_results() {
    let control = Control::start(LEASE);
    let mut host = Host::working(&control);
    runs(&control, &host);
    let refused = rotate(&host);
    assert!(!refused.0 && refused.1.contains("stop this worker first"), "{refused:?}");
    host.signal(rustix::process::Signal::TERM);
    host.wait_for_end();
    let (old, done) = (host.key(), rotate(&host));
    assert!(done.0 && host.key().public() != old.public(), "{done:?}");
    let worker = control.block_on(control.plane.store.workers()).unwrap().remove(0);
    assert_eq!((worker.generation, worker.former_keys), (1, vec![old.public().to_hex()]));
    assert!(rotate(&host).0, "and again");
    host.start();
    runs(&control, &host);
}

#[test]
fn an_answer_that_gets_lost_locks_nobody_out() {
    let control = Control::start(LEASE);
    let mut host = Host::joined(&control);
    let old = host.key();
    control.between(|path, bytes| (path != "/orch/rotate").then_some(bytes));
    let lost = rotate(&host);
    assert!(!lost.0 && lost.1.contains("run `pond worker rotate` again"), "{lost:?}");
    assert_eq!(host.key().public(), old.public(), "nothing is given up before it is known");
    host.start();
    assert!(!host.wait_for_end().success() && host.log().contains("`pond worker rotate` finishes it"));
    control.between(|_, bytes| Some(bytes));
    let done = rotate(&host);
    assert!(done.0 && host.key().public() != old.public(), "{done:?}");
    let worker = control.block_on(control.plane.store.workers()).unwrap().remove(0);
    assert_eq!((worker.generation, worker.sign_key), (1, host.key().public().to_hex()));
    host.start();
    runs(&control, &host);
}
