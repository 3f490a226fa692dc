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

    /// Judges every address the name resolved to. `own` holds the addresses of this machine's
    /// interfaces, public ones included.
    pub fn pin(self, resolved: &[IpAddr], own: &[IpAddr]) -> Result<Pinned, Denial> {
        self.pin_behind_nat64(resolved, own, None)
    }

    /// [`Permit::pin`] on a site whose IPv6 network translates to IPv4 under `prefix`.
    pub fn pin_behind_nat64(
        self,
        resolved: &[IpAddr],
        own: &[IpAddr],
        prefix: Option<Nat64Prefix>,
    ) -> Result<Pinned, Denial> {
        let asked = || format!("{}:{}", self.host, self.port);
        if resolved.is_empty() {
            return Err(Denial::dns_failed(&asked()));
        }
        if resolved.len() > MAX_ADDRESSES {
            return Err(Denial::too_many_addresses(asked(), MAX_ADDRESSES));
        }
        if resolved.iter().any(|address| is_own(translated(*address, prefix), own)) {
            return Err(Denial::self_address(asked()));
        }
        let denied = |address: &IpAddr| reason(translated(*address, prefix));
        match resolved.iter().find_map(denied) {
            Some(why) if resolved.iter().all(|address| denied(address).is_some()) => {
                Err(Denial::private_address(asked(), why))
            }
            Some(why) => Err(Denial::mixed_addresses(asked(), why)),
            None => {
                let port = self.port.get();
                let addresses = resolved.iter().map(|address| SocketAddr::new(*address, port)).collect();
                Ok(Pinned { permit: self, addresses })
            }
        }
    }
}

impl Pinned {
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

/// Dual-stack sockets report IPv4 peers in mapped form, so both sides are compared unmapped.
fn is_own(address: IpAddr, own: &[IpAddr]) -> bool {
    own.iter().any(|mine| mine.to_canonical() == address.to_canonical())
}
