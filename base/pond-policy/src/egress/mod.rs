//! What a job may reach: host rules as an operator writes them, destinations as a hostile client
//! spells them, and the verdict between the two. Pure; linked by the control plane, the worker and
//! the gateway, so no two of them can disagree.
//!
//! Invariants: a host has one canonical spelling and every decision uses it; nothing is allowed
//! that no rule names; a [`Permit`] comes only from a verdict and an address only from a
//! [`Permit`], so there is no way to a socket around this module.

mod address;
mod allowlist;
mod catalogue;
mod cidr;
mod config;
mod denial;
mod destination;
mod name;
mod pattern;
mod permit;
mod preset;
mod respell;

pub use address::{AddressClass, AddressReason, classify};
pub use allowlist::{Allowlist, decide, decide_internet, decide_name, decide_name_internet};
pub use catalogue::{HostWarning, HostWarningCode, SharedKind, lint};
pub use cidr::{CidrFault, Nat64Prefix, OperatorCidr, classify_behind_nat64, translated};
pub use config::{HostFault, HostFaultCode, SpellingFault};
pub use denial::{Denial, DenialCode};
pub use destination::{Destination, DestinationFault, Host, Port, PortFault};
pub use name::{HostName, NameFault};
pub use pattern::{HostPattern, HostRule};
pub use permit::{Basis, MAX_ADDRESSES, Permit, Pinned};
pub use preset::Preset;

#[cfg(test)]
mod cases;
#[cfg(test)]
mod properties;
