//! The table against a second, naive statement of the same rules: at every edge, and at random.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::{AddressClass, AddressReason, RANGES, Range, classify};

fn ip(text: &str) -> IpAddr {
    text.parse().expect(text)
}

fn denied(reason: AddressReason) -> AddressClass {
    AddressClass::Denied(reason)
}

/// Written with octet comparisons and no prefixes, so that it shares nothing with the table.
fn naive_v4_is_public(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        [168, 63, 129, 16] => true,
        [0 | 10 | 127, ..] => true,
        [100, second, ..] => (64..=127).contains(&second),
        [169, 254, ..] => true,
        [172, second, ..] => (16..=31).contains(&second),
        [192, 0, third, _] => third == 0 || third == 2,
        [192, 88, 99, _] => true,
        [192, 168, ..] => true,
        [198, 18 | 19, ..] => true,
        [198, 51, 100, _] => true,
        [203, 0, 113, _] => true,
        [first, ..] => first >= 224,
    };
    !special
}

fn naive_v6_is_public(address: Ipv6Addr) -> bool {
    match address.segments() {
        [0x2001, second, ..] => second > 0x1ff && second != 0xdb8,
        [0x2002, ..] => false,
        [0x3fff, second, ..] => second > 0x0fff,
        [first, ..] => (0x2000..=0x3fff).contains(&first),
    }
}

fn naive_is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => naive_v4_is_public(v4),
        IpAddr::V6(v6) => naive_v6_is_public(v6),
    }
}

/// The first and last address of a range.
fn edges(range: &Range) -> [IpAddr; 2] {
    match range.network {
        IpAddr::V4(first) => {
            let host_bits = u32::MAX.checked_shr(u32::from(range.prefix)).unwrap_or(0);
            [IpAddr::V4(first), IpAddr::V4(Ipv4Addr::from(u32::from(first) | host_bits))]
        }
        IpAddr::V6(first) => {
            let host_bits = u128::MAX.checked_shr(u32::from(range.prefix)).unwrap_or(0);
            [IpAddr::V6(first), IpAddr::V6(Ipv6Addr::from(u128::from(first) | host_bits))]
        }
    }
}

fn neighbour(address: IpAddr, step: i8) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => {
            u32::from(v4).checked_add_signed(step.into()).map(|bits| Ipv4Addr::from(bits).into())
        }
        IpAddr::V6(v6) => {
            u128::from(v6).checked_add_signed(step.into()).map(|bits| Ipv6Addr::from(bits).into())
        }
    }
}

#[test]
fn cases_52_to_56_every_edge_of_every_range() {
    for range in RANGES {
        let [first, last] = edges(range);
        assert_eq!(
            neighbour(first, -1).map(|below| range.contains(below)),
            neighbour(first, -1).map(|_| false)
        );
        assert_eq!(neighbour(last, 1).map(|above| range.contains(above)), neighbour(last, 1).map(|_| false));
        for address in
            [neighbour(first, -1), Some(first), Some(last), neighbour(last, 1)].into_iter().flatten()
        {
            let public = classify(address) == AddressClass::Public;
            assert_eq!(public, naive_is_public(address), "{address} at the edge of {range:?}");
        }
    }
}

#[test]
fn case_52_every_listed_block_has_its_reason() {
    let table = [
        ("0.0.0.0", "0.255.255.255", AddressReason::ThisNetwork),
        ("10.0.0.0", "10.255.255.255", AddressReason::Private),
        ("100.64.0.0", "100.127.255.255", AddressReason::SharedCgnat),
        ("127.0.0.0", "127.255.255.255", AddressReason::Loopback),
        ("169.254.0.0", "169.254.255.255", AddressReason::LinkLocal),
        ("172.16.0.0", "172.31.255.255", AddressReason::Private),
        ("192.0.0.0", "192.0.0.255", AddressReason::ProtocolAssignments),
        ("192.0.2.0", "192.0.2.255", AddressReason::Documentation),
        ("192.88.99.0", "192.88.99.255", AddressReason::SixToFourRelay),
        ("192.168.0.0", "192.168.255.255", AddressReason::Private),
        ("198.18.0.0", "198.19.255.255", AddressReason::Benchmarking),
        ("198.51.100.0", "198.51.100.255", AddressReason::Documentation),
        ("203.0.113.0", "203.0.113.255", AddressReason::Documentation),
        ("224.0.0.0", "239.255.255.255", AddressReason::Multicast),
        ("240.0.0.0", "255.255.255.255", AddressReason::Reserved),
    ];
    for (first, last, reason) in table {
        assert_eq!([classify(ip(first)), classify(ip(last))], [denied(reason); 2], "{first} to {last}");
    }
}

