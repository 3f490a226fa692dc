//! Host rules as people write them: in a stage's `allow_hosts`, on the command line, in an
//! operator's list. Strict on purpose: one spelling is accepted, and a fault prints it, so that a
//! rule read in a review is the rule that acts. A rule is a capability: whatever would hand out a
//! model API, a service open to every tenant, or an address is refused here, before it can be stored.

use psl::Psl;
use thiserror::Error;

use crate::quote::quote;

use super::catalogue::{self, Listing, SharedKind};
use super::destination::{Port, PortFault};
use super::name::{HostName, NameFault};
use super::pattern::{HostPattern, HostRule};
use super::respell::respell;

/// Why a host rule is refused. `given` is already safe to print.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HostFault {
    #[error("{given} is not a host rule: {cause}")]
    Spelling { given: String, cause: SpellingFault, accepted: Option<String> },
    #[error("{given} would allow every host")]
    AnyHost { given: String },
    #[error("{given} has a `*` that is not the whole first label")]
    WildcardPlace { given: String, accepted: Option<String> },
    #[error("{given} covers the public suffix `{suffix}`, where anyone may register a name")]
    PublicSuffix { given: String, suffix: String },
    #[error("{given} is an IP address; rules name hosts")]
    IpLiteral { given: String },
    #[error("{given} is a single label; only a private resolver could answer it")]
    SingleLabel { given: String },
    #[error("{given} is a special-use name that never leaves a private network")]
    SpecialUse { given: String },
    #[error("{given} reaches the model API {api}; the broker is its only door")]
    ModelApi { given: String, api: &'static str },
    #[error("{given} reaches {host}, {kind}")]
    Shared { given: String, host: String, kind: SharedKind },
}

/// What is wrong with the way a rule is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SpellingFault {
    #[error("it starts with a scheme")]
    Scheme,
    #[error("it holds a path")]
    Path,
    #[error("it holds white space")]
    Space,
    #[error("it holds upper-case letters")]
    UpperCase,
    #[error("it ends with a dot")]
    TrailingDot,
    #[error("it holds letters outside ASCII; write the `xn--` form")]
    Unicode,
    #[error(transparent)]
    Name(NameFault),
    #[error(transparent)]
    Port(PortFault),
}

named_enum! {
    /// The stable code of a [`HostFault`].
    pub enum HostFaultCode {
        HostInvalid => "host_invalid",
        HostReserved => "host_reserved",
        HostShared => "host_shared",
    }
}

impl HostFault {
    pub fn code(&self) -> HostFaultCode {
        match self {
            Self::ModelApi { .. } => HostFaultCode::HostReserved,
            Self::Shared { .. } => HostFaultCode::HostShared,
            Self::Spelling { .. }
            | Self::AnyHost { .. }
            | Self::WildcardPlace { .. }
            | Self::PublicSuffix { .. }
            | Self::IpLiteral { .. }
            | Self::SingleLabel { .. }
            | Self::SpecialUse { .. } => HostFaultCode::HostInvalid,
        }
    }

    /// A spelling of the same rule that would be accepted, where there is one.
    pub fn suggestion(&self) -> Option<&str> {
        match self {
            Self::Spelling { accepted, .. } | Self::WildcardPlace { accepted, .. } => accepted.as_deref(),
            Self::AnyHost { .. }
            | Self::PublicSuffix { .. }
            | Self::IpLiteral { .. }
            | Self::SingleLabel { .. }
            | Self::SpecialUse { .. }
            | Self::ModelApi { .. }
            | Self::Shared { .. } => None,
        }
    }
}

impl HostRule {
    /// Reads a rule as configuration spells it: `name`, `*.name`, either with `:port`.
    pub fn parse_config(text: &str) -> Result<Self, HostFault> {
        read(text).map_err(|fault| with_suggestion(fault, text))
    }
}

/// The suggestion is itself parsed, so a fault never advises what would be refused next.
fn with_suggestion(mut fault: HostFault, text: &str) -> HostFault {
    if let HostFault::Spelling { accepted, .. } | HostFault::WildcardPlace { accepted, .. } = &mut fault {
        *accepted = respell(text).and_then(|better| read(&better).ok()).map(|rule| rule.to_string());
    }
    fault
}

