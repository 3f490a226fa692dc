//! The providers: each turns a policy into a running, confined process, and leaves nothing behind.
//!
//! Zone: host. `native` is pond's own daemonless sandbox; `none` is the explicit way to have none. Every backend has the same
//! rooms: `probe` (facts of this host), `plan` (pure: policy to the exact request), `launch` (the only file that acts) and
//! `reap` (idempotent, from the on-disk record alone).
#![forbid(unsafe_code)]

pub mod capability;
pub mod checkout;
pub mod container;
pub mod native;
pub mod provider;
pub mod record;
pub mod role;
pub mod state;
