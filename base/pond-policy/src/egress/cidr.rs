//! Address blocks an operator names. Two kinds, both narrower than a list of exceptions: a NAT64
//! prefix, whose addresses are judged by the IPv4 address inside them, and a private block a site
//! declares its own, which can never hold loopback, link-local or a metadata service.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;

use thiserror::Error;

use super::address::{AddressClass, AddressReason, RANGES, Range, classify};

/// Why some text is not an acceptable block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CidrFault {
    #[error("a block is written `address/length`")]
    NoLength,
    #[error("the part before `/` is not an IP address")]
    NotAnAddress,
    #[error("the length is not a plain number that fits the address")]
    BadLength,
    #[error("the address has bits set beyond the length")]
    HostBits,
    #[error("the block touches the {} range", .0.name())]
    Forbidden(AddressReason),
    #[error("the block is not inside a private range; public addresses need no exception")]
    NotPrivate,
    #[error("a NAT64 prefix has length 32, 40, 48, 56, 64 or 96")]
    NotNat64Length,
    #[error("a NAT64 prefix lies in global IPv6 space or in 64:ff9b::/96 or 64:ff9b:1::/48")]
    NotNat64Space,
}

/// A private block, safe to declare reachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperatorCidr {
    network: IpAddr,
    length: u8,
}

/// The prefix a site's translator puts before IPv4 addresses (RFC 6052).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nat64Prefix {
    network: Ipv6Addr,
    length: u8,
}

const LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];

/// All that `ipv4only.arpa` resolves to.
const IPV4_ONLY: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];

impl OperatorCidr {
    pub fn parse(text: &str) -> Result<Self, CidrFault> {
        let block = parse_block(text)?;
        let touched = RANGES.iter().filter(|range| range.overlaps(&block));
        let mut private = false;
        for range in touched {
            match range.class {
                AddressClass::Denied(
                    AddressReason::Private | AddressReason::SharedCgnat | AddressReason::UniqueLocal,
                ) => private |= range.prefix <= block.prefix,
                AddressClass::Denied(reason) => return Err(CidrFault::Forbidden(reason)),
                AddressClass::Public => {}
            }
        }
        if !private {
            return Err(CidrFault::NotPrivate);
        }
        Ok(Self { network: block.network, length: block.prefix })
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        Range { network: self.network, prefix: self.length, class: AddressClass::Public }.contains(address)
    }
}

impl Nat64Prefix {
    pub fn parse(text: &str) -> Result<Self, CidrFault> {
        let block = parse_block(text)?;
        let IpAddr::V6(network) = block.network else {
            return Err(CidrFault::NotNat64Space);
        };
        if !LENGTHS.contains(&block.prefix) {
            return Err(CidrFault::NotNat64Length);
        }
        match classify(block.network) {
            AddressClass::Public | AddressClass::Denied(AddressReason::Nat64) => {
                Ok(Self { network, length: block.prefix })
            }
            AddressClass::Denied(_) => Err(CidrFault::NotNat64Space),
        }
    }

    /// The prefix a site shows by its answer to the question for a name that has only these two IPv4 addresses (RFC 7050).
    /// `None` for an answer that hides neither, or under a prefix whose addresses are refused as they are.
    pub fn shown_by(answer: Ipv6Addr) -> Option<Self> {
        LENGTHS.into_iter().rev().find_map(|length| {
            let bits = u128::MAX.checked_shl(bits_after(128, length)?)?;
            let network = Ipv6Addr::from(u128::from(answer) & bits);
            let prefix = Self::parse(&format!("{network}/{length}")).ok()?;
            prefix.embedded(answer).filter(|inside| IPV4_ONLY.contains(inside)).map(|_| prefix)
        })
    }

    /// The IPv4 address inside `address`: the 32 bits after the prefix, stepping over octet 8, which
    /// the format keeps zero. `None` for an address that is not under this prefix.
    pub fn embedded(&self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let block = Range { network: self.network.into(), prefix: self.length, class: AddressClass::Public };
        if !block.contains(address.into()) {
            return None;
        }
        let octets = address.octets();
        let after = usize::from(self.length / 8);
        let mut inside =
            octets.iter().enumerate().skip(after).filter(|(at, _)| self.length == 96 || *at != 8);
        let mut next = || inside.next().map(|(_, octet)| *octet);
        Some(Ipv4Addr::new(next()?, next()?, next()?, next()?))
    }
}

