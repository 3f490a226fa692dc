//! Objects as tables: which fields exist, which must, what each may hold. The reader below and the published JSON Schema
//! (pond-wire) are made from the same tables, so they cannot disagree.
//!
//! Invariants: an unknown, duplicate or missing field, and a value of another type, is always a fault; `null` is a value
//! of the wrong type, never "absent"; reading goes on after a fault so that all are found at once.

mod item;

use crate::path::Path;
use crate::quote::quote;
use crate::refusal::{Code, Refusals};

pub use item::{Item, Object};

/// An object and its fields.
#[derive(Debug)]
pub struct Shape {
    pub name: &'static str,
    pub doc: &'static str,
    pub fields: &'static [Field],
    /// The code of a field that is not in the table.
    pub unknown: Code,
    pub echo: Echo,
}

/// What a fault repeats of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Echo {
    /// The text that is at fault.
    Given,
    /// Nothing, unless it is nearly what should be there: a key may have been pasted in the wrong place.
    Nothing,
}

#[derive(Debug)]
pub struct Field {
    pub name: &'static str,
    pub need: Need,
    pub kind: Kind,
    pub doc: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub enum Need {
    Optional,
    /// Its absence is a fault of this code.
    Required(Code),
}

/// What a field may hold.
#[derive(Debug)]
pub enum Kind {
    Choice {
        names: &'static [&'static str],
        code: Code,
    },
    Text(TextForm),
    /// `true` or `false`.
    Flag,
    Quantity {
        form: QuantityForm,
        code: Code,
    },
    Object(&'static Shape),
    List {
        of: &'static Kind,
        least: usize,
        most: usize,
    },
    Map {
        key: TextForm,
        of: &'static Kind,
        most: usize,
    },
}

/// Text that `check` accepts. `pattern` says the same, as far as a schema can.
#[derive(Clone, Copy, Debug)]
pub struct TextForm {
    pub pattern: &'static str,
    /// Longest accepted text, in bytes.
    pub most: usize,
    pub check: fn(&str) -> bool,
    pub code: Code,
    /// Completes the sentence "expected …".
    pub rule: &'static str,
}

/// A number, or text holding one with a unit.
#[derive(Clone, Copy, Debug)]
pub struct QuantityForm {
    pub pattern: &'static str,
    pub number: Numeric,
    /// Completes the sentence "expected …".
    pub rule: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numeric {
    Integer,
    Decimal,
}

impl TextForm {
    pub(crate) fn accepts(&self, text: &str) -> bool {
        text.len() <= self.most && (self.check)(text)
    }

    pub(crate) fn refuse(&self, text: &str, echo: Echo, path: &Path, refusals: &mut Refusals) {
        let message = match echo {
            Echo::Given => format!("{}: expected {}", quote(text), self.rule),
            Echo::Nothing => format!("expected {}", self.rule),
        };
        refusals.refuse(self.code, path, message);
    }
}

impl Kind {
    fn expected(&self) -> String {
        match self {
            Self::Choice { names, .. } => format!("one of {}", names.join(", ")),
            Self::Text(form) => form.rule.to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Quantity { form, .. } => form.rule.to_owned(),
            Self::Object(shape) => {
                let names: Vec<&str> = shape.fields.iter().map(|field| field.name).collect();
                format!("an object with {}", names.join(", "))
            }
            Self::List { .. } => "a list".to_owned(),
            Self::Map { .. } => "an object".to_owned(),
        }
    }

    const fn names(&self) -> &'static [&'static str] {
        match self {
            Self::Choice { names, .. } => names,
            Self::Text(_)
            | Self::Flag
            | Self::Quantity { .. }
            | Self::Object(_)
            | Self::List { .. }
            | Self::Map { .. } => &[],
        }
    }
}