fn read(text: &str) -> Result<HostRule, HostFault> {
    let given = || given(text);
    if matches!(text, "*" | "*." | "**" | "*:*") {
        return Err(HostFault::AnyHost { given: given() });
    }
    if is_ipv6_like(text) {
        return Err(HostFault::IpLiteral { given: given() });
    }
    let spelling = |cause| HostFault::Spelling { given: given(), cause, accepted: None };
    check_spelling(text).map_err(spelling)?;
    let (host, port) = split_port(text).map_err(|fault| spelling(SpellingFault::Port(fault)))?;
    let (base, wildcard) = host.strip_prefix("*.").map_or((host, false), |base| (base, true));
    if base.contains('*') {
        return Err(HostFault::WildcardPlace { given: given(), accepted: None });
    }
    let name = HostName::parse(base).map_err(|fault| name_fault(fault, text))?;
    let pattern = if wildcard { HostPattern::Subdomains(name) } else { HostPattern::Exact(name) };
    check_reach(&pattern, text)?;
    Ok(HostRule::new(pattern, port))
}

/// A rule as it may be repeated: what stands before an `@` is a password more often than not.
fn given(text: &str) -> String {
    text.rsplit_once('@').map_or_else(|| quote(text), |(_, host)| quote(&format!("...@{host}")))
}

fn is_ipv6_like(text: &str) -> bool {
    let bare = text.trim_start_matches("*.");
    let digits = |c: char| c.is_ascii_hexdigit() || matches!(c, ':' | '.' | '%');
    bare.starts_with('[') || (bare.matches(':').count() > 1 && bare.chars().all(digits))
}

fn check_spelling(text: &str) -> Result<(), SpellingFault> {
    let host = text.split(':').next().unwrap_or(text);
    if text.contains("://") {
        Err(SpellingFault::Scheme)
    } else if text.contains('/') {
        Err(SpellingFault::Path)
    } else if text.contains(char::is_whitespace) {
        Err(SpellingFault::Space)
    } else if !text.is_ascii() {
        Err(SpellingFault::Unicode)
    } else if text.contains(|c: char| c.is_ascii_uppercase()) {
        Err(SpellingFault::UpperCase)
    } else if host.len() > 1 && host.ends_with('.') {
        Err(SpellingFault::TrailingDot)
    } else {
        Ok(())
    }
}

fn split_port(text: &str) -> Result<(&str, Option<Port>), PortFault> {
    match text.rsplit_once(':') {
        Some((host, port)) => Ok((host, Some(Port::parse(port)?))),
        None => Ok((text, None)),
    }
}

fn name_fault(fault: NameFault, text: &str) -> HostFault {
    let given = given(text);
    if fault == NameFault::IpLike {
        return HostFault::IpLiteral { given };
    }
    HostFault::Spelling { given, cause: SpellingFault::Name(fault), accepted: None }
}

/// Refuses a well-spelled rule that would hand out more than one party's hosts.
fn check_reach(pattern: &HostPattern, text: &str) -> Result<(), HostFault> {
    let given = given(text);
    let name = pattern.name();
    if name.is_special_use() {
        return Err(HostFault::SpecialUse { given });
    }
    let suffix = public_suffix(pattern);
    match (suffix, pattern) {
        (Suffix::Registry, HostPattern::Exact(_)) if name.is_single_label() => {
            return Err(HostFault::SingleLabel { given });
        }
        (Suffix::Registry, _) => return Err(HostFault::PublicSuffix { given, suffix: name.to_string() }),
        (Suffix::Private | Suffix::No, _) => {}
    }
    match (catalogue::listing(pattern), suffix) {
        (Some(Listing::ModelApi(api)), _) => Err(HostFault::ModelApi { given, api }),
        (Some(Listing::Shared(kind, host)), _) => Err(HostFault::Shared { given, host: host.into(), kind }),
        (None, Suffix::Private) => {
            Err(HostFault::Shared { given, host: name.to_string(), kind: SharedKind::Hosting })
        }
        (None, Suffix::Registry | Suffix::No) => Ok(()),
    }
}

/// Whether the name of a pattern is one under which strangers hold names.
#[derive(Clone, Copy)]
enum Suffix {
    /// A registry sells names below it, or nobody knows who does.
    Registry,
    /// A company gives its customers names below it.
    Private,
    No,
}

fn public_suffix(pattern: &HostPattern) -> Suffix {
    let name = pattern.name().as_str();
    match (suffix_kind(name), pattern) {
        // The list holds rules such as `*.ck`: the base is no suffix, but each name below it is.
        (Suffix::No, HostPattern::Subdomains(_)) => suffix_kind(&format!("any.{name}")),
        (found, _) => found,
    }
}

fn suffix_kind(name: &str) -> Suffix {
    match psl::List.suffix(name.as_bytes()) {
        Some(suffix) if suffix.as_bytes() == name.as_bytes() => match suffix.typ() {
            Some(psl::Type::Private) => Suffix::Private,
            Some(psl::Type::Icann) | None => Suffix::Registry,
        },
        Some(_) | None => Suffix::No,
    }
}
