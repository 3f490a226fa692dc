//! A host name as a request spells it. Trust zone: the text comes from the job.
//!
//! One spelling per host: ASCII letters, digits and hyphens, folded to lower case, one trailing dot
//! dropped. Nothing is mapped, decoded or repaired; whatever is not already a name is refused with
//! its cause. Underscores are refused even in a rule: no publicly trusted certificate may carry one,
//! so over HTTPS such a name could never be reached.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use thiserror::Error;

const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// Names that never mean a host on the public internet (RFC 6761, 6762, 7686, 8375, 9476, ICANN's
/// `internal`); asking any resolver for one tells somebody about this network. `arpa` holds
/// infrastructure records, `home.arpa` among them.
const SPECIAL_USE: [&str; 9] =
    ["alt", "arpa", "example", "internal", "invalid", "local", "localhost", "onion", "test"];

/// A checked host name in its one canonical spelling. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(Arc<str>);

/// Why some text is not a host name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NameFault {
    #[error("the host is empty")]
    Empty,
    #[error("the host holds an empty label (a leading or doubled dot)")]
    EmptyLabel,
    #[error("a label is longer than {MAX_LABEL} bytes")]
    LabelTooLong,
    #[error("the name is longer than {MAX_NAME} bytes")]
    NameTooLong,
    #[error("a label starts or ends with a hyphen")]
    HyphenAtEdge,
    #[error("the host holds a NUL byte")]
    Nul,
    #[error("the host holds the control byte 0x{0:02x}")]
    Control(u8),
    #[error("the host holds a byte outside ASCII")]
    NotAscii,
    #[error("the host holds a space")]
    Space,
    #[error("the host holds `%`; names are never percent-decoded and zone ids are refused")]
    Percent,
    #[error("the host holds `@`; credentials have no place in a host")]
    UserInfo,
    #[error("the host holds `{0}`; a host is neither a URL nor a path")]
    Delimiter(char),
    #[error("the host holds `:` outside brackets")]
    Colon,
    #[error("the host holds a bracket")]
    Bracket,
    #[error("the host holds `_`, which no certificate may name")]
    Underscore,
    #[error("the host holds `{0}`")]
    Punctuation(char),
    #[error("the last label is a number, so the host is an IP address in disguise")]
    IpLike,
}

impl HostName {
    /// Reads the host exactly as a client sent it.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, NameFault> {
        let canonical = canonical(text.as_ref())?;
        if last_label_is_number(&canonical) {
            return Err(NameFault::IpLike);
        }
        Ok(Self(canonical.into()))
    }

    /// An address in the place of a name, for records. No rule is about it, because every rule is read by `parse`.
    pub(super) fn of_address(address: core::net::IpAddr) -> Self {
        Self(address.to_string().into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True for names that never mean a public host, so are never looked up.
    pub fn is_special_use(&self) -> bool {
        let top = self.0.rsplit('.').next();
        SPECIAL_USE.iter().any(|special| top == Some(special))
    }

    /// True for a bare label, which only a private resolver or a search list could answer.
    pub fn is_single_label(&self) -> bool {
        !self.0.contains('.')
    }

    /// The names above this one, nearest first: `a.b.c` gives `b.c`, then `c`.
    pub(super) fn parents(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(parent(&self.0), |name| parent(name))
    }

    /// True when this name lies below `domain`; a name is not below itself.
    pub(super) fn is_below(&self, domain: &str) -> bool {
        is_below(&self.0, domain)
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for HostName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

pub(super) fn is_below(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}

fn parent(name: &str) -> Option<&str> {
    name.split_once('.').map(|(_, rest)| rest)
}

/// The canonical spelling of anything shaped like a host name, numeric ones included.
pub(super) fn canonical(bytes: &[u8]) -> Result<String, NameFault> {
    let bytes = bytes.strip_suffix(b".").unwrap_or(bytes);
    if bytes.is_empty() {
        return Err(NameFault::Empty);
    }
    if let Some(fault) = bytes.iter().find_map(|byte| byte_fault(*byte)) {
        return Err(fault);
    }
    if bytes.len() > MAX_NAME {
        return Err(NameFault::NameTooLong);
    }
    bytes.split(|byte| *byte == b'.').try_for_each(check_label)?;
    Ok(bytes.iter().map(|byte| char::from(byte.to_ascii_lowercase())).collect())
}

fn check_label(label: &[u8]) -> Result<(), NameFault> {
    if label.is_empty() {
        return Err(NameFault::EmptyLabel);
    }
    if label.len() > MAX_LABEL {
        return Err(NameFault::LabelTooLong);
    }
    if label.starts_with(b"-") || label.ends_with(b"-") {
        return Err(NameFault::HyphenAtEdge);
    }
    Ok(())
}

fn byte_fault(byte: u8) -> Option<NameFault> {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' => None,
        0 => Some(NameFault::Nul),
        b' ' => Some(NameFault::Space),
        1..0x20 | 0x7f => Some(NameFault::Control(byte)),
        0x80.. => Some(NameFault::NotAscii),
        b'%' => Some(NameFault::Percent),
        b'@' => Some(NameFault::UserInfo),
        b'/' | b'\\' | b'#' | b'?' => Some(NameFault::Delimiter(char::from(byte))),
        b':' => Some(NameFault::Colon),
        b'[' | b']' => Some(NameFault::Bracket),
        b'_' => Some(NameFault::Underscore),
        0x21..0x7f => Some(NameFault::Punctuation(char::from(byte))),
    }
}

/// Resolvers read `2852039166`, `127.1` and `0x7f.1` as addresses, so a numeric last label, decimal
/// or hexadecimal, is never a name.
fn last_label_is_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let hex = last.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    hex || last.bytes().all(|b| b.is_ascii_digit())
}
