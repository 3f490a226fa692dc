//! Judges what a request asks of the provider before any of it is sent: the model, how much it may write, and whether it
//! would make the provider itself an egress path, keep something, or be billed in a way the price table does not know.
//!
//! Fields are judged by what may be there, tools by an allowlist; a field the broker has no rule for goes through.

use pond_policy::model::Api;
use thiserror::Error;

use super::json::{Json, JsonFault, with_field, with_text_field, with_value};
use super::media::holds_media;
use super::route::{Call, Route};
use super::{rules, spelling};

/// A body that may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    pub model: String,
    pub stream: bool,
    pub output: OutputLimit,
    /// How many answers are asked for; each may be as long as the limit.
    pub answers: u64,
    /// Whether tokens may be billed that never appear in the stream.
    pub hides_output: bool,
    /// Whether the broker asked for the usage report of a stream itself, so that it must not show.
    pub hides_usage: bool,
    /// Whether it holds what is not counted by its bytes.
    pub holds_media: bool,
    pub older_limit: OlderLimit,
    /// The body as it goes upstream.
    pub body: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputLimit {
    Given(u64),
    /// The client set no limit; the broker sets one at this place.
    Open(LimitField),
    /// The client set none, and wrote the object it belongs to in a way that leaves no place for it.
    Unlimited,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitField {
    MaxOutputTokens,
    MaxCompletionTokens,
    MaxTokens,
    /// In an object of its own, which is absent.
    GenerationConfig,
    /// In the object that is there.
    InGenerationConfig,
}

/// Chat Completions has two names for its limit, and a compatible server may know only the older, `max_tokens`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OlderLimit {
    /// Written in any case, so that no server reads the request as one without a limit.
    Written,
    AsGiven,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InspectFault {
    #[error(transparent)]
    Json(#[from] JsonFault),
    #[error("the body is not an object")]
    NotObject,
    #[error("`{0}` is missing, or its value is not one that can be judged")]
    Field(&'static str),
    #[error("`{0}` would let the provider reach out itself; set provider_tools in pond.toml to allow it")]
    ProviderEgress(&'static str),
    #[error("`{0}` is kept or fetched by the provider, outside what this job may see")]
    Stored(&'static str),
    #[error("`{0}` is billed in a way the price table does not know")]
    Unpriced(&'static str),
}

impl InspectFault {
    pub const fn status(&self) -> u16 {
        match self {
            Self::Json(_) | Self::NotObject | Self::Field(_) => 400,
            Self::ProviderEgress(_) | Self::Stored(_) | Self::Unpriced(_) => 403,
        }
    }

    pub const fn code(&self) -> &'static str {
        match self {
            Self::Json(_) | Self::NotObject => "body_not_json",
            Self::Field(_) => "body_field",
            Self::ProviderEgress(_) => "provider_egress",
            Self::Stored(_) => "provider_storage",
            Self::Unpriced(_) => "unpriced_option",
        }
    }
}

pub fn inspect(
    api: Api,
    route: &Route,
    body: Vec<u8>,
    provider_tools: bool,
) -> Result<Inspected, InspectFault> {
    let tree = Json::parse(&body)?;
    if !matches!(tree, Json::Map(_)) {
        return Err(InspectFault::NotObject);
    }
    if !matches!(route.call, Call::Generate { .. } | Call::CountGenerate) {
        spelling::check(&tree)?;
    }
    let found = match route.call {
        Call::Messages | Call::CountMessages => rules::anthropic(&tree, provider_tools)?,
        Call::Responses => rules::responses(&tree, provider_tools)?,
        Call::Chat => rules::chat(&tree, api, provider_tools)?,
        Call::Generate { .. } | Call::CountGenerate => rules::gemini(&tree, route, provider_tools)?,
        Call::Models | Call::Count => return Err(InspectFault::NotObject),
    };
    let holds_media = holds_media(&tree);
    drop(tree);
    let body = found.edits.iter().fold(body, |body, edit| edit.apply(body));
    Ok(Inspected {
        model: found.model,
        stream: found.stream,
        output: found.output,
        answers: found.answers,
        hides_output: found.hides_output,
        hides_usage: found.edits.iter().any(Edit::asks_for_usage),
        holds_media,
        older_limit: match (route.call, api) {
            (Call::Chat, Api::OpenaiChat) => OlderLimit::Written,
            (Call::Chat, Api::Openai | Api::Anthropic | Api::Gemini)
            | (
                Call::Messages
                | Call::CountMessages
                | Call::Responses
                | Call::Generate { .. }
                | Call::CountGenerate
                | Call::Models
                | Call::Count,
                _,
            ) => OlderLimit::AsGiven,
        },
        body,
    })
}

/// What the rules of one API found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) model: String,
    pub(super) stream: bool,
    pub(super) output: OutputLimit,
    pub(super) answers: u64,
    pub(super) hides_output: bool,
    pub(super) edits: Vec<Edit>,
}

/// A change the broker makes to a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edit {
    /// Asks for the usage report of a chat stream: `stream_options` is absent, or says otherwise.
    AddStreamOptions,
    ChangeStreamOptions,
    /// Says that nothing is to be kept, where the provider would by default.
    StoreNothing,
}

impl Edit {
    fn apply(&self, body: Vec<u8>) -> Vec<u8> {
        const USAGE: &str = r#"{"include_usage":true}"#;
        match self {
            Self::AddStreamOptions => with_field(&body, "stream_options", USAGE),
            Self::ChangeStreamOptions => {
                with_value(&body, "stream_options", |_| USAGE.to_owned()).unwrap_or(body)
            }
            Self::StoreNothing => with_field(&body, "store", "false"),
        }
    }

    fn asks_for_usage(&self) -> bool {
        match self {
            Self::AddStreamOptions | Self::ChangeStreamOptions => true,
            Self::StoreNothing => false,
        }
    }
}

impl Inspected {
    /// The body with the output limited to the `most` tokens that are paid for, where the client set no limit, a higher one
    /// or one that may not be understood.
    pub fn limited(mut self, most: u64) -> Vec<u8> {
        let number = most.to_string();
        if matches!(self.output, OutputLimit::Given(given) if given > most) {
            self.body = lowered(self.body, most);
        }
        if self.older_limit == OlderLimit::Written {
            let lower = |own: &str| own.parse().map_or(most, |own: u64| own.min(most)).to_string();
            return with_value(&self.body, "max_tokens", lower)
                .unwrap_or_else(|| with_field(&self.body, "max_tokens", &number));
        }
        match self.output {
            OutputLimit::Given(_) | OutputLimit::Unlimited => self.body,
            OutputLimit::Open(LimitField::MaxOutputTokens) => {
                with_field(&self.body, "max_output_tokens", &number)
            }
            OutputLimit::Open(LimitField::MaxCompletionTokens) => {
                with_field(&self.body, "max_completion_tokens", &number)
            }
            OutputLimit::Open(LimitField::MaxTokens) => with_field(&self.body, "max_tokens", &number),
            OutputLimit::Open(LimitField::GenerationConfig) => {
                let config = format!("{{\"maxOutputTokens\":{number}}}");
                with_field(&self.body, "generationConfig", &config)
            }
            OutputLimit::Open(LimitField::InGenerationConfig) => {
                let longer = |config: &str| with_text_field(config, "maxOutputTokens", &number);
                with_value(&self.body, "generationConfig", longer).unwrap_or(self.body)
            }
        }
    }
}

/// Every limit the client wrote, at most this high.
fn lowered(body: Vec<u8>, most: u64) -> Vec<u8> {
    let lower = |own: &str| own.parse().map_or(own.to_owned(), |own: u64| own.min(most).to_string());
    let at_top = ["max_tokens", "max_output_tokens", "max_completion_tokens"];
    let body = at_top.into_iter().fold(body, |body, field| with_value(&body, field, lower).unwrap_or(body));
    let inside = |config: &str| {
        let lowered = with_value(config.as_bytes(), "maxOutputTokens", lower);
        lowered.map_or_else(|| config.to_owned(), |text| String::from_utf8_lossy(&text).into_owned())
    };
    with_value(&body, "generationConfig", inside).unwrap_or(body)
}
