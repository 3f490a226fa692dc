//! Names of projects, stages and agents: short plain ASCII, safe in a path, a tag, a log line and a URL.

use std::fmt;

use crate::path::Path;
use crate::quote::quote;
use crate::refusal::{Code, Refusal};
use crate::shape::TextForm;

const RULE: &str =
    "a name of 1 to 64 letters, digits, dots, underscores or dashes, beginning with a letter or digit";

/// `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// The tenant work belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Project(Name);

impl Name {
    /// How a name is written in a document.
    pub const fn form(code: Code) -> TextForm {
        TextForm { pattern: "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", most: 64, check: is_name, code, rule: RULE }
    }

    pub fn parse(text: &str) -> Option<Self> {
        is_name(text).then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Project {
    /// A project named outside a document, at `path` in whatever named it.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Refusal> {
        let fault = || Refusal::new(Code::ProjectInvalid, path, format!("{}: expected {RULE}", quote(text)));
        Name::parse(text).map(Self).ok_or_else(fault)
    }

    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl From<Name> for Project {
    fn from(name: Name) -> Self {
        Self(name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Project {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn is_name(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for good in ["a", "Acme", "web-1", "v1.2_x", &"a".repeat(64)] {
            assert_eq!(Name::parse(good).map(|name| name.to_string()).as_deref(), Some(good));
        }
        for bad in ["", "-a", ".", "..", ".a", "a b", "a/b", "a:b", "é", "a\n", "a\0", &"a".repeat(65)] {
            assert_eq!(Name::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_bad_project_names_its_place() {
        let refusal = Project::parse("a:b", &Path::root().key(0, "project")).unwrap_err();
        assert_eq!((refusal.code, refusal.path.to_string()), (Code::ProjectInvalid, "project".into()));
    }
}
