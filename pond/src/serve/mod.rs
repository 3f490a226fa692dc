//! Roles that listen.

pub(crate) mod listen;
