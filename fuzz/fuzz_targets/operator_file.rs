//! Any bytes as the operator's file: models that can be reached and are priced, or refusals that are safe to print.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pond_fuzz::{assert_bounded, assert_safe};
use pond_policy::operator::Operator;
use pond_wire::decode::decode_toml;

fuzz_target!(|bytes: &[u8]| {
    let node = match decode_toml(bytes) {
        Ok(node) => node,
        Err(refusals) => return assert_safe(refusals),
    };
    assert_bounded(&node);
    match Operator::read(&node) {
        Ok(operator) => assert!(operator.models.iter().all(|model| !model.ids.is_empty())),
        Err(refusals) => assert_safe(refusals),
    }
});
