//! Values of bodies that need more than a derive: a document as it was written, and what must not be printed.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A run document inside a body: the object itself, or its YAML or JSON text as one string.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Document(Box<RawValue>);

impl Document {
    /// A document from its text, whatever it is written in.
    pub fn from_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(text).map(Self)
    }

    /// The bytes the document's own decoder takes: repeated keys and odd numbers still in them.
    pub fn bytes(&self) -> Vec<u8> {
        let raw = self.0.get();
        // Only a string parses as one; the text of anything else is the document.
        serde_json::from_str::<String>(raw).map_or_else(|_| raw.as_bytes().to_vec(), String::into_bytes)
    }
}

impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Eq for Document {}

impl JsonSchema for Document {
    fn schema_name() -> Cow<'static, str> {
        "Document".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A run document (docs/schema/run.schema.json): the object itself, or its YAML or JSON text.",
            "type": ["object", "string"],
        })
    }
}

/// Text that is nobody's to see. It serialises, because that is how it gets here, and does not print.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Hidden(String);

impl Hidden {
    pub fn new(text: String) -> Self {
        Self(text)
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn into_inner(self) -> String {
        self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hidden({} bytes)", self.0.len())
    }
}
