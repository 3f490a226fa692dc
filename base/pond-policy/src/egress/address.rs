//! Which addresses belong to the public internet. One table, first match wins; a name that resolves
//! to anything else is refused whole.
//!
//! IPv4 is public unless listed, because its special ranges are known and closed. IPv6 is refused
//! unless it lies in the allocated global block and in no hole of it, because most of that space has
//! no meaning yet and much of the rest carries an IPv4 address inside.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The verdict on one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressClass {
    Public,
    Denied(AddressReason),
}

named_enum! {
    /// Why an address is not public.
    pub enum AddressReason {
        /// A cloud's metadata or host agent service: credentials for the asking.
        Metadata => "metadata",
        ThisNetwork => "this_network",
        Private => "private",
        SharedCgnat => "shared_cgnat",
        Loopback => "loopback",
        LinkLocal => "link_local",
        ProtocolAssignments => "protocol_assignments",
        Documentation => "documentation",
        SixToFourRelay => "6to4_relay",
        Benchmarking => "benchmarking",
        Multicast => "multicast",
        Reserved => "reserved",
        Unspecified => "unspecified",
        /// An IPv4 address in IPv6 clothes.
        Mapped => "mapped",
        Nat64 => "nat64",
        SixToFour => "6to4",
        Teredo => "teredo",
        UniqueLocal => "unique_local",
        SiteLocal => "site_local",
        Discard => "discard",
        SegmentRouting => "segment_routing",
        Ipv6NotGlobal => "ipv6_not_global",
    }
}

/// One line of the table: every address sharing the first `prefix` bits of `network`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) network: IpAddr,
    pub(super) prefix: u8,
    pub(super) class: AddressClass,
}

/// Single addresses stand before the ranges around them, so that a refusal names the sharper reason.
pub(super) const RANGES: &[Range] = &[
    // Azure's wire server lies in public space; the rest are inside ranges refused anyway.
    v4([168, 63, 129, 16], 32, AddressReason::Metadata),
    v4([100, 100, 100, 200], 32, AddressReason::Metadata),
    v4([192, 0, 0, 192], 32, AddressReason::Metadata),
    v4([169, 254, 169, 254], 32, AddressReason::Metadata),
    v4([169, 254, 170, 2], 32, AddressReason::Metadata),
    v4([169, 254, 170, 23], 32, AddressReason::Metadata),
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128, AddressReason::Metadata),
    v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128, AddressReason::Metadata),
    v4([0, 0, 0, 0], 8, AddressReason::ThisNetwork),
    v4([10, 0, 0, 0], 8, AddressReason::Private),
    v4([100, 64, 0, 0], 10, AddressReason::SharedCgnat),
    v4([127, 0, 0, 0], 8, AddressReason::Loopback),
    v4([169, 254, 0, 0], 16, AddressReason::LinkLocal),
    v4([172, 16, 0, 0], 12, AddressReason::Private),
    v4([192, 0, 0, 0], 24, AddressReason::ProtocolAssignments),
    v4([192, 0, 2, 0], 24, AddressReason::Documentation),
    v4([192, 88, 99, 0], 24, AddressReason::SixToFourRelay),
    v4([192, 168, 0, 0], 16, AddressReason::Private),
    v4([198, 18, 0, 0], 15, AddressReason::Benchmarking),
    v4([198, 51, 100, 0], 24, AddressReason::Documentation),
    v4([203, 0, 113, 0], 24, AddressReason::Documentation),
    v4([224, 0, 0, 0], 4, AddressReason::Multicast),
    v4([240, 0, 0, 0], 4, AddressReason::Reserved),
    v6([0, 0, 0, 0, 0, 0, 0, 0], 128, AddressReason::Unspecified),
    v6([0, 0, 0, 0, 0, 0, 0, 1], 128, AddressReason::Loopback),
    v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, AddressReason::Mapped),
    v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, AddressReason::Nat64),
    v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, AddressReason::Nat64),
    v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64, AddressReason::Discard),
    v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16, AddressReason::SegmentRouting),
    v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, AddressReason::UniqueLocal),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, AddressReason::LinkLocal),
    v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, AddressReason::SiteLocal),
    v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, AddressReason::Multicast),
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, AddressReason::Teredo),
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, AddressReason::ProtocolAssignments),
    v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, AddressReason::Documentation),
    v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, AddressReason::SixToFour),
    v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, AddressReason::Documentation),
    Range { network: ip6([0x2000, 0, 0, 0, 0, 0, 0, 0]), prefix: 3, class: AddressClass::Public },
];

/// Judges one address by the table.
pub fn classify(address: IpAddr) -> AddressClass {
    let unlisted = match address {
        IpAddr::V4(_) => AddressClass::Public,
        IpAddr::V6(_) => AddressClass::Denied(AddressReason::Ipv6NotGlobal),
    };
    RANGES.iter().find(|range| range.contains(address)).map_or(unlisted, |range| range.class)
}

impl Range {
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        match (self.network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differing = u32::from(network) ^ u32::from(address);
                differing.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let differing = u128::from(network) ^ u128::from(address);
                differing.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }

    /// True when some address lies in both.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        if self.prefix <= other.prefix { self.contains(other.network) } else { other.contains(self.network) }
    }
}

const fn v4(octets: [u8; 4], prefix: u8, reason: AddressReason) -> Range {
    let [a, b, c, d] = octets;
    Range { network: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix, class: AddressClass::Denied(reason) }
}

const fn v6(segments: [u16; 8], prefix: u8, reason: AddressReason) -> Range {
    Range { network: ip6(segments), prefix, class: AddressClass::Denied(reason) }
}

const fn ip6([a, b, c, d, e, f, g, h]: [u16; 8]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h))
}

#[cfg(test)]
mod tests;
