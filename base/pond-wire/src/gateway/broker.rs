//! What the broker of one job is told: the models it serves, what they cost and how much may be spent. Keys are not
//! here: they arrive as descriptors beside the order, one per model, in the order of `models`.

use pond_policy::model;
use pond_policy::operator;
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
    /// The ceiling is a part of a larger one: a call that does not fit asks for more before it is refused.
    pub lent: bool,
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

impl Model {
    /// An operator's model as it is told to a gateway. `ca_pem` is what the model's `ca_file` holds.
    pub fn new(model: &operator::Model, ca_pem: Option<String>, dummy_key: String) -> Self {
        let priced =
            |(id, price): &(String, model::Price)| PricedId { id: id.clone(), price: (*price).into() };
        Self {
            name: model.name.to_string(),
            api: model.api.name().to_owned(),
            upstream: model.upstream_text.clone(),
            upstream_private: model.upstream_private,
            ca_pem,
            auth: model.auth.name().to_owned(),
            ids: model.ids.iter().map(priced).collect(),
            provider_tools: model.provider_tools,
            dummy_key,
        }
    }
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

#[cfg(test)]
mod tests {
    use pond_policy::operator::Operator;

    use super::*;
    use crate::decode::decode_toml;

    const FILE: &str = r#"
[model.local]
api = "openai-chat"
upstream = "https://10.0.0.5:8443/llm"
upstream_private = true
credential = "file:/etc/pond/llm.key"
models = ["gpt-5-mini", "qwen"]

[price.qwen]
input = 0.5
output = 1.25
max_input = 128000
max_output = 8000
long = { above = 64000, input = 1.0, output = 2.5 }
"#;

    #[test]
    fn an_operator_s_model_survives_the_way_to_the_gateway_and_its_credential_stays() {
        let operator = Operator::read(&decode_toml(FILE.as_bytes()).unwrap()).unwrap();
        let model = Model::new(operator.model("local").unwrap(), None, "sk-dummy".to_owned());
        let text = serde_json::to_string(&model).unwrap();
        assert_eq!(serde_json::from_str::<Model>(&text).unwrap(), model);
        assert_eq!(model::Price::from(model.ids[1].price), operator.models[0].ids[1].1);
        assert_eq!((model.auth.as_str(), model.upstream_private), ("bearer", true));
        assert!(!text.contains("llm.key"), "{text}");
        let unknown = serde_json::from_str::<Model>(&text.replacen('{', "{\"key\":1,", 1)).unwrap_err();
        assert!(unknown.to_string().starts_with("unknown field `key`"), "{unknown}");
    }
}
