//! A refusal in the words of the API that was asked, so that a client shows it to its user and does not try again.

use pond_policy::model::Api;
use serde_json::{Value, json};

use super::route::Call;
use crate::http::{Refusal, printable};

const LONGEST: usize = 400;

/// Why a request goes no further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Denied {
    pub(super) status: u16,
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) retry_after: Option<u32>,
}

impl Denied {
    pub(super) fn new(status: u16, code: &'static str, message: impl ToString) -> Self {
        Self { status, code, message: printable(&message.to_string(), LONGEST), retry_after: None }
    }

    /// Refuses a call that the provider charges for more than is left.
    pub(super) fn over_budget(message: impl ToString) -> Self {
        Self::new(403, "budget_exceeded", message)
    }

    pub(super) fn response(&self, dialect: Dialect) -> Refusal {
        let mut refusal = Refusal::new(self.status, self.code, format!("pond: {}", self.message))
            .with_header("x-should-retry", if self.retry_after.is_some() { "true" } else { "false" });
        if let Some(seconds) = self.retry_after {
            refusal = refusal.with_header("Retry-After", seconds.to_string());
        }
        refusal.json = Some(self.document(dialect).to_string());
        refusal
    }

    /// The last event of a stream that is cut.
    pub(super) fn event(&self, dialect: Dialect) -> Vec<u8> {
        let document = self.document(dialect);
        match dialect {
            Dialect::Anthropic => format!("event: error\ndata: {document}\n\n"),
            Dialect::Responses => {
                let failed = json!({"type": "response.failed", "response": {"status": "failed",
                    "error": {"code": "insufficient_quota", "message": self.text()}}});
                format!("event: response.failed\ndata: {failed}\n\n")
            }
            Dialect::Chat | Dialect::Gemini => format!("data: {document}\n\n"),
        }
        .into_bytes()
    }

    fn document(&self, dialect: Dialect) -> Value {
        match dialect {
            Dialect::Anthropic => {
                json!({"type": "error", "error": {"type": self.anthropic_type(), "message": self.text()}})
            }
            Dialect::Responses | Dialect::Chat => {
                json!({"error": {"message": self.text(), "type": "invalid_request_error", "param": null,
                    "code": self.code}})
            }
            Dialect::Gemini => {
                json!({"error": {"code": self.status, "message": self.text(), "status": self.google_status()}})
            }
        }
    }

    fn text(&self) -> String {
        format!("pond: {} [{}]", self.message, self.code)
    }

    const fn anthropic_type(&self) -> &'static str {
        match self.status {
            401 => "authentication_error",
            403 => "permission_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        }
    }

    const fn google_status(&self) -> &'static str {
        match self.status {
            401 => "UNAUTHENTICATED",
            403 => "PERMISSION_DENIED",
            429 => "RESOURCE_EXHAUSTED",
            500.. => "UNAVAILABLE",
            _ => "INVALID_ARGUMENT",
        }
    }
}

/// Whose error shape is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Anthropic,
    Responses,
    Chat,
    Gemini,
}

impl Dialect {
    pub(super) const fn of_call(call: Call, api: Api) -> Self {
        match (call, api) {
            (Call::Messages | Call::CountMessages, _) | (Call::Models | Call::Count, Api::Anthropic) => {
                Self::Anthropic
            }
            (Call::Responses, _) => Self::Responses,
            (Call::Chat, _) | (Call::Models | Call::Count, Api::Openai | Api::OpenaiChat) => Self::Chat,
            (Call::Generate { .. } | Call::CountGenerate, _) | (Call::Models | Call::Count, Api::Gemini) => {
                Self::Gemini
            }
        }
    }

    pub(super) const fn of_api(api: Api) -> Self {
        match api {
            Api::Anthropic => Self::Anthropic,
            Api::Openai => Self::Responses,
            Api::OpenaiChat => Self::Chat,
            Api::Gemini => Self::Gemini,
        }
    }
}
