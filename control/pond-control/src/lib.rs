//! The control plane: what pond keeps, and what it decides.
//!
//! Trust zone: TRUSTED. It alone reads everything: credentials, documents, results. Invariants: it never runs untrusted code
//! and makes no kernel call of its own; it never links a sandbox; nothing of a job is parsed before the signature over it held.
//! So far it has one room, [`store`]: projects, runs, leases and results on SQLite or Postgres.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod store;
