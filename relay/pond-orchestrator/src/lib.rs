//! Matches waiting jobs with waiting workers and passes on what the two ends say to each other.
//!
//! Trust zone: SEMI-TRUSTED. It reads what a job requires and who asks for work; everything else are bytes it cannot read.
//! Invariants: no key and no cryptography (it does not link pond-seal, which `cargo xtask tidy` keeps); no decision that
//! anybody relies on: the control plane judges every pairing again from its own records, and both ends verify what arrives. A wrong
//! answer of this crate costs time and nothing else. Every queue is bounded.
#![forbid(unsafe_code)]

mod follow;
mod link;
mod matcher;
mod relay;
pub mod serve;

pub use follow::{FeedFault, follow_here, follow_there};
pub use link::{Link, LinkFault};
pub use matcher::{Applicant, Asked, Bounds, Full, Intent, Matcher, Pairing, Ticket};
pub use relay::Relay;
