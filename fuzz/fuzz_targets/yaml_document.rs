//! Any bytes as a YAML document: a tree within the depth bound, or refusals that are safe to print.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pond_fuzz::{assert_bounded, assert_safe};
use pond_wire::decode::decode_yaml;

fuzz_target!(|bytes: &[u8]| {
    match decode_yaml(bytes) {
        Ok(node) => assert_bounded(&node),
        Err(refusals) => assert_safe(refusals),
    }
});
