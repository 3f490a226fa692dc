//! The bytes of one entry: a JSON object on one line, its fields in this order and nothing between them. The same line is what an
//! export has, so that any tool that can hash can check it.
//!
//! The detail is the JSON it was written as, never written again: what is hashed is what is stored. It comes last, so that no
//! detail, whatever somebody put there, makes an entry that reads like another.

use serde::Deserialize;
use serde_json::Value;

use crate::Digest;
use crate::audit::tree;

/// An entry, as the store has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    pub place: &'a str,
    /// Milliseconds since 1970.
    pub at: i64,
    pub actor: &'a str,
    pub action: &'a str,
    pub project: Option<&'a str>,
    pub subject: &'a str,
    /// JSON.
    pub detail: &'a str,
}

/// What somebody reads in a line whose place in the log was proved.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Read {
    pub place: String,
    pub at: i64,
    pub actor: String,
    pub action: String,
    pub project: Option<String>,
    pub subject: String,
    pub detail: Value,
}

impl Entry<'_> {
    /// Without the line's end.
    #[must_use]
    pub fn line(&self) -> String {
        let text = |text: &str| Value::from(text).to_string();
        let project = self.project.map_or_else(|| "null".to_owned(), text);
        format!(
            r#"{{"place":{},"at":{},"actor":{},"action":{},"project":{project},"subject":{},"detail":{}}}"#,
            text(self.place),
            self.at,
            text(self.actor),
            text(self.action),
            text(self.subject),
            self.detail
        )
    }

    #[must_use]
    pub fn leaf(&self) -> Digest {
        tree::leaf(self.line().as_bytes())
    }
}

impl Read {
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// Whether it says that the result with this envelope was accepted for this job.
    #[must_use]
    pub fn accepts(&self, job: &str, envelope: &Digest) -> bool {
        let says = |field: &str| self.detail.get(field).and_then(Value::as_str);
        self.action == "result.accepted"
            && says("job") == Some(job)
            && says("envelope") == Some(envelope.to_string().as_str())
    }
}
