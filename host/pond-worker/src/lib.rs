//! The host side of a job: what happens to a sandbox's output once everything inside is dead.
//!
//! HOSTILE INPUT: every byte, name, mode and attribute read here was written by the job. Nothing in it is followed,
//! executed or parsed as configuration; it is copied by descriptor, counted against caps, and described.
//! - [`collect`] turns an overlay's upper layer into changes, a patch, a manifest and stored contents.
//! - [`apply`] puts a collected result into a checkout, all of it or nothing.
//! - [`daemon`] takes jobs from a control plane over [`link`]; [`order`] is what it tells the process that runs one, which
//!   reads it with [`meant`].
//! - [`carry`] copies files into a sandbox that lasts, and out of it.
//! - [`pack`] and [`unpack`] carry a checkout to another host as a stream with a hash.
//! - [`snapshot`] copies a checkout before a job starts.
//! - [`neutral`] makes job output safe to show on a person's terminal; [`terminal`] does for a job that draws on it.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod apply;
pub mod carry;
pub mod collect;
pub mod daemon;
pub mod gateway;
pub mod link;
pub mod meant;
pub mod neutral;
pub mod order;
pub mod pack;
pub mod path;
pub mod snapshot;
pub mod supervise;
pub mod terminal;
pub mod unpack;

mod because;
mod beneath;
mod fault;
mod object;
mod utf8;

pub use because::because;
pub use pond_seal::Digest;
use pond_seal::digest;

#[cfg(test)]
mod testkit;
