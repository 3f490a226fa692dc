//! A sandbox document under every combination of operator settings, alone and on top of itself: reading is total and deterministic,
//! demanding more never accepts more, and a merge hides no fault.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pond_fuzz::{assert_safe, demands};
use pond_policy::node::Node;
use pond_policy::sandboxes::{merge, read};
use pond_policy::settings::Settings;
use pond_wire::decode::decode;

fuzz_target!(|bytes: &[u8]| {
    let node = match decode(bytes) {
        Ok(node) => node,
        Err(refusals) => return assert_safe(refusals),
    };
    let free = read(&node, &Settings::default());
    assert_eq!(read(&node, &Settings::default()), free);
    for settings in demands() {
        match read(&node, &settings) {
            Ok(spec) => assert_eq!(free.as_ref().map(|free| &free.mounts), Ok(&spec.mounts)),
            Err(refusals) => assert_safe(refusals),
        }
    }
    if matches!(node, Node::Map(_)) {
        assert_eq!(read(&merge(node.clone(), Node::Map(Vec::new())), &Settings::default()), free);
        assert_eq!(read(&merge(Node::Map(Vec::new()), node), &Settings::default()), free);
    }
    if let Err(refusals) = free {
        assert_safe(refusals);
    }
});