/// [`classify`], except that an address under one of the site's NAT64 prefixes counts as the IPv4 address it
/// leads to.
pub fn classify_behind_nat64(address: IpAddr, prefixes: &[Nat64Prefix]) -> AddressClass {
    classify(translated(address, prefixes))
}

/// Where a packet to `address` really goes on this site.
pub fn translated(address: IpAddr, prefixes: &[Nat64Prefix]) -> IpAddr {
    match address {
        IpAddr::V6(v6) => prefixes.iter().find_map(|prefix| prefix.embedded(v6)).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

fn parse_block(text: &str) -> Result<Range, CidrFault> {
    let (address, length) = text.split_once('/').ok_or(CidrFault::NoLength)?;
    let network: IpAddr = address.parse().map_err(|_| CidrFault::NotAnAddress)?;
    let plain =
        length.bytes().all(|byte| byte.is_ascii_digit()) && (length == "0" || !length.starts_with('0'));
    let length: u8 = length.parse().ok().filter(|_| plain).ok_or(CidrFault::BadLength)?;
    let (bits, trailing_zeros) = match network {
        IpAddr::V4(v4) => (32, u32::from(v4).trailing_zeros()),
        IpAddr::V6(v6) => (128, u128::from(v6).trailing_zeros()),
    };
    let free = bits_after(bits, length).ok_or(CidrFault::BadLength)?;
    if trailing_zeros < free {
        return Err(CidrFault::HostBits);
    }
    Ok(Range { network, prefix: length, class: AddressClass::Public })
}

fn bits_after(bits: u32, length: u8) -> Option<u32> {
    bits.checked_sub(u32::from(length))
}

impl fmt::Display for OperatorCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.length)
    }
}

