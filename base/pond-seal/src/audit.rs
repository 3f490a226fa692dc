//! The audit log as a Merkle tree (RFC 6962 hashing), and what shows that an entry is in it.
//!
//! Linked by the control plane, which grows the tree, and by whoever checks it; everything that is checked is hostile. No I/O:
//! nodes come in as tiles that the caller has read. What is in the log is bytes; a leaf is the SHA-256 of a zero byte and those.
//! - [`tree`] hashing, the growing edge, and the parts of a tree; [`proof`] inclusion and consistency;
//! - [`tile`] how nodes are stored; [`checkpoint`] the signed size and root; [`entry`] the bytes of one entry;
//! - [`evidence`] one entry with its proof and checkpoint, as a file.

pub mod checkpoint;
pub mod entry;
pub mod evidence;
pub mod proof;
pub mod tile;
pub mod tree;

#[cfg(test)]
mod tests;
