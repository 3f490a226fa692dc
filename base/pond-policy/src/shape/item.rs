//! Reading a document by its table: what is there, what is missing, what should not be.

use super::{Echo, Field, Kind, Need, Shape};
use crate::near::nearest;
use crate::node::Node;
use crate::path::Path;
use crate::quote::quote;
use crate::refusal::{Code, Refusal, Refusals};

/// An object with more entries than this is refused unread: naming each unknown field would be work for nothing.
const MOST_ENTRIES: usize = 1000;

/// A value, the place it stands at, and what may stand there.
#[derive(Clone, Debug)]
pub struct Item<'n> {
    node: &'n Node,
    path: Path,
    kind: &'static Kind,
    echo: Echo,
}

/// The known fields of one object.
#[derive(Debug)]
pub struct Object<'n> {
    pub path: Path,
    items: Vec<(&'static str, Item<'n>)>,
}

impl Shape {
    pub fn read<'n>(
        &'static self,
        node: &'n Node,
        path: &Path,
        refusals: &mut Refusals,
    ) -> Option<Object<'n>> {
        let Node::Map(entries) = node else {
            refuse_type(&Kind::Object(self).expected(), node, path, refusals);
            return None;
        };
        if entries.len() > MOST_ENTRIES {
            let message = format!("{} fields given: {} has {}", entries.len(), self.name, self.fields.len());
            refusals.refuse(Code::TooMany, path, message);
            return None;
        }
        let mut object = Object { path: path.clone(), items: Vec::new() };
        for (position, (key, value)) in entries.iter().enumerate() {
            let Some(field) = self.fields.iter().find(|field| field.name == key) else {
                self.refuse_unknown(key, position, path, refusals);
                continue;
            };
            let path = path.key(position, key);
            match object.item(field) {
                Some(_) => refuse_duplicate(key, &path, refusals),
                None => {
                    let item = Item { node: value, path, kind: &field.kind, echo: self.echo };
                    object.items.push((field.name, item));
                }
            }
        }
        self.refuse_missing(&object, refusals);
        Some(object)
    }

    fn refuse_missing(&self, object: &Object<'_>, refusals: &mut Refusals) {
        for field in self.fields {
            if let (Need::Required(code), None) = (field.need, object.item(field)) {
                let message = format!("`{}` is missing: give {}", field.name, field.kind.expected());
                refusals.add(
                    Refusal::new(code, &object.path.field(field.name), message).allowing(field.kind.names()),
                );
            }
        }
    }

    fn refuse_unknown(&self, key: &str, position: usize, path: &Path, refusals: &mut Refusals) {
        let names: Vec<&str> = self.fields.iter().map(|field| field.name).collect();
        let (shown, path) = match self.echo {
            Echo::Nothing if !is_word(key) && nearest(key, &names).is_none() => {
                (format!("field number {}", position + 1), path.index(position))
            }
            Echo::Nothing | Echo::Given => (quote(key), path.key(position, key)),
        };
        let message = format!("{shown} is not a field of {}{}", self.name, did_you_mean(key, &names));
        refusals.add(Refusal::new(self.unknown, &path, message).allowing(&names));
    }
}

impl<'n> Object<'n> {
    pub fn item(&self, field: &Field) -> Option<&Item<'n>> {
        self.items.iter().find(|(name, _)| *name == field.name).map(|(_, item)| item)
    }
}