impl fmt::Display for Nat64Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressReason, CidrFault, Nat64Prefix, OperatorCidr, classify_behind_nat64};
    use crate::egress::AddressClass;

    #[test]
    fn case_59_no_exception_reaches_loopback_link_local_or_metadata() {
        let forbidden = |reason| Err(CidrFault::Forbidden(reason));
        let table = [
            ("127.0.0.0/8", forbidden(AddressReason::Loopback)),
            ("127.0.0.1/32", forbidden(AddressReason::Loopback)),
            ("0.0.0.0/0", forbidden(AddressReason::Metadata)),
            ("169.254.0.0/16", forbidden(AddressReason::Metadata)),
            ("169.254.1.0/24", forbidden(AddressReason::LinkLocal)),
            ("168.63.129.16/32", forbidden(AddressReason::Metadata)),
            ("100.64.0.0/10", forbidden(AddressReason::Metadata)),
            ("::1/128", forbidden(AddressReason::Loopback)),
            ("fe80::/10", forbidden(AddressReason::LinkLocal)),
            ("fc00::/7", forbidden(AddressReason::Metadata)),
            ("fd00:ec2::/32", forbidden(AddressReason::Metadata)),
            ("::ffff:10.0.0.0/104", forbidden(AddressReason::Mapped)),
            ("224.0.0.0/4", forbidden(AddressReason::Multicast)),
            ("8.8.8.0/24", Err(CidrFault::NotPrivate)),
            ("8.0.0.0/6", Err(CidrFault::NotPrivate)),
            ("2600::/16", Err(CidrFault::NotPrivate)),
            ("10.0.0.1/8", Err(CidrFault::HostBits)),
            ("10.0.0.0/33", Err(CidrFault::BadLength)),
            ("10.0.0.0/08", Err(CidrFault::BadLength)),
            ("10.0.0.0/+8", Err(CidrFault::BadLength)),
            ("10.0.0.0/", Err(CidrFault::BadLength)),
            ("10.0.0.0", Err(CidrFault::NoLength)),
            ("010.0.0.0/8", Err(CidrFault::NotAnAddress)),
            ("acme.com/8", Err(CidrFault::NotAnAddress)),
        ];
        for (text, expected) in table {
            assert_eq!(OperatorCidr::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn private_blocks_parse_print_and_contain() {
        for text in ["10.0.0.0/8", "10.20.0.0/16", "192.168.7.0/24", "100.64.0.0/16", "fd12:3456::/32"] {
            let block = OperatorCidr::parse(text).expect(text);
            assert_eq!(block.to_string(), text);
        }
        let block = OperatorCidr::parse("10.20.0.0/16").unwrap();
        let inside = |text: &str| block.contains(text.parse().unwrap());
        assert!(inside("10.20.0.0") && inside("10.20.255.255"));
        assert!(!inside("10.19.255.255") && !inside("10.21.0.0") && !inside("::1"));
    }

    #[test]
    fn case_57_nat64_is_judged_by_the_address_inside() {
        let denied = AddressClass::Denied;
        let table = [
            ("2a00:1::/96", "2a00:1::8.8.8.8", AddressClass::Public),
            ("2a00:1::/96", "2a00:1::169.254.169.254", denied(AddressReason::Metadata)),
            ("2a00:1::/96", "2a00:1::10.0.0.1", denied(AddressReason::Private)),
            ("2a00:1::/96", "2a00:2::10.0.0.1", AddressClass::Public),
            ("2a00:1::/32", "2a00:1:7f00:1::", denied(AddressReason::Loopback)),
            ("2a00:1::/40", "2a00:1:7f:0:1::", denied(AddressReason::Loopback)),
            ("2a00:1:2::/48", "2a00:1:2:a00:0:100::", denied(AddressReason::Private)),
            ("2a00:1:2::/56", "2a00:1:2:a:0:1::", denied(AddressReason::Private)),
            ("2a00:1:2:3::/64", "2a00:1:2:3:a:0:100:0", denied(AddressReason::Private)),
            ("2a00:1:2:3::/64", "2a00:1:2:3:8:808:800:0", AddressClass::Public),
            ("64:ff9b::/96", "64:ff9b::8.8.8.8", AddressClass::Public),
            ("64:ff9b::/96", "64:ff9b::127.0.0.1", denied(AddressReason::Loopback)),
            ("64:ff9b::/96", "::1", denied(AddressReason::Loopback)),
        ];
        for (prefix, address, expected) in table {
            let prefix = Nat64Prefix::parse(prefix).expect(prefix);
            let found = classify_behind_nat64(address.parse().unwrap(), &[prefix]);
            assert_eq!(found, expected, "{address} behind {prefix}");
        }
        let without = classify_behind_nat64("64:ff9b::8.8.8.8".parse().unwrap(), &[]);
        assert_eq!(without, denied(AddressReason::Nat64));
    }

    #[test]
    fn case_57_a_site_shows_its_prefix() {
        for (answer, prefix) in [
            ("2a00:1::192.0.0.170", Some("2a00:1::/96")),
            ("64:ff9b::192.0.0.171", Some("64:ff9b::/96")),
            ("2a00:1:c000:aa::", Some("2a00:1::/32")),
            ("2a00:1:2:c000:0:aa00::", Some("2a00:1:2::/48")),
            ("2a00:1:2:3:c0:0:aa00:0", Some("2a00:1:2:3::/64")),
            ("2a00:1::192.0.0.172", None),
            ("fd00:1::192.0.0.170", None),
            ("2606:4700::1111", None),
        ] {
            let shown = Nat64Prefix::shown_by(answer.parse().unwrap());
            assert_eq!(shown, prefix.map(|text| Nat64Prefix::parse(text).unwrap()), "{answer}");
        }
    }

    #[test]
    fn nat64_prefixes_are_bounded() {
        let table = [
            ("2a00:1::/95", CidrFault::NotNat64Length),
            ("::/96", CidrFault::NotNat64Space),
            ("::ffff:0:0/96", CidrFault::NotNat64Space),
            ("fd00::/96", CidrFault::NotNat64Space),
            ("2002::/32", CidrFault::NotNat64Space),
            ("10.0.0.0/8", CidrFault::NotNat64Space),
        ];
        for (text, expected) in table {
            assert_eq!(Nat64Prefix::parse(text), Err(expected), "{text}");
        }
    }
}
