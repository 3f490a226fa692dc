//! The hash chain over a job's output: every chunk is bound to its job, lease, stream and place, and to all chunks before it.
//!
//! The worker extends a [`Chain`] as it sends; the control plane holds the same value and accepts what fits. Where both
//! end is part of what the worker signs, so a log that lost or gained a chunk on its way is noticed.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::result::Stream;
use crate::transcript::Transcript;

/// A place in a stream: the next chunk's number, where its first byte stands, and the hash of all before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    pub seq: u64,
    pub offset: u64,
    pub head: Digest,
}

/// The state of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chain {
    at: Place,
    /// Where the last chunk began, so that one sent twice is told from one that was changed.
    before: Option<Place>,
}

/// Where a chunk says it belongs, and the head it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    pub seq: u64,
    pub offset: u64,
    pub head: Digest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    New,
    /// The last chunk again, unchanged.
    Again,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChainFault {
    #[error("chunk {seq} at offset {offset} is expected")]
    OutOfPlace { seq: u64, offset: u64 },
    #[error("the chunk is not what its hash says, or does not follow the chunks before it")]
    Broken,
    #[error("the stream is longer than {0} bytes")]
    TooLong(u64),
    #[error("a chunk without a byte")]
    Empty,
}

impl ChainFault {
    /// Stable; the documents list it.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::OutOfPlace { .. } => "chunk_out_of_place",
            Self::Broken => "chunk_hash",
            Self::TooLong(_) => "stream_too_long",
            Self::Empty => "chunk_empty",
        }
    }
}

impl Chain {
    #[must_use]
    pub fn begin(job: &str, lease_epoch: u64, stream: Stream) -> Self {
        let start = Transcript::new("pond/log/v1").text(job).number(lease_epoch).text(stream.file()).finish();
        Self { at: Place { seq: 0, offset: 0, head: Digest::of(&start) }, before: None }
    }

    /// Where the next chunk belongs; at the end of a stream, what its log's digest is.
    #[must_use]
    pub fn at(&self) -> Place {
        self.at
    }

    /// The worker's side: the link of these bytes, after which the chain stands behind them.
    pub fn extend(&mut self, bytes: &[u8]) -> Link {
        let link = self.at.link(bytes);
        self.move_behind(&link, bytes);
        link
    }

    /// The control plane's side. `most` bounds the stream.
    pub fn accept(&mut self, link: Link, bytes: &[u8], most: u64) -> Result<Accepted, ChainFault> {
        if bytes.is_empty() {
            return Err(ChainFault::Empty);
        }
        if self.before.is_some_and(|before| before.link(bytes) == link) {
            return Ok(Accepted::Again);
        }
        if (link.seq, link.offset) != (self.at.seq, self.at.offset) {
            return Err(ChainFault::OutOfPlace { seq: self.at.seq, offset: self.at.offset });
        }
        if link != self.at.link(bytes) {
            return Err(ChainFault::Broken);
        }
        if self.at.offset.saturating_add(length(bytes)) > most {
            return Err(ChainFault::TooLong(most));
        }
        self.move_behind(&link, bytes);
        Ok(Accepted::New)
    }

    fn move_behind(&mut self, link: &Link, bytes: &[u8]) {
        self.before = Some(self.at);
        self.at.seq = self.at.seq.saturating_add(1);
        self.at.offset = self.at.offset.saturating_add(length(bytes));
        self.at.head = link.head;
    }
}

impl Place {
    /// The link of these bytes at this place.
    #[must_use]
    pub fn link(&self, bytes: &[u8]) -> Link {
        let fields = Transcript::new("pond/log/chunk/v1")
            .digest(&self.head)
            .number(self.seq)
            .number(self.offset)
            .digest(&Digest::of(bytes));
        Link { seq: self.seq, offset: self.offset, head: Digest::of(&fields.finish()) }
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AMPLE: u64 = 1 << 20;

    fn begin() -> Chain {
        Chain::begin("j1", 4, Stream::Stdout)
    }

    #[test]
    fn both_sides_end_at_the_same_head() {
        let (mut worker, mut control) = (begin(), begin());
        for bytes in [&b"one"[..], b"two", b"three"] {
            let link = worker.extend(bytes);
            assert_eq!(control.accept(link, bytes, AMPLE), Ok(Accepted::New));
            assert_eq!(control.accept(link, bytes, AMPLE), Ok(Accepted::Again));
            let other = vec![b'x'; bytes.len()];
            assert_eq!(
                control.accept(link, &other, AMPLE).map_err(ChainFault::code),
                Err("chunk_out_of_place")
            );
        }
        assert_eq!(worker, control);
        assert_eq!((control.at().seq, control.at().offset), (3, 11));
    }

    #[test]
    fn gaps_changes_and_strangers_have_their_code() {
        let (mut worker, mut control) = (begin(), begin());
        let first = worker.extend(b"one");
        let second = worker.extend(b"two");
        let mut code =
            |link: Link, bytes: &[u8], most: u64| control.accept(link, bytes, most).map_err(ChainFault::code);
        assert_eq!(code(second, b"two", AMPLE), Err("chunk_out_of_place"));
        assert_eq!(code(first, b"oNe", AMPLE), Err("chunk_hash"));
        assert_eq!(code(first, b"one", 2), Err("stream_too_long"));
        assert_eq!(code(first, b"", AMPLE), Err("chunk_empty"));
        assert_eq!(code(first, b"one", AMPLE), Ok(Accepted::New));
        assert_eq!(code(second, b"two", AMPLE), Ok(Accepted::New));
        assert_eq!(code(first, b"one", AMPLE), Err("chunk_out_of_place"), "only the last one again");
        assert_eq!(code(Link { offset: 4, ..second }, b"two", AMPLE), Err("chunk_out_of_place"));
        for stranger in [
            Chain::begin("j2", 4, Stream::Stdout),
            Chain::begin("j1", 5, Stream::Stdout),
            Chain::begin("j1", 4, Stream::Stderr),
        ] {
            let link = stranger.clone().extend(b"one");
            assert_eq!(begin().accept(link, b"one", AMPLE), Err(ChainFault::Broken));
        }
    }

    proptest! {
        /// Whatever is delivered in whatever order, what was accepted is a beginning of what was sent.
        #[test]
        fn what_is_accepted_is_what_was_sent(
            sent in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..5), 1..6),
            order in proptest::collection::vec((0..6_usize, 0..6_usize), 0..30),
        ) {
            let (mut worker, mut control) = (begin(), begin());
            let links: Vec<Link> = sent.iter().map(|bytes| worker.extend(bytes)).collect();
            let mut kept: Vec<u8> = Vec::new();
            for (link, bytes) in order {
                let (link, bytes) = (links[link % links.len()], &sent[bytes % sent.len()]);
                if control.accept(link, bytes, AMPLE) == Ok(Accepted::New) {
                    kept.extend(bytes);
                }
            }
            prop_assert!(sent.concat().starts_with(&kept));
        }
    }
}
