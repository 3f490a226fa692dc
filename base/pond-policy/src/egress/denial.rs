//! A refusal that explains itself: a stable code, the rule or host it is about and the smallest
//! change that would help. It is shown to tools as an HTTP reason phrase, so it holds one line of
//! printable ASCII whatever the job sent.

use core::net::IpAddr;
use std::fmt;
use std::sync::Arc;

use crate::quote::quote;

use super::address::AddressReason;
use super::destination::{Destination, DestinationFault, Host};
use super::name::HostName;
use super::pattern::HostRule;
use super::permit::Basis;

const LONGEST_PHRASE: usize = 400;
/// A name of 253 bytes, a colon and a port.
const LONGEST_TARGET: usize = 259;
/// A hint that begins with it is what would allow the destination.
const ALLOW_FLAG: &str = "--allow-host";

named_enum! {
    /// Why a destination is refused; stable, part of the audit log.
    pub enum DenialCode {
        HostMalformed => "host_malformed",
        HttpsOnly => "https_only",
        IpLiteral => "ip_literal",
        SpecialName => "special_name",
        DeniedByRule => "denied_by_rule",
        HostNotAllowed => "host_not_allowed",
        PortNotAllowed => "port_not_allowed",
        SelfAddress => "self_address",
        PrivateAddress => "private_address",
        MixedAddresses => "mixed_addresses",
        TooManyAddresses => "too_many_addresses",
        DnsFailed => "dns_failed",
        RequestMalformed => "request_malformed",
        MethodNotAllowed => "method_not_allowed",
        VersionUnsupported => "version_unsupported",
        HeadTooLarge => "head_too_large",
        HeadTimeout => "head_timeout",
        TlsExpected => "tls_expected",
        TlsTooOld => "tls_too_old",
        HelloTooLarge => "hello_too_large",
        HelloTimeout => "hello_timeout",
        SniMissing => "sni_missing",
        SniMismatch => "sni_mismatch",
        TooManyTunnels => "too_many_tunnels",
        TooManyNames => "too_many_names",
        BytesSpent => "bytes_spent",
        TunnelBytes => "tunnel_bytes",
        TunnelLifetime => "tunnel_lifetime",
        DialFailed => "dial_failed",
        DialTimeout => "dial_timeout",
        ClientLeft => "client_left",
        GitOnly => "git_only",
        GitRedirect => "git_redirect",
        GitCredentialRefused => "git_credential_refused",
    }
}

impl DenialCode {
    /// The HTTP status a proxy answers with: 403 is policy, 400 nonsense, 429 a cap that frees itself, 502 and 504 a
    /// failure on the far side. A cap that never frees itself is 403, so that no client keeps trying.
    pub const fn status(self) -> u16 {
        match self {
            Self::HostMalformed | Self::RequestMalformed => 400,
            Self::MethodNotAllowed => 405,
            Self::HeadTimeout | Self::HelloTimeout => 408,
            Self::TooManyTunnels => 429,
            Self::HeadTooLarge | Self::HelloTooLarge => 431,
            Self::TooManyAddresses | Self::DnsFailed | Self::DialFailed => 502,
            Self::DialTimeout => 504,
            // Nobody is left to read it.
            Self::ClientLeft => 499,
            Self::VersionUnsupported => 505,
            Self::HttpsOnly
            | Self::IpLiteral
            | Self::SpecialName
            | Self::DeniedByRule
            | Self::HostNotAllowed
            | Self::PortNotAllowed
            | Self::SelfAddress
            | Self::PrivateAddress
            | Self::MixedAddresses
            | Self::TlsExpected
            | Self::TlsTooOld
            | Self::SniMissing
            | Self::SniMismatch
            | Self::TooManyNames
            | Self::BytesSpent
            | Self::TunnelBytes
            | Self::TunnelLifetime
            | Self::GitOnly
            | Self::GitRedirect
            | Self::GitCredentialRefused => 403,
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Self::HostMalformed => "host malformed",
            Self::HttpsOnly => "https only",
            Self::IpLiteral => "ip addresses are not allowed",
            Self::SpecialName => "special-use name",
            Self::DeniedByRule => "host denied by rule",
            Self::HostNotAllowed => "host not allowed",
            Self::PortNotAllowed => "port not allowed",
            Self::SelfAddress => "this machine's own address",
            Self::PrivateAddress => "host resolves to a private address",
            Self::MixedAddresses => "host resolves to public and private addresses",
            Self::TooManyAddresses => "host resolves to too many addresses",
            Self::DnsFailed => "host did not resolve",
            Self::RequestMalformed => "request malformed",
            Self::MethodNotAllowed => "method not allowed",
            Self::VersionUnsupported => "http version not supported",
            Self::HeadTooLarge => "request head too large",
            Self::HeadTimeout => "request head too slow",
            Self::TlsExpected => "tls expected",
            Self::TlsTooOld => "tls version too old",
            Self::HelloTooLarge => "tls hello too large",
            Self::HelloTimeout => "no tls hello in time",
            Self::SniMissing => "tls hello names no host",
            Self::SniMismatch => "tls hello names another host",
            Self::TooManyTunnels => "too many open tunnels",
            Self::TooManyNames => "too many names under one wildcard",
            Self::BytesSpent => "byte budget spent",
            Self::TunnelBytes => "connection moved all it may",
            Self::TunnelLifetime => "connection too old",
            Self::DialFailed => "host could not be reached",
            Self::DialTimeout => "host did not answer in time",
            Self::ClientLeft => "client left",
            Self::GitOnly => "only git passes here",
            Self::GitRedirect => "host redirected git elsewhere",
            Self::GitCredentialRefused => "host refused the credential",
        }
    }
}

