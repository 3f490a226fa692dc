//! A moment in one spelling, `2026-01-31T23:59:59.000Z`, so that equal moments are equal texts and texts sort as time does.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

const PATTERN: &[u8; 24] = b"dddd-dd-ddTdd:dd:dd.dddZ";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UtcTime(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a time of the form 2026-01-31T23:59:59.000Z")]
pub struct NotATime;

impl UtcTime {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for UtcTime {
    type Error = NotATime;

    fn try_from(text: String) -> Result<Self, NotATime> {
        let fits = |(byte, wanted): (&u8, &u8)| match wanted {
            b'd' => byte.is_ascii_digit(),
            other => byte == other,
        };
        let whole = text.len() == PATTERN.len() && text.as_bytes().iter().zip(PATTERN).all(fits);
        if whole { Ok(Self(text)) } else { Err(NotATime) }
    }
}

impl From<UtcTime> for String {
    fn from(time: UtcTime) -> Self {
        time.0
    }
}

impl JsonSchema for UtcTime {
    fn schema_name() -> Cow<'static, str> {
        "UtcTime".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A moment in UTC, to the millisecond.",
            "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z$",
        })
    }
}
