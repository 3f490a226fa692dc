//! YAML to [`Node`]: one document, built from parser events, scalars by the core schema of YAML 1.2.
//!
//! Anchors, aliases, tags, merge keys, directives, non-text keys and further documents are refused with their line: each
//! lets a reviewed document mean something other than what it shows.

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, StrInput, options};
use pond_policy::node::{Node, Number};
use pond_policy::path::Path;
use pond_policy::quote::{escape, quote};
use pond_policy::refusal::{Code, Refusal};

use super::{MOST_DEPTH, invalid, too_deep};

pub(super) fn decode(text: &str) -> Result<Node, Refusal> {
    let limits = options! {
        emit_comments: false,
        disallow_directives: true,
        flow_nesting_limit: 2 * MOST_DEPTH,
        block_nesting_limit: 2 * MOST_DEPTH,
    };
    let mut events = Events(Parser::new_from_str_with_options(text, limits));
    let (Event::StreamStart, _) = events.next()? else { return Err(empty()) };
    let (Event::DocumentStart(..), _) = events.next()? else { return Err(empty()) };
    let (first, span) = events.next()?;
    let node = events.node(first, span, &Path::root(), 0)?;
    let (Event::DocumentEnd, _) = events.next()? else { return Err(empty()) };
    match events.next()? {
        (Event::StreamEnd, _) => Ok(node),
        (_, span) => Err(refuse("a second document is not accepted; keep one", span, &Path::root())),
    }
}

struct Events<'t>(Parser<'t, StrInput<'t>>);

impl<'t> Events<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Span), Refusal> {
        self.0.next_event().unwrap_or(Ok((Event::StreamEnd, Span::default()))).map_err(|error| syntax(&error))
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the parser's events are not ours and may grow; all others are refused"
    )]
    fn node(&mut self, event: Event<'t>, span: Span, path: &Path, depth: usize) -> Result<Node, Refusal> {
        refuse_magic(&event, span, path)?;
        match event {
            Event::Scalar(text, ScalarStyle::Plain, ..) => Ok(plain(&text)),
            Event::Scalar(text, ..) => Ok(Node::Text(text.into_owned())),
            Event::SequenceStart(..) | Event::MappingStart(..) if depth == MOST_DEPTH => Err(too_deep(path)),
            Event::SequenceStart(..) => self.list(path, depth + 1),
            Event::MappingStart(..) => self.map(path, depth + 1),
            _ => Err(refuse("a value is missing", span, path)),
        }
    }

    fn list(&mut self, path: &Path, depth: usize) -> Result<Node, Refusal> {
        let mut members = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Node::List(members)),
                (event, span) => members.push(self.node(event, span, &path.index(members.len()), depth)?),
            }
        }
    }

    fn map(&mut self, path: &Path, depth: usize) -> Result<Node, Refusal> {
        let mut entries = Vec::new();
        loop {
            let key = match self.next()? {
                (Event::MappingEnd, _) => return Ok(Node::Map(entries)),
                (event, span) => key(event, span, path)?,
            };
            let (event, span) = self.next()?;
            let value = self.node(event, span, &path.key(entries.len(), &key), depth)?;
            entries.push((key, value));
        }
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the parser's events are not ours and may grow; all others are refused"
)]
fn key(event: Event<'_>, span: Span, path: &Path) -> Result<String, Refusal> {
    refuse_magic(&event, span, path)?;
    match event {
        Event::Scalar(text, ScalarStyle::Plain, ..) if text == "<<" => {
            Err(refuse("a merge key is not accepted; write the fields out", span, path))
        }
        Event::Scalar(text, ScalarStyle::Plain, ..) => match plain(&text) {
            Node::Text(key) => Ok(key),
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::List(_) | Node::Map(_) => {
                Err(refuse(&format!("the key {} is not text; put it in quotes", quote(&text)), span, path))
            }
        },
        Event::Scalar(text, ..) => Ok(text.into_owned()),
        _ => Err(refuse("a list or an object is not accepted as a key", span, path)),
    }
}

fn refuse_magic(event: &Event<'_>, span: Span, path: &Path) -> Result<(), Refusal> {
    let magic = if event.is_alias() {
        "an alias is not accepted; write the value out"
    } else if event.anchor_id().is_some() {
        "an anchor is not accepted; write the value out"
    } else if event.tag().is_some() {
        "a tag is not accepted; write the plain value"
    } else {
        return Ok(());
    };
    Err(refuse(magic, span, path))
}

/// An unquoted scalar, by the core schema. Numbers keep their literal; their field decides what they are worth.
fn plain(text: &str) -> Node {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Node::Null,
        "true" | "True" | "TRUE" => Node::Bool(true),
        "false" | "False" | "FALSE" => Node::Bool(false),
        _ if is_number(text) => Node::Number(Number::from_literal(text)),
        _ => Node::text(text),
    }
}

fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let all = |digits: &str, is: fn(&u8) -> bool| !digits.is_empty() && digits.bytes().all(|b| is(&b));
    let special = matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN");
    let octal = text.strip_prefix("0o").is_some_and(|digits| all(digits, |b| (b'0'..=b'7').contains(b)));
    let hex = text.strip_prefix("0x").is_some_and(|digits| all(digits, u8::is_ascii_hexdigit));
    special || octal || hex || is_decimal(unsigned)
}

/// Digits with an optional fraction and exponent; at least one digit before the exponent.
fn is_decimal(text: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (mantissa, exponent) = text.split_once(['e', 'E']).map_or((text, None), |(m, e)| (m, Some(e)));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_fits = exponent.is_none_or(|exponent| {
        let unsigned = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !unsigned.is_empty() && digits(unsigned)
    });
    digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty()) && exponent_fits
}

fn refuse(what: &str, span: Span, path: &Path) -> Refusal {
    let (line, column) = (span.start.line(), span.start.col() + 1);
    let message = format!("line {line}, column {column}: {what}");
    Refusal::new(Code::DocumentInvalid, path, message)
}

fn syntax(error: &ScanError) -> Refusal {
    if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
        return too_deep(&Path::root());
    }
    let (line, column) = (error.marker().line(), error.marker().col() + 1);
    invalid(&format!("line {line}, column {column}: not valid YAML: {}", escape(&error.info(), 200)))
}

fn empty() -> Refusal {
    invalid("the document is empty")
}
