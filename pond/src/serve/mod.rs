//! Roles that listen. Zone: host or trusted, facing anybody. Invariant: nobody beyond this machine is listened to without TLS,
//! unless the operator says so.

pub(crate) mod listen;
