//! The first bytes of a tunnel: a TLS hello that names its host, as short as one can be. What follows is the bench's own.

use std::io::{Read, Result};

const HEADER: usize = 5;

/// A hello for `name`, in one record.
pub(crate) fn of(name: &str) -> Vec<u8> {
    let entry = [&[0], &length(name.len())[..], name.as_bytes()].concat();
    let list = [&length(entry.len())[..], &entry].concat();
    let names = [&[0, 0], &length(list.len())[..], &list].concat();
    let versions = [0, 43, 0, 3, 2, 3, 4];
    let extensions = [&names[..], &versions].concat();
    let fixed = [&[3, 3], &[7; 32][..], &[0], &[0, 2, 0x13, 1], &[1, 0]].concat();
    let body = [&fixed[..], &length(extensions.len()), &extensions].concat();
    let message = [&[1, 0], &length(body.len())[..], &body].concat();
    [&[22, 3, 1], &length(message.len())[..], &message].concat()
}

/// Reads one hello to its end and no further.
pub(crate) fn take(from: &mut impl Read) -> Result<()> {
    let mut header = [0; HEADER];
    from.read_exact(&mut header)?;
    let [_, _, _, high, low] = header;
    from.read_exact(&mut vec![0; u16::from_be_bytes([high, low]).into()])
}

/// No part of a hello this short needs more than two bytes for its length.
fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes()
}
