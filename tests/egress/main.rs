//! Runs what may go out and what may not against an internet of its own: real clients, and the catalogue of attacks.
//!
//! Every attack has its control: the same bytes without the gateway reach their target, or the row proves nothing.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says where")]

mod agents;
mod broker;
mod budget;
mod catalogue;
mod clear_text;
mod clients;
mod contained;
mod crowd;
#[expect(dead_code, reason = "other tests use the rest of it")]
#[path = "../e2e/containers/daemon.rs"]
mod daemon;
#[path = "../done.rs"]
mod done;
mod flow;
mod git;
mod harness;
mod hello;
mod internet;
mod interrupted;
mod live;
mod neighbours;
mod plain;
mod provider;
mod rules;
mod world;
