//! What is allowed: pure types and pure decisions about sandboxes, the one copy every zone links.
//!
//! Trust zone: all of them. Control plane, worker, gateway and command line decide with this crate, so no two can
//! disagree. Invariants: no I/O, no clock, no environment, no randomness, no async, no `unsafe`; the same input gives the
//! same verdict anywhere; any input ends in a value or in typed refusals, never in a panic or a silent default.
//!
//! Reading order: `node`, `refusal`, `shape` (how a document is read), `profile`, `limits`, `block` (what it may say),
//! `dispatch` and `sandbox` (the two sides of the contract), `run` and `sandboxes` (the two whole documents).
#![forbid(unsafe_code)]

#[macro_use]
mod names;
#[cfg(test)]
#[macro_use]
mod testing;

pub mod backend;
pub mod block;
pub mod capability;
pub mod command;
pub mod dispatch;
pub mod duration;
pub mod egress;
pub mod harness;
pub mod image;
pub mod life;
pub mod limits;
pub mod model;
pub mod name;
mod near;
pub mod node;
pub mod operator;
pub mod path;
pub mod profile;
pub mod quorum;
pub mod quote;
pub mod reason;
pub mod refusal;
pub mod route;
pub mod run;
pub mod sandbox;
pub mod sandboxes;
pub mod scope;
pub mod settings;
pub mod shape;
pub mod stage;
pub mod tags;
pub mod tier;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod seeds;
