//! Where a model is served: an https address from the operator's file. The broker takes authority and SNI from here and
//! from nowhere else, so only one spelling is accepted.

use core::net::IpAddr;
use std::fmt;

use thiserror::Error;

use crate::egress::{HostName, Port};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    host: UpstreamHost,
    port: Port,
    prefix: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamHost {
    Name(HostName),
    /// Only for an upstream the operator has said is private.
    Address(IpAddr),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum UpstreamFault {
    #[error("an upstream begins with `https://`")]
    Scheme,
    #[error("an upstream has no user, query or fragment")]
    Extra,
    #[error("the host is not a plain name")]
    Host,
    #[error("an address is accepted only with `upstream_private = true`")]
    Address,
    #[error("the port is not a number from 1 to 65535")]
    Port,
    #[error("the path is not plain, or ends in a slash; the API's own path is added to it")]
    Prefix,
}

impl Upstream {
    /// Reads `https://host[:port][/prefix]`. `private` says that the operator means an address of his own network.
    pub fn parse(text: &str, private: bool) -> Result<Self, UpstreamFault> {
        let rest = text.strip_prefix("https://").ok_or(UpstreamFault::Scheme)?;
        if rest.contains(['@', '?', '#', '\\', '%']) {
            return Err(UpstreamFault::Extra);
        }
        let (authority, prefix) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (host, port) = split_port(authority)?;
        let upstream = Self { host: read_host(host, private)?, port, prefix: prefix.to_owned() };
        if upstream.prefix.is_empty() || is_prefix(prefix) {
            Ok(upstream)
        } else {
            Err(UpstreamFault::Prefix)
        }
    }

    pub fn host(&self) -> &UpstreamHost {
        &self.host
    }

    pub fn port(&self) -> Port {
        self.port
    }

    /// What stands before the API's own path; empty or beginning with a slash.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The value of the `Host` header.
    pub fn authority(&self) -> String {
        if self.port == Port::HTTPS { self.host.to_string() } else { format!("{}:{}", self.host, self.port) }
    }
}

impl fmt::Display for UpstreamHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

fn split_port(authority: &str) -> Result<(&str, Port), UpstreamFault> {
    let after_brackets = authority.rfind(']').map_or(0, |at| at + 1);
    let tail = authority.get(after_brackets..).unwrap_or_default();
    match tail.split_once(':') {
        None => Ok((authority, Port::HTTPS)),
        Some((before, port)) => {
            let host = authority.get(..after_brackets + before.len()).unwrap_or_default();
            Ok((host, Port::parse(port).map_err(|_| UpstreamFault::Port)?))
        }
    }
}

fn read_host(host: &str, private: bool) -> Result<UpstreamHost, UpstreamFault> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = bare.parse::<IpAddr>() {
        let bracketed = bare.len() != host.len();
        let spelled = bracketed == address.is_ipv6();
        return match (private, spelled) {
            (true, true) => Ok(UpstreamHost::Address(address)),
            (true, false) => Err(UpstreamFault::Host),
            (false, _) => Err(UpstreamFault::Address),
        };
    }
    if host.ends_with('.') || host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(UpstreamFault::Host);
    }
    HostName::parse(host).map(UpstreamHost::Name).map_err(|_| UpstreamFault::Host)
}

fn is_prefix(prefix: &str) -> bool {
    let part = |part: &str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        !matches!(part, "" | "." | "..") && part.bytes().all(plain)
    };
    prefix.strip_prefix('/').is_some_and(|rest| rest.split('/').all(part)) && prefix.len() <= 256
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, private: bool) -> Result<(String, String), UpstreamFault> {
        Upstream::parse(text, private).map(|up| (up.authority(), up.prefix().to_owned()))
    }

    #[test]
    fn one_spelling_is_accepted() {
        let of = |authority: &str, prefix: &str| Ok((authority.to_owned(), prefix.to_owned()));
        assert_eq!(shown("https://api.example.com", false), of("api.example.com", ""));
        assert_eq!(shown("https://api.example.com:443", false), of("api.example.com", ""));
        assert_eq!(shown("https://a.example:8443/api/x", false), of("a.example:8443", "/api/x"));
        assert_eq!(shown("https://10.0.0.5:8443", true), of("10.0.0.5:8443", ""));
        assert_eq!(shown("https://[fd00::1]:8443/v", true), of("[fd00::1]:8443", "/v"));
    }

    #[test]
    fn everything_else_is_refused() {
        for (text, private, fault) in [
            ("http://api.example.com", false, UpstreamFault::Scheme),
            ("HTTPS://api.example.com", false, UpstreamFault::Scheme),
            ("api.example.com", false, UpstreamFault::Scheme),
            ("https://u:p@api.example.com", false, UpstreamFault::Extra),
            ("https://api.example.com/?x", false, UpstreamFault::Extra),
            ("https://api.example.com/%2e%2e", false, UpstreamFault::Extra),
            ("https://", false, UpstreamFault::Host),
            ("https://API.example.com", false, UpstreamFault::Host),
            ("https://api.example.com.", false, UpstreamFault::Host),
            ("https://::1", true, UpstreamFault::Port),
            ("https://[10.0.0.1]", true, UpstreamFault::Host),
            ("https://1.1.1.1", false, UpstreamFault::Address),
            ("https://[::1]", false, UpstreamFault::Address),
            ("https://a.example:0", false, UpstreamFault::Port),
            ("https://a.example:", false, UpstreamFault::Port),
            ("https://a.example/", false, UpstreamFault::Prefix),
            ("https://a.example/v1/", false, UpstreamFault::Prefix),
            ("https://a.example//v1", false, UpstreamFault::Prefix),
            ("https://a.example/../v1", false, UpstreamFault::Prefix),
        ] {
            assert_eq!(shown(text, private), Err(fault), "{text}");
        }
    }
}
