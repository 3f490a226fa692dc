//! Where a request's body ends, if the head says so in exactly one way.

use thiserror::Error;

use super::head::{RequestHead, Version};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// The head names no body.
    Empty,
    Length(u64),
    Chunked,
}

/// A head from which two readers could find two different ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FramingFault {
    #[error("Content-Length and Transfer-Encoding are both given")]
    Both,
    #[error("a length is given twice")]
    Repeated,
    #[error("Content-Length is not a plain number")]
    Length,
    #[error("Transfer-Encoding is not `chunked`")]
    Encoding,
}

pub fn framing(head: &RequestHead) -> Result<Framing, FramingFault> {
    let length = head.headers.one("content-length").map_err(|_| FramingFault::Repeated)?;
    let encoding = head.headers.one("transfer-encoding").map_err(|_| FramingFault::Repeated)?;
    match (length, encoding) {
        (None, None) => Ok(Framing::Empty),
        (Some(_), Some(_)) => Err(FramingFault::Both),
        (Some(digits), None) => plain_number(digits).map(Framing::Length).ok_or(FramingFault::Length),
        // A 1.0 client does not know what a chunk is.
        (None, Some(b"chunked")) if head.version == Version::Http11 => Ok(Framing::Chunked),
        (None, Some(_)) => Err(FramingFault::Encoding),
    }
}

/// Digits and nothing else: no sign, no list, no space.
fn plain_number(digits: &[u8]) -> Option<u64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}
