//! Finds where a head ends while its bytes arrive, and refuses at the first byte that makes it ambiguous: the tokenizer
//! behind this is lenient about line endings and sees a head only when it is whole. Each byte is looked at once.

use super::fault::{HeadFault, Stranger};
use super::{MAX_HEAD, MAX_HEADERS, MAX_LINE};

#[derive(Debug, Default)]
pub(super) struct Scan {
    seen: usize,
    line_start: usize,
    /// Lines completed, the request line included.
    lines: usize,
    after_cr: bool,
}

impl Scan {
    /// Looks at the bytes that are new in `buffer`; the length of the head once it is whole.
    pub(super) fn advance(&mut self, buffer: &[u8]) -> Result<Option<usize>, HeadFault> {
        if let Some(stranger) = stranger(buffer) {
            return Err(HeadFault::Stranger(stranger));
        }
        for &byte in buffer.iter().take(MAX_HEAD).skip(self.seen) {
            if self.step(byte, buffer)? {
                return Ok(Some(self.seen));
            }
        }
        if self.seen >= MAX_HEAD { Err(HeadFault::HeadTooLong) } else { Ok(None) }
    }

    /// Whether `byte` ends the head.
    fn step(&mut self, byte: u8, buffer: &[u8]) -> Result<bool, HeadFault> {
        let at = self.seen;
        self.seen += 1;
        match byte {
            b'\n' if self.after_cr => return self.end_line(at, buffer),
            b'\n' => return Err(HeadFault::LineEnding),
            _ if self.after_cr => return Err(HeadFault::LineEnding),
            b'\r' => {
                self.after_cr = true;
                return Ok(false);
            }
            b' ' | b'\t' if self.lines > 0 && at == self.line_start => return Err(HeadFault::Folded),
            b' '..=b'~' => {}
            b'\t' | 0x80.. if self.lines > 0 => {}
            0x80.. => return Err(HeadFault::NotAscii),
            0..=0x1f | 0x7f => return Err(HeadFault::ControlByte),
        }
        if self.lines == 0 && self.seen - self.line_start > MAX_LINE {
            return Err(HeadFault::LineTooLong);
        }
        Ok(false)
    }

    fn end_line(&mut self, at: usize, buffer: &[u8]) -> Result<bool, HeadFault> {
        let line = buffer.get(self.line_start..at.saturating_sub(1)).unwrap_or_default();
        self.after_cr = false;
        self.line_start = self.seen;
        if line.is_empty() {
            return if self.lines == 0 { Err(HeadFault::EmptyLine) } else { Ok(true) };
        }
        if self.lines == 0 {
            check_request_line(line)?;
        }
        self.lines += 1;
        if self.lines > 1 + MAX_HEADERS { Err(HeadFault::TooManyHeaders) } else { Ok(false) }
    }
}

/// What is not HTTP/1, by its first bytes: a clear answer beats a parse error.
fn stranger(bytes: &[u8]) -> Option<Stranger> {
    match bytes.first()? {
        4 | 5 => Some(Stranger::Socks),
        0x16 => Some(Stranger::Tls),
        _ if bytes.starts_with(b"PROXY ") => Some(Stranger::ProxyProtocol),
        _ if bytes.starts_with(b"PRI * HTTP/2") => Some(Stranger::Http2),
        _ => None,
    }
}

/// Exactly `method target HTTP/1.x`, so that no part can be read two ways.
fn check_request_line(line: &[u8]) -> Result<(), HeadFault> {
    let parts: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let [method, target, version] = parts.as_slice() else { return Err(HeadFault::RequestLine) };
    if method.is_empty() || target.is_empty() || !version.starts_with(b"HTTP/") {
        return Err(HeadFault::RequestLine);
    }
    if *version == b"HTTP/1.1" || *version == b"HTTP/1.0" { Ok(()) } else { Err(HeadFault::Version) }
}