impl<'n> Item<'n> {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn node(&self) -> &'n Node {
        self.node
    }

    /// Whether it is a list or an object without members.
    pub fn is_empty(&self) -> bool {
        match self.node {
            Node::List(nodes) => nodes.is_empty(),
            Node::Map(entries) => entries.is_empty(),
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::Text(_) => false,
        }
    }

    /// Text that satisfies its form and its type.
    pub fn parsed<T>(&self, parse: fn(&str) -> Option<T>, refusals: &mut Refusals) -> Option<T> {
        let text = self.text(refusals)?;
        let value = parse(text);
        if value.is_none() {
            self.refuse_form(text, refusals);
        }
        value
    }

    /// Text that satisfies its form.
    pub fn text(&self, refusals: &mut Refusals) -> Option<&'n str> {
        let (Node::Text(text), Kind::Text(form)) = (self.node, self.kind) else {
            return self.refuse_type(refusals);
        };
        if !form.accepts(text) {
            self.refuse_form(text, refusals);
            return None;
        }
        Some(text)
    }

    /// A name from a closed list.
    pub fn choice<T>(&self, parse: fn(&str) -> Option<T>, refusals: &mut Refusals) -> Option<T> {
        let (Node::Text(text), Kind::Choice { names, code }) = (self.node, self.kind) else {
            return self.refuse_type(refusals);
        };
        let parsed = parse(text);
        if parsed.is_none() {
            let shown = match (self.echo, nearest(text, names)) {
                (Echo::Given, _) | (Echo::Nothing, Some(_)) => quote(text),
                (Echo::Nothing, None) => "what is given".to_owned(),
            };
            let message = format!("{shown} is not known here{}", did_you_mean(text, names));
            refusals.add(Refusal::new(*code, &self.path, message).allowing(names));
        }
        parsed
    }

    pub fn flag(&self, refusals: &mut Refusals) -> Option<bool> {
        match (self.node, self.kind) {
            (Node::Bool(value), Kind::Flag) => Some(*value),
            _ => self.refuse_type(refusals),
        }
    }

    /// A number or a number with a unit, as its own parser understands it.
    pub fn quantity<T, E: ToString>(
        &self,
        parse: fn(&str) -> Result<T, E>,
        refusals: &mut Refusals,
    ) -> Option<T> {
        let Kind::Quantity { code, form } = self.kind else {
            return self.refuse_type(refusals);
        };
        let parsed = match self.node {
            Node::Text(text) => parse(text),
            Node::Number(number) => parse(number.literal()),
            Node::Null | Node::Bool(_) | Node::List(_) | Node::Map(_) => return self.refuse_type(refusals),
        };
        let message = |fault: E| match self.echo {
            Echo::Given => fault.to_string(),
            Echo::Nothing => format!("expected {}", form.rule),
        };
        parsed.map_err(|fault| refusals.refuse(*code, &self.path, message(fault))).ok()
    }

    pub fn object(&self, refusals: &mut Refusals) -> Option<Object<'n>> {
        match self.kind {
            Kind::Object(shape) => shape.read(self.node, &self.path, refusals),
            Kind::Choice { .. }
            | Kind::Text(_)
            | Kind::Flag
            | Kind::Quantity { .. }
            | Kind::List { .. }
            | Kind::Map { .. } => self.refuse_type(refusals),
        }
    }

    /// The members of a list of acceptable length.
    pub fn list(&self, refusals: &mut Refusals) -> Option<Vec<Item<'n>>> {
        let (Node::List(nodes), Kind::List { of, least, most }) = (self.node, self.kind) else {
            return self.refuse_type(refusals);
        };
        if !self.check_count(nodes.len(), *least, *most, refusals) {
            return None;
        }
        let member = |(index, node)| Item { node, path: self.path.index(index), kind: of, echo: self.echo };
        Some(nodes.iter().enumerate().map(member).collect())
    }

    /// The entries of an object with free keys.
    pub fn map(&self, refusals: &mut Refusals) -> Option<Vec<(&'n str, Item<'n>)>> {
        let (Node::Map(entries), Kind::Map { key: form, of, most }) = (self.node, self.kind) else {
            return self.refuse_type(refusals);
        };
        if !self.check_count(entries.len(), 0, *most, refusals) {
            return None;
        }
        let mut items: Vec<(&str, Item<'_>)> = Vec::new();
        for (position, (key, node)) in entries.iter().enumerate() {
            let path = self.path.key(position, key);
            if !form.accepts(key) {
                let place = if self.echo == Echo::Nothing { self.path.index(position) } else { path };
                form.refuse(key, self.echo, &place, refusals);
            } else if items.iter().any(|(seen, _)| seen == key) {
                refuse_duplicate(key, &path, refusals);
            } else {
                items.push((key, Item { node, path, kind: of, echo: self.echo }));
            }
        }
        Some(items)
    }

    fn check_count(&self, count: usize, least: usize, most: usize, refusals: &mut Refusals) -> bool {
        let code = if count < least { Code::TooFew } else { Code::TooMany };
        let fits = (least..=most).contains(&count);
        if !fits {
            refusals.refuse(code, &self.path, format!("{count} given: expected {least} to {most}"));
        }
        fits
    }

    fn refuse_form(&self, text: &str, refusals: &mut Refusals) {
        if let Kind::Text(form) = self.kind {
            form.refuse(text, self.echo, &self.path, refusals);
        }
    }

    fn refuse_type<T>(&self, refusals: &mut Refusals) -> Option<T> {
        refuse_type(&self.kind.expected(), self.node, &self.path, refusals);
        None
    }
}

fn refuse_type(expected: &str, node: &Node, path: &Path, refusals: &mut Refusals) {
    refusals.refuse(Code::WrongType, path, format!("expected {expected}, found {}", node.kind()));
}

fn refuse_duplicate(key: &str, path: &Path, refusals: &mut Refusals) {
    let message = format!("{} is given twice; keep one", quote(key));
    refusals.refuse(Code::DuplicateField, path, message);
}

/// A key has digits, capitals or more letters.
fn is_word(text: &str) -> bool {
    text.len() <= 20 && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

fn did_you_mean(given: &str, names: &[&str]) -> String {
    nearest(given, names).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}
