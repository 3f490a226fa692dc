//! Permission as a value: a verdict gives a [`Permit`], a permit and one set of resolved addresses
//! give a [`Pinned`], and only those addresses may be dialled. Neither can be made elsewhere, so a
//! second lookup, a retry or a cache cannot reach an address that was not judged.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::address::{AddressClass, AddressReason, classify};
use super::cidr::{Nat64Prefix, translated};
use super::denial::Denial;
use super::destination::Port;
use super::name::HostName;
use super::pattern::HostRule;

/// More answers than this are refused unread: a cut list would be judged in part.
pub const MAX_ADDRESSES: usize = 64;

/// What a permission rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Basis {
    /// An allow rule names the host.
    Rule(Arc<HostRule>),
    /// The internet posture allows any public host.
    Internet,
    /// The operator's file names it as a model's upstream; the broker goes there, the job never does.
    Model,
}

/// A destination that may be looked up.
///
/// ```compile_fail
/// use pond_policy::egress::{Basis, HostName, Permit, Port};
/// let host = HostName::parse("evil.com").unwrap();
/// let forged = Permit { host, port: Port::HTTPS, basis: Basis::Internet };
/// ```
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a permit that is dropped allowed nothing"]
pub struct Permit {
    host: HostName,
    port: Port,
    basis: Basis,
}

/// A destination that may be dialled, at these addresses and no other.
#[derive(Debug, PartialEq, Eq)]
pub struct Pinned {
    permit: Permit,
    addresses: Vec<SocketAddr>,
}

impl Permit {
    pub(super) fn new(host: HostName, port: Port, basis: Basis) -> Self {
        Self { host, port, basis }
    }

    pub fn host(&self) -> &HostName {
        &self.host
    }

    pub fn port(&self) -> Port {
        self.port
    }

    pub fn basis(&self) -> &Basis {
        &self.basis
    }

    /// For the broker alone: a model's upstream, which the operator named.
    pub fn for_model(host: HostName, port: Port) -> Self {
        Self { host, port, basis: Basis::Model }
    }

    /// The same for an upstream the operator named by its address.
    pub fn for_model_at(address: IpAddr, port: Port) -> Self {
        Self::for_model(HostName::of_address(address), port)
    }

    /// Judges the addresses of a model's upstream that the operator says is on his own network: private ones and this
    /// machine's own are accepted beside public ones, metadata services and everything else are not.
    pub fn pin_private(self, resolved: &[IpAddr]) -> Result<Pinned, Denial> {
        let asked = || format!("{}:{}", self.host, self.port);
        if resolved.is_empty() {
            return Err(Denial::dns_failed(&asked()));
        }
        let denied = |address: &IpAddr| {
            reason(*address).filter(|reason| !is_of_a_network(*reason)).map(|why| (*address, why))
        };
        match resolved.iter().find_map(denied) {
            Some((address, why)) => Err(Denial::private_address(asked(), address, why)),
            None => Ok(self.pinned(resolved)),
        }
    }

    fn pinned(self, resolved: &[IpAddr]) -> Pinned {
        let port = self.port.get();
        let addresses = resolved.iter().map(|address| SocketAddr::new(*address, port)).collect();
        Pinned { permit: self, addresses }
    }

    /// Judges every address the name resolved to. `own` holds the addresses of this machine's
    /// interfaces, public ones included.
    pub fn pin(self, resolved: &[IpAddr], own: &[IpAddr]) -> Result<Pinned, Denial> {
        self.pin_behind_nat64(resolved, own, &[])
    }

    /// [`Permit::pin`] on a site whose IPv6 network translates to IPv4 under `prefixes`.
    pub fn pin_behind_nat64(
        self,
        resolved: &[IpAddr],
        own: &[IpAddr],
        prefixes: &[Nat64Prefix],
    ) -> Result<Pinned, Denial> {
        let asked = || format!("{}:{}", self.host, self.port);
        if resolved.is_empty() {
            return Err(Denial::dns_failed(&asked()));
        }
        if resolved.len() > MAX_ADDRESSES {
            return Err(Denial::too_many_addresses(asked(), MAX_ADDRESSES));
        }
        if let Some(address) = resolved.iter().find(|address| is_own(translated(**address, prefixes), own)) {
            return Err(Denial::self_address(asked(), *address).despite(&self.basis));
        }
        let denied = |address: &IpAddr| reason(translated(*address, prefixes)).map(|why| (*address, why));
        let denial = match resolved.iter().find_map(denied) {
            Some((address, why)) if resolved.iter().all(|address| denied(address).is_some()) => {
                Denial::private_address(asked(), address, why)
            }
            Some((address, why)) => Denial::mixed_addresses(asked(), address, why),
            None => return Ok(self.pinned(resolved)),
        };
        Err(denial.despite(&self.basis))
    }
}

