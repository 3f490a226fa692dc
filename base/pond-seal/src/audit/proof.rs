//! Inclusion and consistency (RFC 6962, sections 2.1.1 and 2.1.2): which parts of a tree a proof has, and whether one holds.
//!
//! Both sides walk the same steps from the root down. A proof of another length than the walk is refused, so that no two proofs
//! of the same thing hold.

use std::ops::Range;

use crate::Digest;
use crate::audit::tree::{empty, node};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProofFault {
    #[error("the log of {size} entries has no entry {index}")]
    Index { index: u64, size: u64 },
    #[error("the log of {new} entries cannot be older than one of {old}")]
    Order { old: u64, new: u64 },
    #[error("the proof has {found} hashes where {expected} belong")]
    Length { found: usize, expected: usize },
    #[error("the entry is not in the log this root is of")]
    NotIncluded,
    #[error("the log was changed: the newer one does not begin with the older one")]
    NotConsistent,
}

impl ProofFault {
    /// Stable; the documents list it.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Index { .. } => "proof_index",
            Self::Order { .. } => "proof_order",
            Self::Length { .. } => "proof_length",
            Self::NotIncluded => "not_included",
            Self::NotConsistent => "not_consistent",
        }
    }
}

/// What stands beside the way from the root down, nearest the leaf first.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Beside {
    Left(Range<u64>),
    Right(Range<u64>),
}

/// The walk from the root of `size` leaves down to the subtree that `goes_left` and `arrived` lead to; and where it ends.
fn walk(
    size: u64,
    arrived: impl Fn(&Range<u64>) -> bool,
    goes_left: impl Fn(u64) -> bool,
) -> (Range<u64>, Vec<Beside>) {
    let (mut here, mut beside) = (0..size, Vec::new());
    while !arrived(&here) && here.end - here.start > 1 {
        let split = here.start + (1 << (here.end - here.start - 1).ilog2());
        if goes_left(split) {
            beside.push(Beside::Right(split..here.end));
            here.end = split;
        } else {
            beside.push(Beside::Left(here.start..split));
            here.start = split;
        }
    }
    beside.reverse();
    (here, beside)
}

fn to_leaf(index: u64, size: u64) -> Result<Vec<Beside>, ProofFault> {
    if index >= size {
        return Err(ProofFault::Index { index, size });
    }
    Ok(walk(size, |_| false, |split| index < split).1)
}

/// To the last complete part of the older tree. Where that is the whole of it, its root is known and not part of a proof.
fn to_old(old: u64, new: u64) -> Result<(Option<Range<u64>>, Vec<Beside>), ProofFault> {
    if old > new {
        return Err(ProofFault::Order { old, new });
    }
    if old == 0 || old == new {
        return Ok((None, Vec::new()));
    }
    let (end, beside) = walk(new, |here| here.end == old, |split| old <= split);
    Ok((Some(end).filter(|end| end.start > 0), beside))
}

impl Beside {
    fn range(self) -> Range<u64> {
        match self {
            Self::Left(range) | Self::Right(range) => range,
        }
    }
}

/// The parts of a tree of `size` leaves whose roots prove that leaf `index` is in it, in the order of the proof.
pub fn inclusion(index: u64, size: u64) -> Result<Vec<Range<u64>>, ProofFault> {
    Ok(to_leaf(index, size)?.into_iter().map(Beside::range).collect())
}

/// The parts of a tree of `new` leaves whose roots prove that it begins with the tree of `old` leaves.
pub fn consistency(old: u64, new: u64) -> Result<Vec<Range<u64>>, ProofFault> {
    let (first, beside) = to_old(old, new)?;
    Ok(first.into_iter().chain(beside.into_iter().map(Beside::range)).collect())
}

/// Whether `leaf` is number `index` of the `size` leaves under `root`.
pub fn check_inclusion(
    leaf: &Digest,
    index: u64,
    (size, root): (u64, &Digest),
    proof: &[Digest],
) -> Result<(), ProofFault> {
    let beside = to_leaf(index, size)?;
    check_length(proof, beside.len())?;
    let climb = |below, (beside, hash): (&Beside, &Digest)| match beside {
        Beside::Left(_) => node(hash, &below),
        Beside::Right(_) => node(&below, hash),
    };
    let found = beside.iter().zip(proof).fold(*leaf, climb);
    if found == *root { Ok(()) } else { Err(ProofFault::NotIncluded) }
}

/// Whether the tree of the newer size and root begins with the one of the older.
pub fn check_consistency(
    (old, old_root): (u64, &Digest),
    (new, new_root): (u64, &Digest),
    proof: &[Digest],
) -> Result<(), ProofFault> {
    let (first, beside) = to_old(old, new)?;
    check_length(proof, beside.len() + usize::from(first.is_some()))?;
    let known = match old {
        0 => *old_root == empty(),
        _ if old == new => old_root == new_root,
        _ => true,
    };
    if old == 0 || old == new {
        return if known { Ok(()) } else { Err(ProofFault::NotConsistent) };
    }
    let (start, rest) = match (first, proof.split_first()) {
        (Some(_), Some((start, rest))) => (start, rest),
        (None, _) => (old_root, proof),
        (Some(_), None) => return Err(ProofFault::NotConsistent),
    };
    let climb = |(before, after), (beside, hash): (&Beside, &Digest)| match beside {
        Beside::Left(_) => (node(hash, &before), node(hash, &after)),
        Beside::Right(_) => (before, node(&after, hash)),
    };
    let (before, after) = beside.iter().zip(rest).fold((*start, *start), climb);
    if before == *old_root && after == *new_root { Ok(()) } else { Err(ProofFault::NotConsistent) }
}

fn check_length(proof: &[Digest], expected: usize) -> Result<(), ProofFault> {
    if proof.len() == expected { Ok(()) } else { Err(ProofFault::Length { found: proof.len(), expected }) }
}
