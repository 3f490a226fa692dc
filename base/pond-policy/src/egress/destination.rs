//! Where a request wants to go: the `host:port` of a CONNECT line, nothing defaulted and nothing
//! repaired. Trust zone: the text comes from the job. An address literal parses, so that its refusal
//! can say so, but no rule ever matches one.

use core::net::Ipv6Addr;
use std::fmt;

use thiserror::Error;

use super::name::{HostName, NameFault, canonical};

/// A TCP port; zero is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port(u16);

/// Why some text is not a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PortFault {
    #[error("the port is missing; write it out, as in `host:443`")]
    Missing,
    #[error("the port is not a plain decimal number")]
    NotDigits,
    #[error("the port starts with a zero")]
    LeadingZero,
    #[error("the port is not between 1 and 65535")]
    OutOfRange,
}

/// What a request named: something a rule may match, or an address that none ever does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    Name(HostName),
    /// An IP address in any spelling, kept as canonical text for the refusal.
    Literal(String),
}

/// A host and a port, both explicit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Destination {
    pub host: Host,
    pub port: Port,
}

/// Why some text is not a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DestinationFault {
    #[error(transparent)]
    Name(#[from] NameFault),
    #[error(transparent)]
    Port(#[from] PortFault),
    #[error("the bracketed host is not an IPv6 address")]
    NotIpv6,
}

impl Port {
    pub const HTTPS: Self = Self(443);

    pub fn new(number: u16) -> Option<Self> {
        (number != 0).then_some(Self(number))
    }

    pub fn get(self) -> u16 {
        self.0
    }

    pub fn parse(text: &str) -> Result<Self, PortFault> {
        if text.is_empty() {
            return Err(PortFault::Missing);
        }
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(PortFault::NotDigits);
        }
        if text.len() > 1 && text.starts_with('0') {
            return Err(PortFault::LeadingZero);
        }
        text.parse().ok().and_then(Self::new).ok_or(PortFault::OutOfRange)
    }
}

impl Destination {
    /// Reads an authority, `host:port` or `[v6]:port`.
    pub fn parse(text: &str) -> Result<Self, DestinationFault> {
        let (host, port) = split(text)?;
        let host = parse_host(host)?;
        Ok(Self { host, port: Port::parse(port)? })
    }
}

/// The port follows the last colon, unless that colon is inside brackets.
fn split(text: &str) -> Result<(&str, &str), DestinationFault> {
    match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => Ok((host, port)),
        Some(_) | None => Err(parse_host(text).err().unwrap_or(PortFault::Missing.into())),
    }
}

fn parse_host(text: &str) -> Result<Host, DestinationFault> {
    if let Some(inside) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return parse_ipv6(inside);
    }
    match HostName::parse(text) {
        Ok(name) => Ok(Host::Name(name)),
        Err(NameFault::IpLike) => Ok(Host::Literal(canonical(text.as_bytes())?)),
        Err(fault) => Err(fault.into()),
    }
}

fn parse_ipv6(inside: &str) -> Result<Host, DestinationFault> {
    if inside.contains('%') {
        return Err(NameFault::Percent.into());
    }
    let address: Ipv6Addr = inside.parse().map_err(|_| DestinationFault::NotIpv6)?;
    Ok(Host::Literal(format!("[{address}]")))
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Literal(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