impl Pinned {
    /// Where nobody knows what an IPv6 address of this site leads to: the others, which must be there.
    pub fn over_ipv4(self) -> Result<Self, Denial> {
        let addresses: Vec<SocketAddr> = self.addresses.into_iter().filter(SocketAddr::is_ipv4).collect();
        if addresses.is_empty() {
            return Err(Denial::dns_failed(&format_args!("{}:{}", self.permit.host, self.permit.port)));
        }
        Ok(Self { permit: self.permit, addresses })
    }

    pub fn permit(&self) -> &Permit {
        &self.permit
    }

    /// The addresses to dial, in the resolver's order.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

fn reason(address: IpAddr) -> Option<AddressReason> {
    match classify(address) {
        AddressClass::Public => None,
        AddressClass::Denied(reason) => Some(reason),
    }
}

/// Addresses an operator's own services have.
fn is_of_a_network(reason: AddressReason) -> bool {
    [AddressReason::Private, AddressReason::UniqueLocal, AddressReason::SharedCgnat, AddressReason::Loopback]
        .contains(&reason)
}

/// Dual-stack sockets report IPv4 peers in mapped form, so both sides are compared unmapped.
fn is_own(address: IpAddr, own: &[IpAddr]) -> bool {
    own.iter().any(|mine| mine.to_canonical() == address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operators_own_upstream_may_be_private_but_never_metadata() {
        let pin = |addresses: &[&str]| {
            let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
            let permit = Permit::for_model(HostName::parse("model.acme.com").unwrap(), Port::HTTPS);
            permit
                .pin_private(&addresses)
                .map(|pinned| pinned.addresses().len())
                .map_err(|denial| denial.code())
        };
        use crate::egress::DenialCode::{DnsFailed, PrivateAddress};
        assert_eq!(pin(&["10.0.0.5", "127.0.0.1", "fd00::1", "8.8.8.8"]), Ok(4));
        for wrong in ["169.254.169.254", "100.100.100.200", "224.0.0.1", "0.0.0.0", "fe80::1"] {
            assert_eq!(pin(&["10.0.0.5", wrong]), Err(PrivateAddress), "{wrong}");
        }
        assert_eq!(pin(&[]), Err(DnsFailed));
    }

    #[test]
    fn c57_where_translation_is_not_known_no_ipv6_address_is_dialled() {
        let pinned = |addresses: &[&str]| {
            let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
            let permit = Permit::for_model(HostName::parse("h.com").unwrap(), Port::HTTPS);
            let pinned = permit.pin(&addresses, &[]).unwrap().over_ipv4();
            pinned.map(|pinned| pinned.addresses().to_vec()).map_err(|denial| denial.code())
        };
        let ipv4: SocketAddr = "93.184.220.9:443".parse().unwrap();
        assert_eq!(pinned(&["2606:2800::1", "93.184.220.9"]), Ok(vec![ipv4]));
        assert_eq!(pinned(&["2606:2800::1"]), Err(crate::egress::DenialCode::DnsFailed));
    }

    #[test]
    fn c92_a_refused_address_is_known_with_the_rule_that_led_to_it_and_not_told_to_the_job() {
        use crate::egress::{Allowlist, Destination, decide};
        let rule = HostRule::parse_config("*.acme.com").unwrap();
        let list = Allowlist::new([rule.clone()], []);
        let own: IpAddr = "93.184.220.1".parse().unwrap();
        for addresses in [&["10.0.0.5"][..], &["93.184.220.9", "10.0.0.5"], &["93.184.220.9", "93.184.220.1"]]
        {
            let permit = decide(&list, &Destination::parse("a.acme.com:443").unwrap()).unwrap();
            let resolved: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
            let denial = permit.pin(&resolved, &[own]).unwrap_err();
            assert_eq!((denial.address(), denial.rule()), (resolved.last().copied(), Some(&rule)));
            assert!(!denial.reason_phrase().contains(addresses.last().unwrap()), "{denial}");
        }
    }
}
