//! Where in a document something stands: `stages[0].executor.sandbox.overrides.memory`.
//!
//! A step remembers its position among its siblings, so that faults sort in document order. Keys that are not plain
//! identifiers are printed quoted and escaped: no key can act on a terminal or pass for another path.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::quote::quote;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A field known by name only: sorts before those known by position.
    Field(String),
    /// The key at this position of its object.
    Key(usize, String),
    Index(usize),
}

/// A place in a document; the order is document order. A path shares its parent's steps, because a decoder makes one for
/// every value of a hostile document.
#[derive(Clone, Debug, Default)]
pub struct Path(Option<Arc<Link>>);

#[derive(Debug)]
struct Link {
    parent: Path,
    step: Step,
}

impl Path {
    pub const fn root() -> Self {
        Self(None)
    }

    /// The value of `key`, the object's field number `position`.
    #[must_use]
    pub fn key(&self, position: usize, key: &str) -> Self {
        self.with(Step::Key(position, key.to_owned()))
    }

    /// A field by its name alone: one that is missing, or whose position its reader no longer has.
    #[must_use]
    pub fn field(&self, key: &str) -> Self {
        self.with(Step::Field(key.to_owned()))
    }

    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    fn with(&self, step: Step) -> Self {
        Self(Some(Arc::new(Link { parent: self.clone(), step })))
    }

    /// The steps from the root.
    fn steps(&self) -> Vec<&Step> {
        let upwards = std::iter::successors(self.0.as_deref(), |link| link.parent.0.as_deref());
        let mut steps: Vec<&Step> = upwards.map(|link| &link.step).collect();
        steps.reverse();
        steps
    }
}

impl Ord for Path {
    fn cmp(&self, other: &Self) -> Ordering {
        self.steps().cmp(&other.steps())
    }
}

impl PartialOrd for Path {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Path {}

impl PartialEq for Path {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.steps();
        if steps.is_empty() {
            return f.write_str(".");
        }
        for (depth, step) in steps.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(_, key) | Step::Field(key) if is_plain(key) => {
                    let dot = if depth == 0 { "" } else { "." };
                    write!(f, "{dot}{key}")?;
                }
                Step::Key(_, key) | Step::Field(key) => write!(f, "[{}]", quote(key))?,
            }
        }
        Ok(())
    }
}

fn is_plain(key: &str) -> bool {
    !key.is_empty()
        && key.len() <= 64
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_print_as_written() {
        let root = Path::root();
        assert_eq!(root.to_string(), ".");
        let memory = root.key(0, "stages").index(2).key(1, "executor").field("memory");
        assert_eq!(memory.to_string(), "stages[2].executor.memory");
        assert_eq!(root.key(0, "a.b").key(0, "\u{1b}[31m").to_string(), "[\"a.b\"][\"\\u{1b}[31m\"]");
        assert_eq!(root.key(0, "").to_string(), "[\"\"]");
    }

    #[test]
    fn paths_sort_in_document_order() {
        let root = Path::root();
        let ordered = [
            root.clone(),
            root.field("z"),
            root.key(0, "z"),
            root.key(1, "a"),
            root.key(1, "a").index(9),
            root.key(1, "a").index(10),
            root.key(2, "a"),
        ];
        assert!(ordered.is_sorted());
    }
}
