//! Documents good and bad, in both formats.

use pond_policy::node::Number;

use super::*;

fn number(literal: &str) -> Node {
    Node::Number(Number::from_literal(literal))
}

fn map(entries: &[(&str, Node)]) -> Node {
    Node::Map(entries.iter().map(|(key, node)| ((*key).to_owned(), node.clone())).collect())
}

/// Code and path of the one fault, and its message.
fn fault(result: Result<Node, Refusals>) -> (String, String) {
    let list = result.unwrap_err().into_list();
    assert_eq!(list.len(), 1);
    (format!("{} {}", list[0].code, list[0].path), list[0].message.clone())
}

#[test]
fn both_formats_keep_what_was_typed() {
    let expected = map(&[
        ("b", number("1e999")),
        ("a", Node::List(vec![Node::Null, Node::Bool(true), Node::text("x\ny"), number("-0")])),
        ("b", number("0.10")),
        ("", map(&[])),
    ]);
    let json = r#" {"b": 1e999, "a": [null, true, "x\ny", -0], "b": 0.10, "": {}} "#;
    let yaml = "# a comment\nb: 1e999\na:\n  - ~\n  - true\n  - \"x\\ny\"\n  - -0\nb: 0.10\n\"\": {}\n";
    assert_eq!(decode(json.as_bytes()), Ok(expected.clone()));
    assert_eq!(decode(yaml.as_bytes()), Ok(expected));
}

#[test]
fn yaml_scalars_follow_the_core_schema() {
    for (text, node) in [
        ("null", Node::Null),
        ("False", Node::Bool(false)),
        (".nan", number(".nan")),
        ("-.inf", number("-.inf")),
        ("+4", number("+4")),
        ("0x1F", number("0x1F")),
        ("0o17", number("0o17")),
        ("012", number("012")),
        ("1.", number("1.")),
        (".5", number(".5")),
        ("1e-3", number("1e-3")),
        ("'1'", Node::text("1")),
        ("\"true\"", Node::text("true")),
        ("yes", Node::text("yes")),
        ("off", Node::text("off")),
        ("1_000", Node::text("1_000")),
        ("1:30", Node::text("1:30")),
        ("4g", Node::text("4g")),
        ("1e", Node::text("1e")),
        (".", Node::text(".")),
        ("-", Node::List(vec![Node::Null])),
        ("nan", Node::text("nan")),
        ("+.nan", Node::text("+.nan")),
        ("2001-01-01", Node::text("2001-01-01")),
        ("|\n  a\n  b\n", Node::text("a\nb\n")),
    ] {
        assert_eq!(decode_yaml(text.as_bytes()), Ok(node), "{text}");
    }
}

#[test]
fn yaml_that_means_more_than_it_shows_is_refused() {
    for (text, place, what) in [
        ("a: &x 1\nb: *x\n", "document_invalid a", "line 1, column 7: an anchor"),
        ("a: 1\nb: *x\n", "document_invalid .", "line 2"),
        ("a: !!str 1\n", "document_invalid a", "line 1, column 10: a tag"),
        ("!foo {a: 1}", "document_invalid .", "a tag"),
        ("a: {<<: {b: 1}}\n", "document_invalid a", "line 1, column 5: a merge key"),
        ("a: 1\n---\nb: 2\n", "document_invalid .", "line 2, column 1: a second document"),
        ("1: a\n", "document_invalid .", "the key \"1\" is not text"),
        ("true: a\n", "document_invalid .", "the key \"true\" is not text"),
        ("~: a\n", "document_invalid .", "the key \"~\" is not text"),
        ("? [a]\n: b\n", "document_invalid .", "not accepted as a key"),
        ("%YAML 1.2\n---\na: 1\n", "document_invalid .", "line 1"),
        ("%TAG ! tag:x,2000:\n---\na: 1\n", "document_invalid .", "line 1"),
        ("", "document_invalid .", "empty"),
        ("# only a comment\n", "document_invalid .", "empty"),
        ("a: [1, 2\n", "document_invalid .", "not valid YAML"),
        ("a: 1\n b: 2\n", "document_invalid .", "not valid YAML"),
        ("a:\n\tb: 1\n", "document_invalid .", "not valid YAML"),
        ("a: 1\n}\n", "document_invalid .", "not valid YAML"),
    ] {
        let (found, message) = fault(decode_yaml(text.as_bytes()));
        assert_eq!(found, place, "{text:?}: {message}");
        assert!(message.contains(what), "{text:?}: {message}");
    }
}

