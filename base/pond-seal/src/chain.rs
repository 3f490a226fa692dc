//! The chain over a job's output: each piece of a stream is bound to everything before it, so that one digest in a signed
//! result fixes all of it, in order and whole. Worker and control plane compute it with this one function.

use crate::digest::Digest;

const DOMAIN: &[u8] = b"pond/log-chain/v1";

/// Before the first piece.
#[must_use]
pub fn start(stream: &str) -> Digest {
    Digest::of(&[DOMAIN, b"\0", stream.as_bytes()].concat())
}

/// After one more piece, which begins at `offset`.
#[must_use]
pub fn link(previous: Digest, sequence: u64, offset: u64, piece: &[u8]) -> Digest {
    let digest = Digest::of(piece);
    let parts: [&[u8]; 5] =
        [DOMAIN, previous.as_bytes(), &sequence.to_be_bytes(), &offset.to_be_bytes(), digest.as_bytes()];
    Digest::of(&parts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_place_and_stream_all_count() {
        let whole = |stream: &str, pieces: &[&[u8]]| {
            pieces.iter().zip(0_u64..).fold((start(stream), 0_u64), |(chain, offset), (piece, sequence)| {
                (link(chain, sequence, offset, piece), offset + u64::try_from(piece.len()).unwrap())
            })
        };
        let all = [
            whole("stdout", &[b"ab", b"c"]),
            whole("stdout", &[b"a", b"bc"]),
            whole("stdout", &[b"c", b"ab"]),
            whole("stderr", &[b"ab", b"c"]),
        ];
        assert_eq!(all[0], whole("stdout", &[b"ab", b"c"]));
        for (position, one) in all.iter().enumerate() {
            assert!(all.iter().skip(position + 1).all(|other| one.0 != other.0));
        }
    }
}
