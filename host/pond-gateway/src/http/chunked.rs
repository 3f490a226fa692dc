//! The chunked coding, read strictly: sizes are plain hex of bounded length, every line ends in CR LF, and extensions and
//! trailers, which one reader skips and another obeys, are refused.

use thiserror::Error;

/// Hex digits in a chunk size: up to 4 GiB, far above any body that is accepted.
const MOST_DIGITS: u8 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ChunkFault {
    #[error("a chunk size is not plain hex")]
    Size,
    #[error("a chunk size has too many digits")]
    SizeTooLong,
    #[error("chunk extensions are not accepted")]
    Extension,
    #[error("a chunk line does not end in CR LF")]
    LineEnding,
    #[error("trailers are not accepted")]
    Trailer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size { value: u64, digits: u8 },
    SizeLf { value: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    EndCr,
    EndLf,
    Done,
}

/// A decoder that takes bytes as they come.
#[derive(Debug)]
pub struct ChunkedDecoder(State);

/// What one feeding took, and whether the body has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fed {
    pub consumed: usize,
    pub done: bool,
}

impl Default for ChunkedDecoder {
    fn default() -> Self {
        Self(State::Size { value: 0, digits: 0 })
    }
}

impl ChunkedDecoder {
    /// Appends the data in `input` to `out`; stops after the last chunk and leaves what follows it.
    pub fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Fed, ChunkFault> {
        let mut consumed = 0;
        while let Some(rest) = input.get(consumed..).filter(|rest| !rest.is_empty()) {
            consumed += match self.0 {
                State::Done => break,
                State::Data { left } => self.take(left, rest, out),
                State::Size { .. }
                | State::SizeLf { .. }
                | State::DataCr
                | State::DataLf
                | State::EndCr
                | State::EndLf => {
                    let byte = rest.first().copied().unwrap_or_default();
                    self.0 = self.0.next(byte)?;
                    1
                }
            };
        }
        Ok(Fed { consumed, done: self.0 == State::Done })
    }

    fn take(&mut self, left: u64, rest: &[u8], out: &mut Vec<u8>) -> usize {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
        out.extend_from_slice(rest.get(..count).unwrap_or_default());
        let left = left - u64::try_from(count).unwrap_or(left);
        self.0 = if left == 0 { State::DataCr } else { State::Data { left } };
        count
    }
}

impl State {
    fn next(self, byte: u8) -> Result<Self, ChunkFault> {
        match (self, byte) {
            (Self::Size { value, digits }, _) => size(value, digits, byte),
            (Self::SizeLf { value: 0 }, b'\n') => Ok(Self::EndCr),
            (Self::SizeLf { value }, b'\n') => Ok(Self::Data { left: value }),
            (Self::DataCr, b'\r') => Ok(Self::DataLf),
            (Self::DataLf, b'\n') => Ok(Self::Size { value: 0, digits: 0 }),
            (Self::EndCr, b'\r') => Ok(Self::EndLf),
            (Self::EndCr, _) => Err(ChunkFault::Trailer),
            (Self::EndLf, b'\n') => Ok(Self::Done),
            (
                Self::SizeLf { .. }
                | Self::Data { .. }
                | Self::DataCr
                | Self::DataLf
                | Self::EndLf
                | Self::Done,
                _,
            ) => Err(ChunkFault::LineEnding),
        }
    }
}

fn size(value: u64, digits: u8, byte: u8) -> Result<State, ChunkFault> {
    match byte {
        b'\r' if digits > 0 => Ok(State::SizeLf { value }),
        b';' => Err(ChunkFault::Extension),
        b'\n' => Err(ChunkFault::LineEnding),
        _ => {
            let digit = char::from(byte).to_digit(16).ok_or(ChunkFault::Size)?;
            if digits == MOST_DIGITS {
                return Err(ChunkFault::SizeTooLong);
            }
            Ok(State::Size { value: value * 16 + u64::from(digit), digits: digits + 1 })
        }
    }
}
