//! What a job asks of a worker's sandboxing and what a worker offers, as the names that cross the wire.
//!
//! Invariants: each value has one spelling; an exact requirement is met by that backend alone; a floor is never met by
//! something weaker; confidential capabilities stand beside the backends and never count as one.

use std::fmt;

use crate::backend::{Backend, Strength};

const PREFIX: &str = "sandbox.";

named_enum! {
    /// Hardware that hides a guest from its host.
    pub enum Confidential {
        SevSnp => "cc-snp",
        Tdx => "cc-tdx",
    }
}

/// What a worker offers, once probes on that host have confirmed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capability {
    Backend(Backend),
    Confidential(Confidential),
}

/// What a confined job requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Requirement {
    /// This backend and no other: `sandbox.gvisor`.
    Exact(Backend),
    /// Any backend at least this strong: `sandbox.*`, `sandbox.gvisor+`, `sandbox.firecracker+`.
    AtLeast(Strength),
}

impl Capability {
    pub fn parse(text: &str) -> Option<Self> {
        let name = text.strip_prefix(PREFIX)?;
        let confidential = || Confidential::from_name(name).map(Self::Confidential);
        Backend::from_name(name).map(Self::Backend).or_else(confidential)
    }
}

impl Requirement {
    pub fn parse(text: &str) -> Option<Self> {
        let name = text.strip_prefix(PREFIX)?;
        match name {
            "*" => Some(Self::AtLeast(Strength::SharedKernel)),
            "gvisor+" => Some(Self::AtLeast(Strength::UserKernel)),
            "firecracker+" => Some(Self::AtLeast(Strength::VirtualMachine)),
            _ => Backend::from_name(name).map(Self::Exact),
        }
    }

    pub fn satisfied_by(self, offered: &[Capability]) -> bool {
        offered.iter().any(|capability| match (self, capability) {
            (Self::Exact(wanted), Capability::Backend(backend)) => wanted == *backend,
            (Self::AtLeast(least), Capability::Backend(backend)) => backend.strength() >= least,
            (Self::Exact(_) | Self::AtLeast(_), Capability::Confidential(_)) => false,
        })
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backend(backend) => write!(f, "{PREFIX}{backend}"),
            Self::Confidential(confidential) => write!(f, "{PREFIX}{confidential}"),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(backend) => write!(f, "{PREFIX}{backend}"),
            Self::AtLeast(Strength::SharedKernel) => write!(f, "{PREFIX}*"),
            Self::AtLeast(Strength::UserKernel) => write!(f, "{PREFIX}{}+", Backend::Gvisor),
            Self::AtLeast(Strength::VirtualMachine) => write!(f, "{PREFIX}{}+", Backend::Firecracker),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirements() -> Vec<Requirement> {
        let exact = Backend::ALL.iter().copied().map(Requirement::Exact);
        exact.chain(Strength::ALL.iter().copied().map(Requirement::AtLeast)).collect()
    }

    #[test]
    fn texts_round_trip() {
        for requirement in requirements() {
            assert_eq!(Requirement::parse(&requirement.to_string()), Some(requirement));
        }
        for text in ["sandbox.native", "sandbox.firecracker", "sandbox.cc-snp", "sandbox.cc-tdx"] {
            assert_eq!(
                Capability::parse(text).map(|capability| capability.to_string()).as_deref(),
                Some(text)
            );
        }
        for text in [
            "",
            "sandbox.",
            "sandbox.none",
            "gvisor",
            "sandbox.native+",
            "sandbox.docker+",
            "sandbox.*+",
            "sandbox.cc-snp",
        ] {
            assert_eq!(Requirement::parse(text), None, "{text}");
        }
        for text in ["", "sandbox.*", "sandbox.gvisor+", "sandbox.GVISOR", "Sandbox.gvisor", "sandbox.kata"] {
            assert_eq!(Capability::parse(text), None, "{text}");
        }
    }

    #[test]
    fn who_satisfies_what() {
        let names = |requirement: &str| -> Vec<&str> {
            let requirement = Requirement::parse(requirement).unwrap();
            let offers = ["native", "docker", "gvisor", "firecracker", "cc-snp", "cc-tdx"];
            let meets = |name: &&str| {
                requirement.satisfied_by(&[Capability::parse(&format!("sandbox.{name}")).unwrap()])
            };
            offers.into_iter().filter(meets).collect()
        };
        assert_eq!(names("sandbox.*"), ["native", "docker", "gvisor", "firecracker"]);
        assert_eq!(names("sandbox.gvisor+"), ["gvisor", "firecracker"]);
        assert_eq!(names("sandbox.firecracker+"), ["firecracker"]);
        for backend in Backend::NAMES {
            assert_eq!(names(&format!("sandbox.{backend}")), [*backend]);
        }
        assert!(!Requirement::parse("sandbox.*").unwrap().satisfied_by(&[]));
    }
}
