//! A request body as a tree, read once and strictly: a repeated key at any depth, a number out of range, a byte that is
//! not UTF-8 and nesting beyond the reader's limit are refused, so that what is judged here is what the provider reads.
//! The number of values is bounded: a small body must not buy a large tree.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use thiserror::Error;

const MOST_VALUES: usize = 500_000;

/// Says where, never what: the text is the client's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the body is not plain JSON: {0}")]
pub struct JsonFault(String);

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json<'a> {
    Null,
    Bool(bool),
    Whole(u64),
    /// Any other number.
    Number,
    Text(Cow<'a, str>),
    List(Vec<Json<'a>>),
    Map(Vec<(Cow<'a, str>, Json<'a>)>),
}

impl<'a> Json<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, JsonFault> {
        let left = Cell::new(MOST_VALUES);
        let mut reader = serde_json::Deserializer::from_slice(bytes);
        let fault = |error: serde_json::Error| JsonFault(error.to_string());
        let tree = Tree(&left).deserialize(&mut reader).map_err(fault)?;
        reader.end().map_err(fault)?;
        Ok(tree)
    }

    /// The value of a key that is there and not null.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(entries) => entries.iter().find(|(own, _)| own == key).map(|(_, value)| value),
            Self::Null | Self::Bool(_) | Self::Whole(_) | Self::Number | Self::Text(_) | Self::List(_) => {
                None
            }
        }
        .filter(|value| **value != Self::Null)
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Null | Self::Bool(_) | Self::Whole(_) | Self::Number | Self::List(_) | Self::Map(_) => None,
        }
    }

    /// The items of a list, for walks that meet every kind of value. A field that must be a list is read with
    /// `rules::list`, which does not take another kind for an empty one.
    pub(super) fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            Self::Null | Self::Bool(_) | Self::Whole(_) | Self::Number | Self::Text(_) | Self::Map(_) => &[],
        }
    }

    pub(super) fn entries(&self) -> &[(Cow<'a, str>, Self)] {
        match self {
            Self::Map(entries) => entries,
            Self::Null | Self::Bool(_) | Self::Whole(_) | Self::Number | Self::Text(_) | Self::List(_) => &[],
        }
    }
}

/// The body with `"key":value` as its first field. The body is an object that lacks the key.
pub(super) fn with_field(body: &[u8], key: &str, value: &str) -> Vec<u8> {
    let open = body.iter().position(|byte| *byte == b'{').map_or(0, |at| at + 1);
    let (before, after) = body.split_at(open);
    let empty = after.trim_ascii_start().starts_with(b"}");
    let field = format!("\"{key}\":{value}{}", if empty { "" } else { "," });
    [before, field.as_bytes(), after].concat()
}

/// The same of an object inside a body.
pub(super) fn with_text_field(object: &str, key: &str, value: &str) -> String {
    String::from_utf8_lossy(&with_field(object.as_bytes(), key, value)).into_owned()
}

/// The body with another value for a key that is there; everything else byte for byte.
pub(super) fn with_value(body: &[u8], key: &str, change: impl FnOnce(&str) -> String) -> Option<Vec<u8>> {
    let entries: std::collections::HashMap<String, &RawValue> = serde_json::from_slice(body).ok()?;
    let old = entries.get(key)?.get();
    let start = old.as_ptr().addr().checked_sub(body.as_ptr().addr())?;
    let (before, after) = (body.get(..start)?, body.get(start + old.len()..)?);
    Some([before, change(old).as_bytes(), after].concat())
}

struct Tree<'c>(&'c Cell<usize>);

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Json<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json<'de>, D::Error> {
        let left = self.0.get().checked_sub(1).ok_or_else(|| D::Error::custom("too many values"))?;
        self.0.set(left);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(Json::Whole(value))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Json<'de>, E> {
        Ok(Json::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Json<'de>, E> {
        Ok(Json::Number)
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Tree(self.0))? {
            items.push(item);
        }
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json<'de>, A::Error> {
        let (mut entries, mut seen) = (Vec::new(), HashSet::new());
        while let Some(key) = map.next_key_seed(Tree(self.0))? {
            let Json::Text(key) = key else { return Err(A::Error::custom("a key is not text")) };
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom("a key is repeated"));
            }
            entries.push((key, map.next_value_seed(Tree(self.0))?));
        }
        Ok(Json::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c106_what_two_readers_could_read_differently_is_refused() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let many = format!("[{}0]", "0,".repeat(MOST_VALUES));
        for (text, why) in [
            (&br#"{"model":"a","model":"b"}"#[..], "a key is repeated"),
            (br#"{"a":[{"b":1,"\u0062":2}]}"#, "a key is repeated"),
            (deep.as_bytes(), "recursion limit"),
            (many.as_bytes(), "too many values"),
            (br#"{"max_tokens":1e999}"#, "number out of range"),
            (b"{\"a\":\"\xff\"}", "invalid unicode"),
            (b"\xef\xbb\xbf{}", "expected value"),
            (br#"{"a":"\ud800"}"#, "hex escape"),
            (br#"{"a":1}{}"#, "trailing"),
            (br#"{"a":01}"#, "invalid number"),
            (b"{\"a\":\"\n\"}", "control character"),
            (b"", "EOF"),
        ] {
            let fault = Json::parse(text).unwrap_err().0;
            assert!(fault.contains(why), "{fault}: {why}");
        }
    }

    #[test]
    fn an_edit_changes_one_field_and_no_other_byte() {
        assert_eq!(with_field(b" { \"a\" : 1 }", "n", "2"), b" {\"n\":2, \"a\" : 1 }");
        assert_eq!(with_field(b"{ }", "n", "2"), b"{\"n\":2 }");
        let body = br#"{"x": "{", "o" : {"a": 1} , "z":0}"#;
        let edited = with_value(body, "o", |old| format!("<{old}>")).unwrap();
        assert_eq!(edited, br#"{"x": "{", "o" : <{"a": 1}> , "z":0}"#);
        assert_eq!(with_value(body, "q", str::to_owned), None);
    }
}
