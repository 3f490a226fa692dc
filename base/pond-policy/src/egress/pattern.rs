//! A host rule: an exact name or the names below one, and optionally a port. A [`HostRule`] exists
//! only after the whole of `parse_config` accepted it, so no rule in memory covers a public suffix,
//! a model API, an address or every host.

use std::fmt;

use super::destination::Port;
use super::name::HostName;

/// Which names a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostPattern {
    /// This name and no other.
    Exact(HostName),
    /// Every name below this one, at any depth, and not the name itself.
    Subdomains(HostName),
}

/// One line of an allow or deny list.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostRule {
    pattern: HostPattern,
    port: Option<Port>,
}

impl HostPattern {
    /// The name the pattern is spelled with.
    pub fn name(&self) -> &HostName {
        match self {
            Self::Exact(name) | Self::Subdomains(name) => name,
        }
    }
}

impl HostRule {
    pub(super) fn new(pattern: HostPattern, port: Option<Port>) -> Self {
        Self { pattern, port }
    }

    pub fn pattern(&self) -> &HostPattern {
        &self.pattern
    }

    /// The port the rule names. An allow rule without one means 443; a deny rule, every port.
    pub fn port(&self) -> Option<Port> {
        self.port
    }

    /// True when the rule is about `name`, whatever the port.
    pub fn covers(&self, name: &HostName) -> bool {
        match &self.pattern {
            HostPattern::Exact(exact) => exact == name,
            HostPattern::Subdomains(base) => name.is_below(base.as_str()),
        }
    }

    pub(super) fn allows_port(&self, port: Port) -> bool {
        self.port.unwrap_or(Port::HTTPS) == port
    }

    pub(super) fn denies_port(&self, port: Port) -> bool {
        self.port.is_none_or(|named| named == port)
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => name.fmt(f),
            Self::Subdomains(base) => write!(f, "*.{base}"),
        }
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pattern.fmt(f)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}
