//! `GIT binary patch` literals: zlib, then git's base 85, streamed.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::source::Side;

const ALPHABET: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
const LINE: usize = 52;

pub(super) fn literal(side: &Side, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "GIT binary patch\nliteral {}", side.size())?;
    let mut zlib = ZlibEncoder::new(Lines { out, held: Vec::with_capacity(LINE) }, Compression::default());
    side.copy_to(&mut zlib)?;
    zlib.finish()?.finish()
}

/// Turns bytes into lines of at most 52, each with its length in front.
struct Lines<W> {
    out: W,
    held: Vec<u8>,
}

impl<W: Write> Lines<W> {
    fn finish(mut self) -> io::Result<()> {
        self.write_line()?;
        self.out.write_all(b"\n")
    }

    fn write_line(&mut self) -> io::Result<()> {
        let length = match u8::try_from(self.held.len()) {
            Ok(0) => return Ok(()),
            Ok(length @ 1..=26) => b'A' + length - 1,
            Ok(length @ 27..=52) => b'a' + length - 27,
            Ok(53..) | Err(_) => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let mut line = vec![length];
        for group in self.held.chunks(4) {
            let mut word = [0; 4];
            for (to, from) in word.iter_mut().zip(group) {
                *to = *from;
            }
            line.extend(digits(u32::from_be_bytes(word)));
        }
        line.push(b'\n');
        self.held.clear();
        self.out.write_all(&line)
    }
}

fn digits(mut word: u32) -> [u8; 5] {
    let mut text = [b'0'; 5];
    for digit in text.iter_mut().rev() {
        let value = usize::try_from(word % 85).unwrap_or_default();
        *digit = ALPHABET.get(value).copied().unwrap_or(b'0');
        word /= 85;
    }
    text
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = LINE - self.held.len();
        let (now, _) = bytes.split_at(room.min(bytes.len()));
        self.held.extend_from_slice(now);
        if self.held.len() == LINE {
            self.write_line()?;
        }
        Ok(now.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_literal_is_what_git_writes() {
        let mut out = Vec::new();
        literal(&Side::Absent, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "GIT binary patch\nliteral 0\nHc$@<O00001\n\n");
    }
}