#[test]
fn case_53_neighbours_are_public() {
    let neighbours = [
        "1.0.0.0",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "191.255.255.255",
        "192.0.1.0",
        "192.0.1.255",
        "192.0.3.0",
        "192.88.98.255",
        "192.88.100.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "198.51.99.255",
        "198.51.101.0",
        "203.0.112.255",
        "203.0.114.0",
        "223.255.255.255",
        "168.63.129.15",
        "168.63.129.17",
    ];
    for address in neighbours {
        assert_eq!(classify(ip(address)), AddressClass::Public, "{address}");
    }
}

#[test]
fn cases_54_and_55_metadata_services_by_name() {
    let services = [
        ("Azure wire server", "168.63.129.16"),
        ("Alibaba", "100.100.100.200"),
        ("Oracle", "192.0.0.192"),
        ("AWS", "169.254.169.254"),
        ("AWS container credentials", "169.254.170.2"),
        ("AWS pod identity", "169.254.170.23"),
        ("AWS over IPv6", "fd00:ec2::254"),
        ("Google over IPv6", "fd20:ce::254"),
    ];
    for (service, address) in services {
        assert_eq!(classify(ip(address)), denied(AddressReason::Metadata), "{service}");
    }
}

#[test]
fn case_56_ipv6_is_allowed_by_inclusion() {
    let table = [
        ("2000::", AddressClass::Public),
        ("2600:1f18::1", AddressClass::Public),
        ("2001:200::", AddressClass::Public),
        ("3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff", AddressClass::Public),
        ("3fff:1000::", AddressClass::Public),
        ("1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", denied(AddressReason::Ipv6NotGlobal)),
        ("4000::", denied(AddressReason::Ipv6NotGlobal)),
        ("::", denied(AddressReason::Unspecified)),
        ("::1", denied(AddressReason::Loopback)),
        ("::127.0.0.1", denied(AddressReason::Ipv6NotGlobal)),
        ("::ffff:8.8.8.8", denied(AddressReason::Mapped)),
        ("::ffff:127.0.0.1", denied(AddressReason::Mapped)),
        ("64:ff9b::8.8.8.8", denied(AddressReason::Nat64)),
        ("64:ff9b:1::1", denied(AddressReason::Nat64)),
        ("100::1", denied(AddressReason::Discard)),
        ("2001::1", denied(AddressReason::Teredo)),
        ("2001:20::1", denied(AddressReason::ProtocolAssignments)),
        ("2001:db8::1", denied(AddressReason::Documentation)),
        ("2002:a00::1", denied(AddressReason::SixToFour)),
        ("3fff::1", denied(AddressReason::Documentation)),
        ("5f00::1", denied(AddressReason::SegmentRouting)),
        ("fc00::1", denied(AddressReason::UniqueLocal)),
        ("fe80::1", denied(AddressReason::LinkLocal)),
        ("fec0::1", denied(AddressReason::SiteLocal)),
        ("ff02::1", denied(AddressReason::Multicast)),
    ];
    for (address, expected) in table {
        assert_eq!(classify(ip(address)), expected, "{address}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn agrees_with_the_naive_rules_on_ipv4(bits: u32) {
        let address = IpAddr::V4(bits.into());
        prop_assert_eq!(classify(address) == AddressClass::Public, naive_is_public(address), "{}", address);
    }

    #[test]
    fn agrees_with_the_naive_rules_on_ipv6(bits: u128, top in prop::sample::select(
        vec![0x2000_u16, 0x2001, 0x2002, 0x2600, 0x3fff, 0x64, 0x100, 0xfd00, 0xfe80, 0]), keep_top: bool) {
        let mut segments = Ipv6Addr::from(bits).segments();
        if keep_top {
            segments[0] = top;
        }
        let address = IpAddr::V6(segments.into());
        prop_assert_eq!(classify(address) == AddressClass::Public, naive_is_public(address), "{}", address);
    }
}
