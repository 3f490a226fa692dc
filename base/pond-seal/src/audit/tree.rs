//! Hashing of RFC 6962, section 2.1, and the right edge of a tree that grows.
//!
//! A tree of any size is a row of complete subtrees, each half as large as the one before or less; its root joins them from the
//! right. A log therefore grows by its edge alone, which is the last, unfinished tile of each level.

use std::ops::Range;

use crate::Digest;
use crate::audit::tile::{self, Tile};

/// 2^`level` leaves, the first of them number `index` · 2^`level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subtree {
    pub level: u32,
    pub index: u64,
}

/// The edge does not belong to a tree of that size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the edge of the tree is not one of {0} leaves")]
pub struct NotAnEdge(pub u64);

#[must_use]
pub fn leaf(entry: &[u8]) -> Digest {
    Digest::of(&[&[0], entry].concat())
}

#[must_use]
pub fn node(left: &Digest, right: &Digest) -> Digest {
    Digest::of(&[[1].as_slice(), left.as_bytes(), right.as_bytes()].concat())
}

/// The root of a tree without leaves.
#[must_use]
pub fn empty() -> Digest {
    Digest::of(b"")
}

/// The complete subtrees of `range`, from the left. The range begins where a subtree of its size can begin.
#[must_use]
pub fn parts(range: &Range<u64>) -> Vec<Subtree> {
    let (mut start, mut parts) = (range.start, Vec::new());
    while start < range.end {
        let level = (range.end - start).ilog2();
        parts.push(Subtree { level, index: start >> level });
        start += 1 << level;
    }
    parts
}

/// The root over complete subtrees, given from the left.
#[must_use]
pub fn join(parts: &[Digest]) -> Digest {
    let joined = parts.iter().rev().copied().reduce(|right, left| node(&left, &right));
    joined.unwrap_or_else(empty)
}

/// A tree that leaves are added to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Growing {
    size: u64,
    /// The unfinished tile of each level, the leaves' first.
    edge: Vec<Vec<Digest>>,
}

impl Growing {
    /// Goes on with a tree whose edge was stored: the tiles that [`tile::edge`] names.
    pub fn from_edge(size: u64, edge: Vec<Vec<Digest>>) -> Result<Self, NotAnEdge> {
        let widths = tile::edge(size).into_iter().map(|(_, width)| width);
        if widths.eq(edge.iter().map(Vec::len)) { Ok(Self { size, edge }) } else { Err(NotAnEdge(size)) }
    }

    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Adds a leaf, and hands over every tile that it filled.
    pub fn push(&mut self, leaf: Digest, mut filled: impl FnMut(Tile, &[Digest])) {
        self.size += 1;
        let (mut rising, mut level) = (Some(leaf), 0_u32);
        while let Some(hash) = rising.take() {
            let at = usize::try_from(level).unwrap_or(usize::MAX);
            if self.edge.len() <= at {
                self.edge.push(Vec::new());
            }
            let Some(row) = self.edge.get_mut(at) else { return };
            row.push(hash);
            if row.len() == tile::WIDTH {
                let number = ((self.size >> (level * tile::HEIGHT)) - 1) >> tile::HEIGHT;
                filled(Tile { level, number }, row);
                rising = Some(tile::root(row));
                row.clear();
            }
            level += 1;
        }
    }

    /// The unfinished tiles, without the empty ones.
    pub fn edge(&self) -> impl Iterator<Item = (Tile, &[Digest])> {
        let named = tile::edge(self.size).into_iter().map(|(tile, _)| tile);
        named.zip(self.edge.iter().map(Vec::as_slice)).filter(|(_, hashes)| !hashes.is_empty())
    }

    #[must_use]
    pub fn root(&self) -> Digest {
        let subtrees = parts(&(0..self.size));
        let of = |part: &Subtree| {
            let (tile, place) = tile::place(*part);
            let row = usize::try_from(tile.level).ok().and_then(|level| self.edge.get(level));
            row.and_then(|row| row.get(place)).map(tile::root)
        };
        // Every part of a tree lies in its edge: what is to the left of it belongs to a larger part.
        let hashes: Vec<Digest> = subtrees.iter().filter_map(of).collect();
        join(&hashes)
    }
}
