//! The job's only name server, as a pure function from a query to an answer. Trust zone: every byte is the job's.
//!
//! Invariants: nothing here asks anybody else; an answer holds the one address it was told
//! to hold or none; no record type but A carries anything. Written by hand because the whole of what we accept, one
//! question and perhaps an EDNS record, is shorter than the policing of a general decoder would be.

use std::net::Ipv4Addr;

use pond_policy::egress::{HostName, NameFault};
use thiserror::Error;

use crate::bytes::Reader;

/// What a client may cache; short, because rules may change while the job runs.
const TTL_SECONDS: u32 = 5;
const HEADER: usize = 12;
/// Longest query without EDNS, and with it.
const MAX_PLAIN: usize = 512;
const MAX_EXTENDED: usize = 1232;
const MAX_NAME: usize = 255;
const UDP_PAYLOAD: u16 = 1232;

const RESPONSE: u16 = 0x8000;
const OPCODE: u16 = 0x7800;
const AUTHORITATIVE: u16 = 0x0400;
const RECURSION_DESIRED: u16 = 0x0100;
const RECURSION_AVAILABLE: u16 = 0x0080;

const TYPE_A: u16 = 1;
const TYPE_OPT: u16 = 41;
const CLASS_IN: u16 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Code {
    NoError,
    Malformed,
    NoSuchName,
    NotImplemented,
    Refused,
    /// Its upper bits are in the EDNS record.
    BadVersion,
}

impl Code {
    const fn bits(self) -> u16 {
        match self {
            Self::NoError | Self::BadVersion => 0,
            Self::Malformed => 1,
            Self::NoSuchName => 3,
            Self::NotImplemented => 4,
            Self::Refused => 5,
        }
    }
}

/// What to do with a packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// Not a query; an answer could start a loop.
    Drop,
    /// A query that gets no verdict, why, and what it is told.
    Answer(QueryFault, Vec<u8>),
    Ask(Question<'a>),
}

/// Why a query is not one about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum QueryFault {
    #[error("the query is not one well-formed question")]
    Malformed,
    #[error("the message is no query; nothing can be changed or transferred here")]
    Opcode,
    #[error("only questions of the class IN are answered")]
    Class,
    #[error("this version of EDNS is not spoken here; 0 is")]
    Version,
}

impl QueryFault {
    const fn answer(self) -> Code {
        match self {
            Self::Malformed => Code::Malformed,
            Self::Opcode => Code::NotImplemented,
            Self::Class => Code::Refused,
            Self::Version => Code::BadVersion,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EdnsVersion(u8);

/// A well-formed question about one name.
#[derive(Debug, PartialEq, Eq)]
pub struct Question<'a> {
    id: u16,
    flags: u16,
    /// The question section as it was sent, letter case included: some clients check that it comes back unchanged.
    section: &'a [u8],
    kind: u16,
    edns: Option<EdnsVersion>,
    name: Result<HostName, NameFault>,
}

/// Reads one packet.
pub fn receive(packet: &[u8]) -> Received<'_> {
    let mut reader = Reader::new(packet);
    let (Some(id), Some(flags)) = (reader.u16(), reader.u16()) else { return Received::Drop };
    if packet.len() < HEADER || flags & RESPONSE != 0 {
        return Received::Drop;
    }
    let bare = |fault: QueryFault| {
        Received::Answer(fault, message(id, flags, fault.answer(), &[], &[], fault == QueryFault::Version))
    };
    if flags & OPCODE != 0 {
        return bare(QueryFault::Opcode);
    }
    let Some((question, class)) = question(reader, id, flags) else { return bare(QueryFault::Malformed) };
    let longest = if question.edns.is_some() { MAX_EXTENDED } else { MAX_PLAIN };
    match question.edns {
        _ if packet.len() > longest => bare(QueryFault::Malformed),
        _ if class != CLASS_IN => bare(QueryFault::Class),
        Some(EdnsVersion(1..)) => bare(QueryFault::Version),
        Some(EdnsVersion(0)) | None => Received::Ask(question),
    }
}

impl Question<'_> {
    pub fn name(&self) -> Result<&HostName, NameFault> {
        self.name.as_ref().map_err(|fault| *fault)
    }

