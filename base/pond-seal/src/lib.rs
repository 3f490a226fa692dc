//! The one door to cryptography: digests, signing keys, signed envelopes, and the statement a finished run is proved by.
//!
//! Trust zone: linked on both sides of a signature; everything that is verified comes from the other side and is hostile until
//! it is. Invariants: no file, clock or network; a size cap before every decoder; nothing of a payload is parsed before its
//! signature held; what is signed is exactly the bytes that are stored; a private key cannot print itself.
//! - [`key`] Ed25519 keys and their files' format.
//! - [`envelope`] the DSSE envelope: bytes, their type, and who signed them.
//! - [`vault`] secrets at rest; [`chain`] the chain over a job's output; [`fresh`] random bytes.
//! - [`statement`] the in-toto statement inside; [`result`] what it says about a run.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod chain;
pub mod digest;
pub mod envelope;
pub mod fresh;
pub mod key;
pub mod result;
pub mod statement;
pub mod vault;

mod pem;

pub use digest::Digest;
