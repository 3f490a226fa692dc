//! What the broker of one job is told: the models it serves, what they cost and how much may be spent. Keys are not
//! here: they arrive as descriptors beside the order, one per model, in the order of `models`.

use pond_policy::model;
use serde::{Deserialize, Serialize};

/// Most models of one broker.
pub const MAX_MODELS: usize = 16;
/// A key longer than this is refused.
pub const MAX_KEY_BYTES: usize = 4 << 10;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Broker {
    pub models: Vec<Model>,
    /// What the job may spend in all, in millionths of a cent.
    pub ceiling_microcents: u64,
    /// The largest request body.
    pub body_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The operator's name for it, for records.
    pub name: String,
    /// A name of `pond_policy::model::Api`.
    pub api: String,
    /// `https://host[:port][/prefix]`.
    pub upstream: String,
    /// Whether the upstream may be an address that is not public.
    pub upstream_private: bool,
    /// Certificates to trust instead of the built-in authorities.
    pub ca_pem: Option<String>,
    /// A name of `pond_policy::model::Auth`.
    pub auth: String,
    /// The ids a request may name, each with its price.
    pub ids: Vec<PricedId>,
    /// Whether the provider may be asked to reach out itself: web tools, remote servers, URLs to fetch.
    pub provider_tools: bool,
    /// What the job presents instead of a key; worthless anywhere else.
    pub dummy_key: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PricedId {
    pub id: String,
    pub price: Price,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    pub rates: Rates,
    pub long: Option<LongContext>,
    pub max_input: u64,
    pub max_output: u64,
}

/// Micro-cents per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    pub input: u64,
    pub cache_read: u64,
    pub cache_write_5m: u64,
    pub cache_write_1h: u64,
    pub output: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongContext {
    pub above: u64,
    pub rates: Rates,
}

impl From<model::Price> for Price {
    fn from(price: model::Price) -> Self {
        let long = |long: model::LongContext| LongContext { above: long.above, rates: long.rates.into() };
        Self {
            rates: price.rates.into(),
            long: price.long.map(long),
            max_input: price.max_input,
            max_output: price.max_output,
        }
    }
}

impl From<Price> for model::Price {
    fn from(price: Price) -> Self {
        let long = |long: LongContext| model::LongContext { above: long.above, rates: long.rates.into() };
        Self {
            rates: price.rates.into(),
            long: price.long.map(long),
            max_input: price.max_input,
            max_output: price.max_output,
        }
    }
}

impl From<model::Rates> for Rates {
    fn from(rates: model::Rates) -> Self {
        let model::Rates { input, cache_read, cache_write_5m, cache_write_1h, output } = rates;
        Self { input, cache_read, cache_write_5m, cache_write_1h, output }
    }
}

impl From<Rates> for model::Rates {
    fn from(rates: Rates) -> Self {
        let Rates { input, cache_read, cache_write_5m, cache_write_1h, output } = rates;
        Self { input, cache_read, cache_write_5m, cache_write_1h, output }
    }
}
