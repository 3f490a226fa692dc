//! A worker as a process, against the control plane's own doors: jobs end to end, and everything that may go wrong on the way.
//!
//! The control plane runs inside the test, on a store of its own; what stands between it and the worker may change any reply.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod budgets;
mod control;
mod ends;
mod forged;
mod host;
mod killed;
mod rotated;
mod secrets;
