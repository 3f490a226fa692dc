//! The control plane: what pond keeps, and what it decides.
//!
//! Trust zone: TRUSTED. It alone reads everything: credentials, documents, results. Invariants: it never runs untrusted code
//! and makes no kernel call of its own; it never links a sandbox; nothing of a job is parsed before the signature over it held.
//! - [`api`]: the user's door: `/v1`, its OpenAPI document, health and figures.
//! - [`keeper`]: who keeps the sandboxes of this machine, as the program gave him.
//! - [`listen`]: connections, with or without TLS.
//! - [`store`]: projects, runs, leases and results on SQLite or Postgres.
//! - [`protocol`]: the calls of workers, judged.
//! - [`ticker`]: what time alone brings about.
//! - [`plane`]: what every door of a control plane stands before: the store, its key, the operator's settings.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod api;
pub mod keeper;
pub mod listen;
pub mod plane;
pub mod protocol;
pub mod store;
pub mod ticker;
