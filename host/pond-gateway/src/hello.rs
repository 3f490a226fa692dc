//! The first thing a TLS client says, read far enough to know whom it wants to talk to. Pure; the bytes are the job's.
//!
//! Written by hand, because a TLS library's acceptor tells less than the cases ask: whether a hello named two hosts, none or
//! an address, and whether it offers a version we accept, apart from bytes that are no hello at all. Invariants: nothing is
//! believed before the whole hello is here; what is not understood is refused; the bytes are never changed, only read.

use pond_policy::egress::{DenialCode, HostName, NameFault};
use thiserror::Error;

use crate::bytes::Reader;

/// A hello longer than this is no hello; those with post-quantum key shares take about 2 KiB.
pub const MAX_HELLO: usize = 16 << 10;
/// The same hello may come in records of one byte each; this bounds what is held of it.
pub const MAX_RAW: usize = 64 << 10;

pub(crate) const HANDSHAKE: u8 = 22;
const MAJOR_VERSION: u8 = 3;
const MAX_RECORD: usize = 16 << 10;
const CLIENT_HELLO: u8 = 1;
const MESSAGE_HEADER: usize = 4;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
const SUPPORTED_VERSIONS: u16 = 43;
const TLS_1_2: u16 = 0x0303;
const TLS_1_3: u16 = 0x0304;

/// Why a client's first bytes are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HelloFault {
    #[error("the first bytes are not a TLS handshake; only HTTPS passes, no ssh and nothing in clear text")]
    NotTls,
    #[error("the TLS hello is malformed; try another client or version of it")]
    Malformed,
    #[error("the TLS hello is larger than {MAX_HELLO} bytes; offer fewer ciphers, tickets or keys")]
    TooLarge,
    #[error("the client offers nothing newer than TLS 1.1; let it use 1.2 or 1.3")]
    TooOld,
    #[error("the TLS hello carries no server name; let the client send it (SNI), and connect to a name")]
    NoName,
    #[error("the TLS hello names more than one server; let the client name one")]
    SeveralNames,
    #[error("the server name in the TLS hello is not a host name; connect to one, not to an address")]
    BadName(#[source] NameFault),
}

impl HelloFault {
    pub fn code(self) -> DenialCode {
        match self {
            Self::NotTls | Self::Malformed => DenialCode::TlsExpected,
            Self::TooLarge => DenialCode::HelloTooLarge,
            Self::TooOld => DenialCode::TlsTooOld,
            Self::NoName => DenialCode::SniMissing,
            Self::SeveralNames | Self::BadName(_) => DenialCode::SniMismatch,
        }
    }
}

/// The host the client names, once all of its hello is here; `None` while more is needed.
pub fn read(raw: &[u8]) -> Result<Option<HostName>, HelloFault> {
    let Some(message) = reassemble(raw)? else {
        return if raw.len() < MAX_RAW { Ok(None) } else { Err(HelloFault::TooLarge) };
    };
    let facts = parse(&message).ok_or(HelloFault::Malformed)?;
    facts.judge().map(Some)
}

/// The body of the hello, out of as many records as it was cut into.
fn reassemble(raw: &[u8]) -> Result<Option<Vec<u8>>, HelloFault> {
    let mut records = Reader::new(raw);
    let mut message = Vec::new();
    while !records.is_empty() {
        let Some(fragment) = fragment(&mut records)? else { break };
        message.extend_from_slice(fragment.bytes);
        if let Some(body) = complete(&message, fragment.whole)? {
            return Ok(Some(body));
        }
        if !fragment.whole {
            break;
        }
    }
    Ok(None)
}

struct Fragment<'a> {
    bytes: &'a [u8],
    whole: bool,
}

/// The next record's part of the hello, as far as it has arrived.
fn fragment<'a>(records: &mut Reader<'a>) -> Result<Option<Fragment<'a>>, HelloFault> {
    if records.u8() != Some(HANDSHAKE) {
        return Err(HelloFault::NotTls);
    }
    match records.u8() {
        None => return Ok(None),
        Some(MAJOR_VERSION) => {}
        Some(_) => return Err(HelloFault::NotTls),
    }
    if records.u8().is_none() {
        return Ok(None);
    }
    let Some(length) = records.u16().map(usize::from) else { return Ok(None) };
    if length == 0 || length > MAX_RECORD {
        return Err(HelloFault::Malformed);
    }
    Ok(Some(match records.take(length) {
        Some(bytes) => Fragment { bytes, whole: true },
        None => Fragment { bytes: records.rest(), whole: false },
    }))
}

