//! The job's only way out: one process per job, unprivileged, without a filesystem, which serves listeners made inside the
//! job's network namespace. It holds one job's model key and dials only what a permit of pond-policy names.
//!
//! Invariants: a verdict comes before any name is looked up; the address dialled is the one that was checked; no key of a
//! client ever leaves, and the real one never comes back; every refusal is typed and recorded.
#![forbid(unsafe_code)]

pub mod broker;
pub mod http;