#[test]
fn json_that_is_not_json_is_refused_with_its_place() {
    for (text, place, what) in [
        ("{", "document_invalid .", "line 1 column 1"),
        ("{\"a\": 1,}", "document_invalid .", "line 1 column 9"),
        ("{\"a\": 1} x", "document_invalid .", "trailing characters at line 1 column 10"),
        ("{\"a\": 1}{}", "document_invalid .", "trailing characters"),
        ("{\"a\": NaN}", "document_invalid .", "line 1"),
        ("{\"a\": 01}", "document_invalid .", "line 1"),
        ("{\"a\": 'x'}", "document_invalid .", "line 1"),
        ("{a: 1}", "document_invalid .", "line 1"),
        ("{\"a\": [1, \"\\ud800\"]}", "document_invalid a[1]", "not Unicode"),
        ("{\"a\": {\"\\udc00\": 1}}", "document_invalid a", "not Unicode"),
        ("{\"a\": \"\u{1}\"}", "document_invalid .", "control character"),
        ("{\"a\": 1 /* c */}", "document_invalid .", "line 1"),
        ("{\"a\": 1}\0", "document_invalid .", "trailing characters"),
    ] {
        let (found, message) = fault(decode(text.as_bytes()));
        assert_eq!(found, place, "{text:?}: {message}");
        assert!(message.contains(what), "{text:?}: {message}");
    }
}

#[test]
fn depth_is_bounded() {
    let json = |depth: usize| format!("{}{}", "{\"a\":".repeat(depth), "0") + &"}".repeat(depth);
    let flow = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let block =
        |depth: usize| (0..depth).map(|level| format!("{}a:\n", " ".repeat(level))).collect::<String>();
    assert_eq!(decode(json(MOST_DEPTH).as_bytes()).map(|_| ()), Ok(()));
    assert_eq!(decode_yaml(flow(MOST_DEPTH).as_bytes()).map(|_| ()), Ok(()));
    assert_eq!(decode_yaml(block(MOST_DEPTH).as_bytes()).map(|_| ()), Ok(()));
    for depth in [MOST_DEPTH + 1, 100, 100_000] {
        for found in [
            decode(json(depth).as_bytes()),
            decode_json(flow(depth).as_bytes()),
            decode_yaml(flow(depth).as_bytes()),
        ] {
            let (found, _) = fault(found);
            assert!(found.starts_with("document_too_deep "), "{depth}: {found}");
        }
    }
    assert!(fault(decode_yaml(block(MOST_DEPTH + 1).as_bytes())).0.starts_with("document_too_deep "));
}

#[test]
fn size_and_encoding_are_checked_first() {
    let mut large = vec![b' '; MOST_BYTES - 2];
    large.extend(b"{}");
    assert_eq!(decode(&large), Ok(map(&[])));
    large.push(b' ');
    let (found, message) = fault(decode(&large));
    assert_eq!(
        (found.as_str(), message.as_str()),
        ("document_too_large .", "the document has more than 1048576 bytes")
    );
    assert_eq!(fault(decode(b"\xef\xbb\xbf{}")).0, "document_invalid .");
    let (_, message) = fault(decode(b"{\"a\":\n\"\xff\"}"));
    assert_eq!(message, "line 2, byte 7: not UTF-8; save the document as UTF-8");
    assert_eq!(fault(decode(b"\xff\xfe{\0}\0")).0, "document_invalid .");
    assert_eq!(fault(decode(b"")).0, "document_invalid .");
    assert_eq!(fault(decode(b" \n\t ")).0, "document_invalid .");
}

#[test]
fn messages_carry_no_control_characters() {
    for text in
        ["\u{1b}[2J: &a\u{7} x", "a: !\u{202e}<x> 1", "\"\u{9b}\": 1\n*x", "{\"\u{1b}\"", "a: *\u{202e}x"]
    {
        let message = fault(decode(text.as_bytes())).1;
        assert!(message.is_ascii() && !message.contains(char::is_control), "{message:?}");
    }
}
