//! TOML to [`Node`]. The language itself refuses a key given twice; numbers keep their literal, order is the document's.
//! Dates have no place in any of our documents and are refused.

use std::borrow::Cow;

use pond_policy::node::{Node, Number};
use pond_policy::path::Path;
use pond_policy::quote::escape;
use pond_policy::refusal::{Code, Refusal};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{MOST_DEPTH, invalid, too_deep};

pub(super) fn decode(text: &str) -> Result<Node, Refusal> {
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        // The parser's full text would quote the line, and a line may hold what should not be shown.
        invalid(&format!("line {line}: not valid TOML: {}", escape(error.message(), 200)))
    })?;
    map(table.into_inner(), &Path::root(), 0)
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
}

fn map(table: DeTable<'_>, path: &Path, depth: usize) -> Result<Node, Refusal> {
    if depth == MOST_DEPTH {
        return Err(too_deep(path));
    }
    let mut entries: Vec<(Spanned<Cow<'_, str>>, Spanned<DeValue<'_>>)> = table.into_iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut nodes = Vec::with_capacity(entries.len());
    for (position, (key, value)) in entries.into_iter().enumerate() {
        let key = key.into_inner().into_owned();
        let value = node(value.into_inner(), &path.key(position, &key), depth + 1)?;
        nodes.push((key, value));
    }
    Ok(Node::Map(nodes))
}

fn node(value: DeValue<'_>, path: &Path, depth: usize) -> Result<Node, Refusal> {
    match value {
        DeValue::String(text) => Ok(Node::Text(text.into_owned())),
        DeValue::Integer(number) => Ok(Node::Number(Number::from_literal(number.to_string()))),
        DeValue::Float(number) => Ok(Node::Number(Number::from_literal(number.as_str()))),
        DeValue::Boolean(value) => Ok(Node::Bool(value)),
        DeValue::Datetime(_) => {
            Err(Refusal::new(Code::DocumentInvalid, path, "a date is not accepted; put it in quotes"))
        }
        DeValue::Array(_) if depth == MOST_DEPTH => Err(too_deep(path)),
        DeValue::Array(items) => {
            let item = |(index, item): (usize, Spanned<DeValue<'_>>)| {
                node(item.into_inner(), &path.index(index), depth + 1)
            };
            items.into_iter().enumerate().map(item).collect::<Result<_, _>>().map(Node::List)
        }
        DeValue::Table(table) => map(table, path, depth),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MOST_DEPTH, decode_toml};
    use super::*;

    fn fault(text: &str) -> String {
        decode_toml(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn order_and_literals_are_kept() {
        let text = "[model.b]\nn = 0.10\nm = 007_x\n"
            .replace("m = 007_x\n", "m = 1_000\n[model.a]\nok = true\nl = [\"x\", 1]\n");
        let map = |entries: Vec<(&str, Node)>| {
            Node::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
        };
        let number = |literal: &str| Node::Number(Number::from_literal(literal));
        let b = map(vec![("n", number("0.10")), ("m", number("1000"))]);
        let a = map(vec![("ok", Node::Bool(true)), ("l", Node::List(vec![Node::text("x"), number("1")]))]);
        assert_eq!(decode_toml(text.as_bytes()), Ok(map(vec![("model", map(vec![("b", b), ("a", a)]))])));
    }

    #[test]
    fn what_is_wrong_is_named_by_line_and_never_quoted() {
        assert!(
            fault("a = 1\nkey = sk-secret-value\n").starts_with(".: line 2: not valid TOML"),
            "{}",
            fault("a = 1\nkey = sk-secret-value\n")
        );
        assert!(!fault("a = 1\nkey = sk-secret-value\n").contains("secret"));
        assert!(fault("a = 1\na = 2\n").contains("duplicate key"));
        assert_eq!(
            fault("a = 2026-01-01\n"),
            "a: a date is not accepted; put it in quotes [document_invalid]"
        );
        let deep = format!("a = {}1{}", "[".repeat(MOST_DEPTH + 1), "]".repeat(MOST_DEPTH + 1));
        assert!(fault(&deep).contains("document_too_deep"), "{}", fault(&deep));
        assert!(!fault(&format!("a = {}", "[".repeat(100_000))).is_empty());
    }
}