/// One refused destination. Every text in it is safe to print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    code: DenialCode,
    rule: Option<Arc<HostRule>>,
    /// Where the host led; for the record alone, never for the job.
    address: Option<IpAddr>,
    host: String,
    hint: String,
}

impl Denial {
    /// The target of a request was not a destination at all.
    pub fn malformed(target: &str, fault: DestinationFault) -> Self {
        Self::new(DenialCode::HostMalformed, quote(target), fault.to_string())
    }

    /// A request in clear text, whatever its target.
    pub fn https_only(target: &str) -> Self {
        let hint = "use an https URL; clear-text requests are never forwarded".to_owned();
        Self::new(DenialCode::HttpsOnly, quote(target), hint)
    }

    /// The resolver said that there is no such name, or that it has no address.
    pub fn dns_failed(host: &impl fmt::Display) -> Self {
        let hint = "check the spelling of the name".to_owned();
        Self::new(DenialCode::DnsFailed, host.to_string(), hint)
    }

    /// No resolver answered, or none of use.
    pub fn dns_silent(host: &impl fmt::Display) -> Self {
        let hint =
            "no name server answered: look at the machine's resolvers, or set POND_RESOLVER".to_owned();
        Self::new(DenialCode::DnsFailed, host.to_string(), hint)
    }

    /// What a door of the gateway refuses by itself. `code` says what, `hint` what would help; `target` may be hostile
    /// text.
    pub fn at_door(code: DenialCode, target: &str, hint: impl Into<String>) -> Self {
        Self::new(code, shown(target), hint.into())
    }

    /// The destination is pond's own proxy or broker, or something else on the job's loopback.
    pub fn own_door(target: &str) -> Self {
        let hint = "call loopback services directly, without the proxy".to_owned();
        Self::new(DenialCode::SelfAddress, shown(target), hint)
    }

    pub(super) fn ip_literal(destination: &Destination) -> Self {
        let hint = "use the host's name; rules never match addresses".to_owned();
        Self::new(DenialCode::IpLiteral, destination.to_string(), hint)
    }

    pub(super) fn special_name(destination: &Destination) -> Self {
        let hint = "private and special-use names are never looked up".to_owned();
        Self::new(DenialCode::SpecialName, destination.to_string(), hint)
    }

    pub(super) fn denied_by(rule: &Arc<HostRule>, destination: &Destination) -> Self {
        let hint = format!("remove the deny rule {rule}");
        let denial = Self::new(DenialCode::DeniedByRule, destination.to_string(), hint);
        Self { rule: Some(Arc::clone(rule)), ..denial }
    }

