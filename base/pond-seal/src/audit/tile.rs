//! How the nodes of a tree are stored: 256 neighbours of every eighth level make a tile, as in C2SP's tlog-tiles. Nodes between
//! are computed. A tile that is full never changes.

use std::collections::HashMap;
use std::ops::Range;

use crate::Digest;
use crate::audit::tree::{Subtree, join, node, parts};

/// Levels of the tree from one level of tiles to the next.
pub const HEIGHT: u32 = 8;
/// Hashes of a full tile.
pub const WIDTH: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tile {
    pub level: u32,
    pub number: u64,
}

/// The last tile of each level of a tree of `size` leaves, and how many hashes it has: fewer than a full one.
#[must_use]
pub fn edge(size: u64) -> Vec<(Tile, usize)> {
    let mut edge = Vec::new();
    let (mut level, mut left) = (0, size);
    while left > 0 {
        let width = usize::try_from(left & 0xff).unwrap_or(0);
        edge.push((Tile { level, number: left >> HEIGHT }, width));
        left >>= HEIGHT;
        level += 1;
    }
    edge
}

/// Which tile has a subtree, and which of its hashes the subtree is made of.
#[must_use]
pub fn place(part: Subtree) -> (Tile, Range<usize>) {
    let (level, above) = (part.level / HEIGHT, part.level % HEIGHT);
    let first = part.index << above;
    let start = usize::try_from(first & 0xff).unwrap_or(0);
    (Tile { level, number: first >> HEIGHT }, start..start + (1 << above))
}

/// The root over hashes of one level whose number is a power of two.
#[must_use]
pub fn root(hashes: &[Digest]) -> Digest {
    match hashes {
        [one] => *one,
        [left, right] => node(left, right),
        more => {
            let (left, right) = more.split_at(more.len() / 2);
            if left.is_empty() { super::tree::empty() } else { node(&root(left), &root(right)) }
        }
    }
}

/// The tiles that [`hash`] needs for this range.
pub fn wanted(range: &Range<u64>) -> impl Iterator<Item = Tile> {
    parts(range).into_iter().map(|part| place(part).0)
}

/// The root over a range of leaves; nothing when a tile or a part of one is missing.
#[must_use]
pub fn hash(range: &Range<u64>, tiles: &HashMap<Tile, Vec<Digest>>) -> Option<Digest> {
    let of = |part: Subtree| {
        let (tile, place) = place(part);
        tiles.get(&tile)?.get(place).map(root)
    };
    parts(range).into_iter().map(of).collect::<Option<Vec<_>>>().map(|hashes| join(&hashes))
}

/// A tile's hashes, one after the other.
#[must_use]
pub fn encode(hashes: &[Digest]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| *hash.as_bytes()).collect()
}

/// Nothing for what is no whole number of hashes, none, or more than a tile has.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<Vec<Digest>> {
    let (hashes, rest) = bytes.as_chunks::<32>();
    let fits = rest.is_empty() && (1..=WIDTH).contains(&hashes.len());
    fits.then(|| hashes.iter().map(|hash| Digest::from_bytes(*hash)).collect())
}
