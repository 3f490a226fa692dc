//! Requests to the kernel's network configuration as bytes, and its answers. Every request asks to be acknowledged, and a
//! request that is not granted is the error it was refused with.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

const HEADER: usize = 16;
const ERROR: u16 = 2;
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
const NESTED: u16 = 0x8000;

/// One message under construction.
#[derive(Debug)]
pub(crate) struct Message {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Message {
    /// Makes something that must not exist yet.
    pub(crate) fn creating(kind: u16, head: &[u8]) -> Self {
        Self { kind, flags: REQUEST | ACKNOWLEDGE | CREATE | EXCLUSIVE, body: head.to_vec() }
    }

    /// The start or the end of a batch, which nobody acknowledges.
    pub(crate) fn bracket(kind: u16, head: &[u8]) -> Self {
        Self { kind, flags: REQUEST, body: head.to_vec() }
    }

    pub(crate) fn with(mut self, attribute: &[u8]) -> Self {
        self.body.extend_from_slice(attribute);
        self
    }

    fn encode(&self, number: u32) -> Vec<u8> {
        let length = u32::try_from(HEADER + self.body.len()).unwrap_or(u32::MAX);
        let mut out = length.to_ne_bytes().to_vec();
        out.extend(self.kind.to_ne_bytes());
        out.extend(self.flags.to_ne_bytes());
        out.extend(number.to_ne_bytes());
        out.extend([0; 4]);
        out.extend_from_slice(&self.body);
        out
    }
}

pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    let mut out = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// A name, with the NUL the kernel expects.
pub(crate) fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}

pub(crate) fn nested(kind: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | NESTED, &attributes.concat())
}

/// Sends all messages at once and waits until the kernel has granted each that asks to be acknowledged.
pub(crate) fn ask(protocol: Option<Protocol>, messages: &[Message]) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
    let packet: Vec<u8> =
        messages.iter().zip(1..).flat_map(|(message, number)| message.encode(number)).collect();
    if rustix::net::send(&socket, &packet, SendFlags::empty())? != packet.len() {
        return Err(Errno::MSGSIZE);
    }
    let awaited = messages.iter().filter(|message| message.flags & ACKNOWLEDGE != 0).count();
    let mut granted = 0;
    while granted < awaited {
        granted += grants(&socket)?;
    }
    Ok(())
}

/// Reads one packet of answers: how many requests it grants, or why one is refused.
fn grants(socket: &OwnedFd) -> Result<usize, Errno> {
    let mut packet = [0; 4096];
    let (length, _) = rustix::net::recv(socket, &mut packet, RecvFlags::empty())?;
    let mut rest = packet.get(..length).ok_or(Errno::MSGSIZE)?;
    let mut granted = 0;
    while !rest.is_empty() {
        let (size, errno) = answer(rest).ok_or(Errno::PROTO)?;
        match errno {
            0 => granted += 1,
            refused => return Err(Errno::from_raw_os_error(refused.saturating_neg())),
        }
        rest = rest.get(size.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(granted)
}

/// The size of the first answer and its error number, zero for none.
fn answer(bytes: &[u8]) -> Option<(usize, i32)> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (kind, _) = rest.split_first_chunk()?;
    let (errno, _) = bytes.get(HEADER..)?.split_first_chunk()?;
    let length = usize::try_from(u32::from_ne_bytes(*length)).ok()?;
    let known = u16::from_ne_bytes(*kind) == ERROR && (HEADER..=bytes.len()).contains(&length);
    known.then_some((length, i32::from_ne_bytes(*errno)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_say_their_length_without_it() {
        assert_eq!(attribute(7, &[1]), [5, 0, 7, 0, 1, 0, 0, 0]);
        assert_eq!(nested(1, &[text(2, "abc")]), [12, 0, 1, 0x80, 8, 0, 2, 0, b'a', b'b', b'c', 0]);
    }

    #[test]
    fn an_answer_that_is_none_is_refused() {
        let header = |length: u32, kind: u16| {
            [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], &(-2_i32).to_ne_bytes()].concat()
        };
        assert_eq!(answer(&header(20, ERROR)), Some((20, -2)));
        assert_eq!(answer(&header(20, 3)), None);
        assert_eq!(answer(&header(2000, ERROR)), None);
        assert_eq!(answer(&header(3, ERROR)), None);
        assert_eq!(answer(&[1, 2, 3]), None);
    }

    /// Both may be asked by anybody: a message without a meaning is granted, and this interface is not there.
    #[test]
    fn a_request_that_is_refused_is_its_error() {
        let asked = |kind, body: &[u8]| Message { kind, flags: REQUEST | ACKNOWLEDGE, body: body.to_vec() };
        let granted = || asked(1, &[]);
        let refused = || asked(18, &[&[0; 4], &i32::MAX.to_ne_bytes()[..], &[0; 8]].concat());
        assert_eq!(ask(None, &[granted()]), Ok(()));
        assert_eq!(ask(None, &[granted(), granted()]), Ok(()));
        for messages in [vec![refused()], vec![granted(), refused()], vec![refused(), granted()]] {
            assert_eq!(ask(None, &messages), Err(Errno::NODEV), "{messages:?}");
        }
    }
}