    pub(super) fn host_not_allowed(destination: &Destination) -> Self {
        Self::new(DenialCode::HostNotAllowed, destination.to_string(), allow_hint(destination))
    }

    /// Whatever the posture, a job brings no key of its own to a model.
    pub(super) fn model_api(api: &str, destination: &Destination) -> Self {
        let hint = format!("{api} is a model API; the broker is its only door: pond run --model");
        Self::new(DenialCode::HostNotAllowed, destination.to_string(), hint)
    }

    pub(super) fn port_not_allowed(rule: Option<&Arc<HostRule>>, destination: &Destination) -> Self {
        let hint = match rule {
            Some(_) => allow_hint(destination),
            None => "this port is closed whatever the host".to_owned(),
        };
        let denial = Self::new(DenialCode::PortNotAllowed, destination.to_string(), hint);
        Self { rule: rule.map(Arc::clone), ..denial }
    }

    pub fn self_address(host: String, address: IpAddr) -> Self {
        let hint = "a job never reaches the machine it runs on".to_owned();
        Self::new(DenialCode::SelfAddress, host, hint).at(address)
    }

    pub(super) fn private_address(host: String, address: IpAddr, reason: AddressReason) -> Self {
        let hint = format!("the address is {reason}; only public hosts can be reached");
        Self::new(DenialCode::PrivateAddress, host, hint).at(address)
    }

    pub(super) fn mixed_addresses(host: String, address: IpAddr, reason: AddressReason) -> Self {
        let hint = format!("one of its addresses is {reason}; fix the host's DNS records");
        Self::new(DenialCode::MixedAddresses, host, hint).at(address)
    }

    pub(super) fn too_many_addresses(host: String, limit: usize) -> Self {
        let hint = format!("at most {limit} addresses are checked");
        Self::new(DenialCode::TooManyAddresses, host, hint)
    }

    fn new(code: DenialCode, host: String, hint: String) -> Self {
        Self { code, rule: None, address: None, host, hint }
    }

    fn at(self, address: IpAddr) -> Self {
        Self { address: Some(address), ..self }
    }

    /// A refusal of what a rule had let through so far.
    #[must_use]
    pub fn despite(self, basis: &Basis) -> Self {
        match basis {
            Basis::Rule(rule) => Self { rule: Some(Arc::clone(rule)), ..self },
            Basis::Internet | Basis::Model => self,
        }
    }

    /// The same refusal of a name that was only asked for, whatever the port it is wanted for.
    #[must_use]
    pub fn of_name(self, name: &HostName) -> Self {
        let hint = match self.hint.starts_with(ALLOW_FLAG) {
            true => format!("{}, for HTTPS: ssh and other protocols are not carried", self.hint),
            false => self.hint,
        };
        Self { host: name.to_string(), hint, ..self }
    }

    pub fn code(&self) -> DenialCode {
        self.code
    }

    /// The rule that refused, or that matched the host before something else about it was refused.
    pub fn rule(&self) -> Option<&HostRule> {
        self.rule.as_deref()
    }

    /// The address that was refused.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// What was asked for; a target that did not parse is quoted and escaped.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn hint(&self) -> &str {
        &self.hint
    }

    /// The text for an HTTP status line: `pond: …`, one line of printable ASCII, bounded.
    pub fn reason_phrase(&self) -> String {
        let line = format!("pond: {self}");
        line.chars().filter(|c| (' '..='~').contains(c)).take(LONGEST_PHRASE).collect()
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.code.message(), self.host, self.hint)
    }
}

/// A destination as it is, anything else quoted and escaped.
fn shown(target: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:[]".contains(&byte);
    if target.len() <= LONGEST_TARGET && target.bytes().all(plain) {
        target.to_owned()
    } else {
        quote(target)
    }
}

/// The rule that would allow exactly this destination, or why there can be none.
fn allow_hint(destination: &Destination) -> String {
    let wanted = match &destination.host {
        Host::Name(name) if destination.port == super::Port::HTTPS => name.to_string(),
        Host::Name(_) | Host::Literal(_) => destination.to_string(),
    };
    match HostRule::parse_config(&wanted) {
        Ok(rule) => format!("{ALLOW_FLAG} {rule}"),
        Err(fault) => fault.to_string(),
    }
}
