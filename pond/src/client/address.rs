//! Where a control plane is: `http://` or `https://`, a host, a port. Nothing else of a URL has a meaning here, so nothing else is
//! accepted. A token is shown to no host in the clear but this one, unless the person who owns it says so.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Where `pond serve` and `pond up` listen unless they are told otherwise.
pub(crate) const USUAL: &str = "http://127.0.0.1:7575";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) scheme: Scheme,
    /// A name or an address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Scheme {
    const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    const fn usual_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl Address {
    /// Nothing for what is no such address.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = [Scheme::Http, Scheme::Https]
            .into_iter()
            .find_map(|scheme| Some((scheme, text.strip_prefix(scheme.name())?.strip_prefix("://")?)))?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[') {
            Some(bracketed) => {
                let (host, port) = bracketed.split_once(']')?;
                host.parse::<Ipv6Addr>().ok()?;
                (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
            }
            None => match rest.split_once(':') {
                Some((host, port)) => (is_plain(host).then_some(host)?, Some(port)),
                None => (is_plain(rest).then_some(rest)?, None),
            },
        };
        let port = match port {
            None => scheme.usual_port(),
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok()?,
            Some(_) => return None,
        };
        Some(Self { scheme, host: host.to_ascii_lowercase(), port })
    }

    pub(crate) fn is_this_machine(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// As a `Host` header has it.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

fn is_plain(host: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=253).contains(&host.len()) && host.bytes().all(plain)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.name(), self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_how_they_are_written_again() {
        let cases = [
            (USUAL, "http://127.0.0.1:7575", true),
            ("http://localhost/", "http://localhost:80", true),
            ("https://Pond.acme.com", "https://pond.acme.com:443", false),
            ("https://10.0.0.7:8443/", "https://10.0.0.7:8443", false),
            ("http://[::1]:7575", "http://[::1]:7575", true),
            ("https://[2620::1]", "https://[2620::1]:443", false),
        ];
        for (text, again, here) in cases {
            let address = Address::parse(text).unwrap();
            assert_eq!((address.to_string().as_str(), address.is_this_machine()), (again, here), "{text}");
            assert_eq!(Address::parse(again), Some(address));
        }
    }

    #[test]
    fn what_is_no_address() {
        let cases = [
            "",
            "127.0.0.1:7575",
            "ftp://a",
            "http://",
            "http://:80",
            "http://a:b",
            "http://a:70000",
            "http://a:+1",
            "http://user@a",
            "http://a/v1",
            "http://a?b",
            "http://a b",
            "http://[::1",
            "http://[a]",
            "http://[::1]x",
            "http://a\r\nx",
            "HTTP://a",
            "http://a:",
        ];
        for text in cases {
            assert_eq!(Address::parse(text), None, "{text:?}");
        }
    }
}