    /// The packet that says this name has this address, and no record of any other type.
    pub fn found(&self, address: Ipv4Addr) -> Vec<u8> {
        let answer = if self.kind == TYPE_A { record(address) } else { Vec::new() };
        self.reply(Code::NoError, &answer)
    }

    pub fn unknown(&self) -> Vec<u8> {
        self.reply(Code::NoSuchName, &[])
    }

    fn reply(&self, code: Code, answer: &[u8]) -> Vec<u8> {
        message(self.id, self.flags, code, self.section, answer, self.edns.is_some())
    }
}

/// The one question of a query and its class.
fn question(mut reader: Reader<'_>, id: u16, flags: u16) -> Option<(Question<'_>, u16)> {
    let counts = [reader.u16()?, reader.u16()?, reader.u16()?, reader.u16()?];
    let has_edns = match counts {
        [1, 0, 0, 0] => false,
        [1, 0, 0, 1] => true,
        _ => return None,
    };
    let start = reader.rest();
    let name = name(&mut reader)?;
    let kind = reader.u16()?;
    let class = reader.u16()?;
    let section = start.get(..start.len() - reader.rest().len())?;
    let edns = if has_edns { Some(read_edns(&mut reader)?) } else { None };
    let name = HostName::parse(&name);
    reader.is_empty().then_some((Question { id, flags, section, kind, edns, name }, class))
}

/// The labels of a name, joined by dots. A query has no earlier name to point back to, so no pointer is followed.
fn name(reader: &mut Reader<'_>) -> Option<Vec<u8>> {
    let mut name = Vec::new();
    loop {
        let label = match reader.u8()? {
            0 => return Some(name),
            length @ 1..=63 => reader.take(length.into())?,
            _ => return None,
        };
        // A dot inside a label would read as two labels once they are joined.
        if label.contains(&b'.') {
            name.push(0);
        }
        name.extend_from_slice(label);
        name.push(b'.');
        if name.len() > MAX_NAME {
            return None;
        }
    }
}

fn read_edns(reader: &mut Reader<'_>) -> Option<EdnsVersion> {
    let root = reader.u8()?;
    let kind = reader.u16()?;
    let _payload_size = reader.u16()?;
    let _extended_code = reader.u8()?;
    let version = EdnsVersion(reader.u8()?);
    let _flags = reader.u16()?;
    let _options = reader.vec16()?;
    (root == 0 && kind == TYPE_OPT).then_some(version)
}

fn record(address: Ipv4Addr) -> Vec<u8> {
    // The name is a pointer to the question's, which always follows the header.
    let mut record = vec![0xC0, 0x0C];
    record.extend(TYPE_A.to_be_bytes());
    record.extend(CLASS_IN.to_be_bytes());
    record.extend(TTL_SECONDS.to_be_bytes());
    record.extend(4_u16.to_be_bytes());
    record.extend(address.octets());
    record
}

fn message(id: u16, asked: u16, code: Code, section: &[u8], answer: &[u8], edns: bool) -> Vec<u8> {
    let kept = asked & (OPCODE | RECURSION_DESIRED);
    let flags = RESPONSE | AUTHORITATIVE | RECURSION_AVAILABLE | kept | code.bits();
    let counts = [!section.is_empty(), !answer.is_empty(), false, edns].map(u16::from);
    let mut out = Vec::with_capacity(HEADER + section.len() + answer.len() + 11);
    out.extend(id.to_be_bytes());
    out.extend(flags.to_be_bytes());
    out.extend(counts.into_iter().flat_map(u16::to_be_bytes));
    out.extend_from_slice(section);
    out.extend_from_slice(answer);
    if edns {
        out.push(0);
        out.extend(TYPE_OPT.to_be_bytes());
        out.extend(UDP_PAYLOAD.to_be_bytes());
        out.push(u8::from(code == Code::BadVersion));
        out.extend([0; 5]);
    }
    out
}

#[cfg(test)]
mod tests;
