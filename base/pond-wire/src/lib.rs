//! What crosses a boundary, one module per boundary: the only crate that knows the formats of pond-policy's types.
//!
//! Trust zone: all of them. Invariants: no I/O; any bytes end in a value or a typed refusal, in bounded memory, without a
//! panic; a size cap comes before every decoder; domain types do not serialise themselves, so a change of policy code
//! cannot change a byte on the wire unseen.
#![forbid(unsafe_code)]

pub mod api;
pub mod change;
pub mod contained;
pub mod contract;
pub mod decode;
pub mod feed;
pub mod gateway;
pub mod jail;
pub mod orch;
pub mod path;
pub mod schema;
pub mod tree;

#[cfg(test)]
mod properties;
