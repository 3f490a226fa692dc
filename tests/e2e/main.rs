//! Runs pond as a user does, on this kernel, and looks at what it did to the host.
//!
//! Every test of a control has its counterpart: the same attempt without the control succeeds, or the test proves nothing.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says where")]

mod apply;
mod attack;
mod audited;
mod bad_input;
mod confined;
mod containers;
mod crash;
#[path = "../done.rs"]
mod done;
mod explain;
mod guides;
mod injected;
mod interrupted;
mod kept;
mod killed;
mod limits;
mod plain_words;
mod remote;
mod residue;
mod result;
mod sandboxes;
mod secured;
mod serving;
mod shortage;
mod snapshot;
mod stalled;
mod support;
mod terminal;
mod tmux;
mod uninvited;
mod verify;
mod visitor;
