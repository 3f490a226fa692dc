//! JSON to [`Node`]. serde_json checks the syntax of the whole text first; then each level is split into its raw parts,
//! which keeps duplicate keys and the literals of numbers without a global change to how serde_json holds numbers.

use std::fmt;

use pond_policy::node::{Node, Number};
use pond_policy::path::Path;
use pond_policy::quote::escape;
use pond_policy::refusal::{Code, Refusal};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{MOST_DEPTH, invalid, too_deep};

pub(super) fn decode(text: &str) -> Result<Node, Refusal> {
    let whole: &RawValue = serde_json::from_str(text)
        .map_err(|error| invalid(&format!("not valid JSON: {}", escape(&error.to_string(), 200))))?;
    node(whole, &Path::root(), 0)
}

fn node(raw: &RawValue, path: &Path, depth: usize) -> Result<Node, Refusal> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'{' | b'[') if depth == MOST_DEPTH => Err(too_deep(path)),
        Some(b'{') => map(text, path, depth + 1),
        Some(b'[') => list(text, path, depth + 1),
        Some(b'"') => read(text, path).map(Node::Text),
        Some(b't') => Ok(Node::Bool(true)),
        Some(b'f') => Ok(Node::Bool(false)),
        Some(b'n') => Ok(Node::Null),
        Some(_) | None => Ok(Node::Number(Number::from_literal(text))),
    }
}

fn map(text: &str, path: &Path, depth: usize) -> Result<Node, Refusal> {
    let Entries(entries) = read(text, path)?;
    let entry = |(position, (key, raw)): (usize, (String, &RawValue))| {
        let value = node(raw, &path.key(position, &key), depth)?;
        Ok((key, value))
    };
    entries.into_iter().enumerate().map(entry).collect::<Result<_, _>>().map(Node::Map)
}

fn list(text: &str, path: &Path, depth: usize) -> Result<Node, Refusal> {
    let members: Vec<&RawValue> = read(text, path)?;
    let member = |(index, raw): (usize, &&RawValue)| node(raw, &path.index(index), depth);
    members.iter().enumerate().map(member).collect::<Result<_, _>>().map(Node::List)
}

/// Reads one level. The syntax has been checked, so only an escape can be wrong, which the first pass does not decode.
fn read<'a, T: Deserialize<'a>>(text: &'a str, path: &Path) -> Result<T, Refusal> {
    let message = "not valid JSON: an escape sequence is not Unicode text";
    serde_json::from_str(text).map_err(|_| Refusal::new(Code::DocumentInvalid, path, message))
}

/// The entries of an object in order, duplicates included.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}
