//! One sandbox block seen by both sides: dispatch and worker accept exactly the same blocks, ask for
//! the same backend, and the stored canonical form means what the written one meant.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pond_fuzz::{assert_safe, demands};
use pond_policy::name::{Name, Project};
use pond_policy::{dispatch, sandbox};
use pond_wire::decode::decode;

static PROJECT: LazyLock<Project> = LazyLock::new(|| Name::parse("acme").expect("a fixed name").into());

fuzz_target!(|bytes: &[u8]| {
    let node = match decode(bytes) {
        Ok(node) => node,
        Err(refusals) => return assert_safe(refusals),
    };
    for settings in demands() {
        let dispatched = dispatch::resolve(Some(&node), Some(&PROJECT), &settings);
        let worked = sandbox::resolve(Some(&node), &settings);
        match (dispatched, worked) {
            (Ok(dispatch), Ok(policy)) => {
                assert_eq!(dispatch.required_capability, policy.requirement());
                assert_eq!(dispatch.block.profile(), policy.profile());
                assert_eq!(sandbox::resolve(Some(&dispatch.block.to_node()), &settings), Ok(policy));
            }
            (Err(dispatch), Err(worker)) => {
                assert_eq!(dispatch, worker);
                assert_safe(dispatch);
            }
            (dispatched, worked) => panic!("dispatch said {dispatched:?}, the worker {worked:?}"),
        }
    }
});