/// The hello's body, when `message` holds it and nothing else: another message hidden behind it would go unread.
fn complete(message: &[u8], record_ended: bool) -> Result<Option<Vec<u8>>, HelloFault> {
    let mut reader = Reader::new(message);
    match reader.u8() {
        None => return Ok(None),
        Some(CLIENT_HELLO) => {}
        Some(_) => return Err(HelloFault::NotTls),
    }
    let Some(length) = reader.u24() else { return Ok(None) };
    if length + MESSAGE_HEADER > MAX_HELLO {
        return Err(HelloFault::TooLarge);
    }
    let body = reader.rest();
    if body.len() > length {
        return Err(HelloFault::Malformed);
    }
    Ok((body.len() == length && record_ended).then(|| body.to_vec()))
}

/// What the verdict needs of a well-formed hello.
struct Facts<'a> {
    legacy_version: u16,
    versions: Option<Vec<u16>>,
    names: Option<Vec<&'a [u8]>>,
}

impl Facts<'_> {
    fn judge(self) -> Result<HostName, HelloFault> {
        let modern = |version: &u16| matches!(*version, TLS_1_2 | TLS_1_3);
        let recent = match &self.versions {
            Some(versions) => versions.iter().any(modern),
            None => self.legacy_version >= TLS_1_2,
        };
        if !recent {
            return Err(HelloFault::TooOld);
        }
        match self.names.as_deref() {
            None | Some([]) => Err(HelloFault::NoName),
            Some([name]) => HostName::parse(name).map_err(HelloFault::BadName),
            Some(_) => Err(HelloFault::SeveralNames),
        }
    }
}

fn parse(body: &[u8]) -> Option<Facts<'_>> {
    let mut reader = Reader::new(body);
    let legacy_version = reader.u16()?;
    let _random = reader.take(32)?;
    let session = reader.vec8()?;
    let suites = reader.vec16()?;
    let compressions = reader.vec8()?;
    if session.len() > 32 || suites.is_empty() || suites.len() % 2 != 0 || compressions.is_empty() {
        return None;
    }
    let mut facts = Facts { legacy_version, versions: None, names: None };
    if !reader.is_empty() {
        let extensions = reader.vec16()?;
        read_extensions(extensions, &mut facts)?;
    }
    reader.is_empty().then_some(facts)
}

fn read_extensions<'a>(extensions: &'a [u8], facts: &mut Facts<'a>) -> Option<()> {
    let mut reader = Reader::new(extensions);
    while !reader.is_empty() {
        let kind = reader.u16()?;
        let data = reader.vec16()?;
        let twice = match kind {
            SERVER_NAME => facts.names.replace(server_names(data)?).is_some(),
            SUPPORTED_VERSIONS => facts.versions.replace(versions(data)?).is_some(),
            _ => false,
        };
        if twice {
            return None;
        }
    }
    Some(())
}

/// Every entry counts as a name, whatever its kind: a server might take the one we skipped.
fn server_names(data: &[u8]) -> Option<Vec<&[u8]>> {
    let mut outer = Reader::new(data);
    let mut list = Reader::new(outer.vec16()?);
    let mut names = Vec::new();
    while !list.is_empty() {
        let kind = list.u8()?;
        let name = list.vec16()?;
        if kind != HOST_NAME {
            return None;
        }
        names.push(name);
    }
    outer.is_empty().then_some(names)
}

fn versions(data: &[u8]) -> Option<Vec<u16>> {
    let mut outer = Reader::new(data);
    let mut list = Reader::new(outer.vec8()?);
    let mut versions = Vec::new();
    while !list.is_empty() {
        versions.push(list.u16()?);
    }
    outer.is_empty().then_some(versions)
}

#[cfg(test)]
mod tests;
