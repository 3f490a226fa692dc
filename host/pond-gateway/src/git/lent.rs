//! The hosts that the order has a credential for, each with what is sent there. Zone: host. Invariant: nothing here prints a secret.

use base64ct::{Base64, Encoding};
use http::HeaderValue;
use pond_policy::egress::HostName;
use pond_wire::gateway::GitHost;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use thiserror::Error;
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

use crate::broker::{Key, KeyFault, ModelFault, tls};

#[derive(Debug, Error)]
pub(crate) enum LentFault {
    #[error("{0} is not the name of a host")]
    Host(String),
    #[error("the host's name cannot be asked for in TLS")]
    ServerName(#[source] InvalidDnsNameError),
    #[error("TLS to a host of git could not be set up")]
    Tls(#[source] ModelFault),
    #[error("the credential cannot be sent")]
    Key(#[source] KeyFault),
    #[error("a host has two credentials")]
    Twice,
}

/// One host and its credential.
pub(crate) struct Lent {
    pub(super) host: HostName,
    pub(super) server: ServerName<'static>,
    pub(super) tls: TlsConnector,
    pub(super) header: HeaderValue,
    /// What must not come back: the secret, and the form it travels in.
    pub(super) secrets: [Key; 2],
}

/// All of them.
#[derive(Default)]
pub(crate) struct Hosts(Vec<Lent>);

impl std::fmt::Debug for Hosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hosts({})", self.0.len())
    }
}

impl Hosts {
    /// `keys` are in the order of the hosts.
    pub(crate) fn new(order: &[GitHost], keys: Vec<Key>) -> Result<Self, LentFault> {
        let mut hosts = Self::default();
        for (host, key) in order.iter().zip(keys) {
            if hosts.of(&host.host).is_some() {
                return Err(LentFault::Twice);
            }
            hosts.0.push(Lent::new(host, key)?);
        }
        Ok(hosts)
    }

    pub(super) fn of(&self, host: &str) -> Option<&Lent> {
        self.0.iter().find(|lent| lent.host.as_str() == host)
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.0.iter().map(|lent| lent.host.as_str()).collect()
    }
}

impl Lent {
    fn new(order: &GitHost, key: Key) -> Result<Self, LentFault> {
        let host = HostName::parse(&order.host).map_err(|_| LentFault::Host(order.host.clone()))?;
        let server = ServerName::try_from(host.to_string()).map_err(LentFault::ServerName)?;
        let plain = Zeroizing::new([order.username.as_bytes(), b":", key.bytes()].concat());
        let encoded = Zeroizing::new(Base64::encode_string(&plain));
        let encoded_key = Key::read(&mut encoded.as_bytes()).map_err(LentFault::Key)?;
        let value = Zeroizing::new(["Basic ", encoded.as_str()].concat());
        let mut header =
            HeaderValue::from_bytes(value.as_bytes()).map_err(|_| LentFault::Key(KeyFault::NotPlain))?;
        header.set_sensitive(true);
        let tls = tls(order.ca_pem.as_deref()).map_err(LentFault::Tls)?;
        Ok(Self { host, server, tls, header, secrets: [key, encoded_key] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::read(&mut &b"ghp_0123456789abcdef"[..]).unwrap()
    }

    fn host(name: &str) -> GitHost {
        GitHost { host: name.to_owned(), username: "x-access-token".to_owned(), ca_pem: None }
    }

    #[test]
    fn a_credential_is_found_by_exactly_its_host_and_never_printed() {
        let hosts = Hosts::new(&[host("github.com")], vec![key()]).unwrap();
        assert!(hosts.of("github.com").is_some());
        for other in ["api.github.com", "GitHub.com", "github.com.", "github.co", ""] {
            assert!(hosts.of(other).is_none(), "{other}");
        }
        let lent = hosts.of("github.com").unwrap();
        assert_eq!(lent.header.as_bytes(), b"Basic eC1hY2Nlc3MtdG9rZW46Z2hwXzAxMjM0NTY3ODlhYmNkZWY=");
        assert_eq!(format!("{hosts:?} {:?}", lent.header), "Hosts(1) Sensitive");
    }

    #[test]
    fn one_host_has_one_credential() {
        let twice = Hosts::new(&[host("github.com"), host("github.com")], vec![key(), key()]);
        assert!(matches!(twice, Err(LentFault::Twice)));
    }
}
