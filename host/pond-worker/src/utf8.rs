//! Cuts a byte stream into text and faulty bytes, wherever its chunks end.
//!
//! HOSTILE INPUT. Invariants: state is at most three bytes; how the input is cut does not change the pieces' sequence.

/// The start of a character whose remaining bytes have not arrived.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    partial: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    Text(&'a str),
    /// A byte that is part of no character.
    Faulty(u8),
}

impl Decoder {
    pub(crate) fn push(&mut self, chunk: &[u8], mut take: impl FnMut(Piece<'_>)) {
        let mut bytes = std::mem::take(&mut self.partial);
        bytes.extend_from_slice(chunk);
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            rest = match std::str::from_utf8(rest) {
                Ok(text) => {
                    take(Piece::Text(text));
                    &[]
                }
                Err(error) => self.invalid(rest, error, &mut take),
            };
        }
    }

    /// Ends the stream: what waited for its rest is faulty.
    pub(crate) fn finish(&mut self, mut take: impl FnMut(Piece<'_>)) {
        for byte in std::mem::take(&mut self.partial) {
            take(Piece::Faulty(byte));
        }
    }

    /// Takes the valid start and one faulty sequence; an unfinished character waits for the next chunk.
    fn invalid<'a>(
        &mut self,
        bytes: &'a [u8],
        error: std::str::Utf8Error,
        take: &mut impl FnMut(Piece<'_>),
    ) -> &'a [u8] {
        let (valid, rest) = bytes.split_at(error.valid_up_to());
        take(Piece::Text(&String::from_utf8_lossy(valid)));
        let Some(length) = error.error_len() else {
            self.partial = rest.to_vec();
            return &[];
        };
        let (faulty, rest) = rest.split_at(length);
        for &byte in faulty {
            take(Piece::Faulty(byte));
        }
        rest
    }
}
