//! A document as its author typed it: order, duplicate keys and the spelling of numbers are kept, so that the parser of
//! each field judges them. Decoders (pond-wire) build it; nothing in it has been believed yet.

/// One value of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    /// Keys in document order, duplicates included.
    Map(Vec<(String, Node)>),
}

/// A number by its literal: `NaN`, `1e999`, `-4` and `0.1` arrive unrounded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number(String);

impl Number {
    pub fn from_literal(literal: impl Into<String>) -> Self {
        Self(literal.into())
    }

    pub fn literal(&self) -> &str {
        &self.0
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self(value.to_string())
    }
}

impl Node {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// How a message names this kind of value.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "an object",
        }
    }
}
