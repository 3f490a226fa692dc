//! Names inside a sandbox document that become names elsewhere: the sandbox's id (a directory, a host name, a label) and a
//! companion's alias (a name the sandbox's resolver answers). Both are one DNS label, so neither can be a path, an option or two names.

use std::fmt;

use crate::refusal::Code;
use crate::shape::TextForm;

const PATTERN: &str = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";
const MOST: usize = 63;

/// Names that already mean something inside a sandbox.
const TAKEN: [&str; 5] = ["localhost", "pond", "gateway", "broker", "primary"];

/// A sandbox, on the machine that keeps it. Chosen by its caller or made by the keeper; never given to another sandbox.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SandboxId(String);

/// The name by which a sandbox reaches a companion.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Alias(String);

impl SandboxId {
    pub(super) const FORM: TextForm = TextForm {
        pattern: PATTERN,
        most: MOST,
        check: is_label,
        code: Code::IdInvalid,
        rule: "an id of 1 to 63 lower-case letters, digits and dashes, with no dash at either end",
    };

    pub fn parse(text: &str) -> Option<Self> {
        is_label(text).then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Alias {
    pub(super) const FORM: TextForm = TextForm {
        pattern: PATTERN,
        most: MOST,
        check: is_alias,
        code: Code::AliasInvalid,
        rule: "an alias of 1 to 63 lower-case letters, digits and dashes, with a letter among them, with no dash at either end, and none \
               of localhost, pond, gateway, broker, primary",
    };

    pub fn parse(text: &str) -> Option<Self> {
        is_alias(text).then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_label(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=MOST).contains(&text.len())
        && text.bytes().all(plain)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// A name of digits alone would be read as an address by some resolvers.
fn is_alias(text: &str) -> bool {
    is_label(text) && !TAKEN.contains(&text) && text.bytes().any(|b| b.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_aliases_are_one_plain_label() {
        for good in ["a", "box-1", "0f3", &"a".repeat(63)] {
            assert_eq!(SandboxId::parse(good).map(|id| id.to_string()).as_deref(), Some(good));
            assert_eq!(Alias::parse(good).map(|alias| alias.to_string()).as_deref(), Some(good));
        }
        for bad in
            ["", "-a", "a-", "A", "a.b", "a_b", "a b", "..", ".", "a/b", "é", "a\n", "a\0", &"a".repeat(64)]
        {
            assert_eq!((SandboxId::parse(bad), Alias::parse(bad)), (None, None), "{bad:?}");
        }
    }

    #[test]
    fn an_alias_is_no_address_and_no_name_that_is_taken() {
        for bad in ["127", "0", "localhost", "pond", "gateway", "broker", "primary"] {
            assert_eq!(Alias::parse(bad), None, "{bad}");
        }
    }
}
