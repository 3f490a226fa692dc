//! Models and money: which API a model speaks, where it is, what its tokens cost, and what an operator may write about
//! them in `pond.toml`. Pure; the command line reads the file with it and the gateway judges requests with it.
//!
//! Invariants: money is whole micro-cents, rounded against the spender, never a float; a model without a price has no
//! ceiling and is therefore refused; a credential is named here, never held.

mod api;
mod catalogue;
mod price;
mod upstream;

pub use api::{Api, Auth};
pub use catalogue::{BUILT_IN_DATE, Evidence, built_in, evidence};
pub use price::{LongContext, Microcents, Price, PriceFault, Rates, Usage};
pub use upstream::{Upstream, UpstreamFault, UpstreamHost};
