//! A whole run document under every combination of operator settings: resolution is total and
//! deterministic, and demanding more never accepts more.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pond_fuzz::{assert_safe, demands};
use pond_policy::run::preflight;
use pond_policy::settings::Settings;
use pond_wire::decode::decode;

fuzz_target!(|bytes: &[u8]| {
    let node = match decode(bytes) {
        Ok(node) => node,
        Err(refusals) => return assert_safe(refusals),
    };
    let free = preflight(&node, &Settings::default());
    assert_eq!(preflight(&node, &Settings::default()), free);
    for settings in demands() {
        match preflight(&node, &settings) {
            Ok(run) => assert_eq!(Some(run.stages.len()), free.as_ref().ok().map(|run| run.stages.len())),
            Err(refusals) => assert_safe(refusals),
        }
    }
    if let Err(refusals) = free {
        assert_safe(refusals);
    }
});
