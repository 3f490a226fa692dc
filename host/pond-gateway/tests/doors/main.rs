//! The gateway as a process of its own, in a small internet made of network namespaces: the job's loopback, the host's side
//! and a far side with public addresses and a name server that says what a test wants. Needs root, `ip` and `unshare`.
#![forbid(unsafe_code)]

mod connect;
mod far;
mod front;
mod gate;
mod lifecycle;
mod names;
mod world;

/// What `gate` executes: this test binary again, as the gateway. Run as a test it has nothing to do.
#[test]
fn gateway_process() {
    if std::env::var_os(gate::ROLE).is_some() {
        pond_gateway::main();
    }
}
