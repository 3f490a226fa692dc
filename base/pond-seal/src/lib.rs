//! The one door to cryptography: digests, signing keys, signed envelopes, sealed secrets, encrypted bundles, tokens, and the
//! statement a finished run is proved by.
//!
//! Trust zone: linked on both sides of a signature; everything that is verified comes from the other side and is hostile until
//! it is. Invariants: no file, clock or network; a size cap before every decoder; nothing of a payload is parsed before its
//! signature held; what is signed is exactly the bytes that are stored; a private key or a secret cannot print itself.
//! - [`key`] Ed25519 keys and their files' format; [`secret`] a secret in the clear.
//! - [`envelope`] the DSSE envelope: bytes, their type, and who signed them.
//! - [`vault`] secrets at rest; [`fresh`] random bytes.
//! - [`statement`] the in-toto statement inside; [`result`] what it says about a run.
//! - [`enroll`], [`offer`], [`request`], [`seal`], [`bundle`], [`tree`], [`chain`]: what control plane and worker say to each other.
//! - [`bearer`] tokens of people and programs; [`audit`] the log that is a Merkle tree.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod audit;
pub mod bearer;
pub mod bundle;
pub mod chain;
pub mod digest;
pub mod enroll;
pub mod envelope;
pub mod fresh;
pub mod key;
pub mod offer;
pub mod request;
pub mod result;
pub mod seal;
pub mod secret;
pub mod statement;
pub mod tree;
pub mod vault;

mod pem;
mod random;
mod transcript;

pub use digest::Digest;
pub use secret::Secret;
