//! HTTP/1 as both doors accept it: one strict reading of a request head and of a body, and one way to refuse.
//!
//! Trust zone: every byte read here was written by the job. Invariants: memory and time are bounded before a byte is
//! believed; a head that two parsers could read differently is refused, never repaired; what a refusal repeats of a
//! request is printable ASCII on one line; bytes after a head stay in the caller's buffer, untouched.

mod body;
mod chunked;
mod fault;
mod framing;
mod head;
mod read;
mod refusal;
mod scan;

pub use body::{BodyFault, read_body};
pub use chunked::{ChunkFault, ChunkedDecoder, Fed};
pub use fault::{HeadFault, Stranger};
pub use framing::{Framing, FramingFault, framing};
pub use head::{Headers, Repeated, RequestHead, Version, parse_head};
pub use read::{await_byte, read_head};
pub use refusal::{Refusal, printable, refuse};

/// Longest request line, its line ending excluded.
pub const MAX_LINE: usize = 8 << 10;
/// Longest head, its final empty line included; also the most that is read ahead of it.
pub const MAX_HEAD: usize = 64 << 10;
/// Most header fields.
pub const MAX_HEADERS: usize = 100;
/// A head is complete within this time or refused, however its bytes arrive.
pub const HEAD_TIME: std::time::Duration = std::time::Duration::from_secs(10);

#[cfg(test)]
mod cases;
