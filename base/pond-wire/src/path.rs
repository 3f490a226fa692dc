//! Paths a job chose, as values that cannot escape: relative, no `.` or `..`, no NUL, no git metadata component.
//!
//! Names are bytes. In text (patch, JSON, terminal) they are written as git quotes them: plain when every byte is
//! printable ASCII, otherwise between double quotes with C and octal escapes, so no name can forge a line or an escape.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A path below a tree's root.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RelPath(Vec<u8>);

/// Why bytes are not a [`RelPath`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PathFault {
    #[error("path is empty or has an empty component")]
    Empty,
    #[error("path contains a `.` or `..` component")]
    Dots,
    #[error("path contains a NUL byte")]
    Nul,
    #[error("path leads into git metadata")]
    GitMetadata,
    #[error("path text is not quoted as git quotes names")]
    Quoting,
}

impl RelPath {
    /// Accepts path bytes as they are on disk.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PathFault> {
        for component in bytes.split(|&byte| byte == b'/') {
            match component {
                b"" => return Err(PathFault::Empty),
                b"." | b".." => return Err(PathFault::Dots),
                name if name.contains(&0) => return Err(PathFault::Nul),
                name if is_git_name(name) => return Err(PathFault::GitMetadata),
                _ => {}
            }
        }
        Ok(Self(bytes.to_vec()))
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The directory part (empty for a name at the root) and the last component.
    #[must_use]
    pub fn split(&self) -> (&[u8], &[u8]) {
        match self.0.iter().rposition(|&byte| byte == b'/') {
            Some(at) => {
                let (parent, rest) = self.0.split_at(at);
                (parent, rest.strip_prefix(b"/").unwrap_or(rest))
            }
            None => (b"", &self.0),
        }
    }

    /// The directories above this path, nearest the root first.
    pub fn ancestors(&self) -> impl Iterator<Item = RelPath> + '_ {
        let ends = self.0.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        ends.filter_map(|end| self.0.get(..end)).map(|bytes| RelPath(bytes.to_vec()))
    }

    /// True when this path is `other` or lies below it.
    #[must_use]
    pub fn is_within(&self, other: &RelPath) -> bool {
        self.0.strip_prefix(other.0.as_slice()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quoted("", &self.0))
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl From<RelPath> for String {
    fn from(path: RelPath) -> Self {
        path.to_string()
    }
}

impl TryFrom<String> for RelPath {
    type Error = PathFault;

    fn try_from(text: String) -> Result<Self, PathFault> {
        let bytes = unquoted(&text)?;
        let path = Self::from_bytes(&bytes)?;
        if path.to_string() == text { Ok(path) } else { Err(PathFault::Quoting) }
    }
}

/// The path of a name in a directory; the empty path is the root.
#[must_use]
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

/// `prefix` and `name` as one git-quoted word.
#[must_use]
pub fn quoted(prefix: &str, name: &[u8]) -> String {
    let plain = |byte: &u8| (0x20..0x7f).contains(byte) && !matches!(byte, b'"' | b'\\');
    let mut text = String::with_capacity(prefix.len() + name.len() + 2);
    if name.iter().all(plain) {
        text.push_str(prefix);
        text.extend(name.iter().copied().map(char::from));
        return text;
    }
    text.push('"');
    text.push_str(prefix);
    for &byte in name {
        match byte {
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            b'\r' => text.push_str("\\r"),
            _ if plain(&byte) => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text.push('"');
    text
}

fn unquoted(text: &str) -> Result<Vec<u8>, PathFault> {
    let Some(inner) = text.strip_prefix('"') else { return Ok(text.as_bytes().to_vec()) };
    let inner = inner.strip_suffix('"').ok_or(PathFault::Quoting)?;
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next().ok_or(PathFault::Quoting)? {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            same @ (b'"' | b'\\') => same,
            first @ b'0'..=b'3' => octal(first, rest.next(), rest.next())?,
            _ => return Err(PathFault::Quoting),
        });
    }
    Ok(bytes)
}

fn octal(first: u8, second: Option<u8>, third: Option<u8>) -> Result<u8, PathFault> {
    match (second, third) {
        (Some(second @ b'0'..=b'7'), Some(third @ b'0'..=b'7')) => {
            Ok((first - b'0') << 6 | (second - b'0') << 3 | (third - b'0'))
        }
        _ => Err(PathFault::Quoting),
    }
}

/// True for `.git` and for every spelling of it some file system would fold onto it: other case, the NTFS short name,
/// trailing dots and spaces, a stream suffix, and the code points HFS+ ignores.
#[must_use]
pub fn is_git_name(name: &[u8]) -> bool {
    let visible = without_ignored_code_points(name);
    let stem = visible.split(|&byte| matches!(byte, b':' | b'\\')).next().unwrap_or_default();
    let end = stem.iter().rposition(|&byte| !matches!(byte, b'.' | b' ')).map_or(0, |last| last + 1);
    let stem = stem.get(..end).unwrap_or_default();
    stem.eq_ignore_ascii_case(b".git") || stem.eq_ignore_ascii_case(b"git~1")
}

fn without_ignored_code_points(name: &[u8]) -> Vec<u8> {
    let ignored = |c: &char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    match std::str::from_utf8(name) {
        Ok(text) => text.chars().filter(|c| !ignored(c)).collect::<String>().into_bytes(),
        Err(_) => name.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escaping_and_metadata_paths_are_refused() {
        let cases: [(&[u8], PathFault); 13] = [
            (b"", PathFault::Empty),
            (b"/etc/passwd", PathFault::Empty),
            (b"a//b", PathFault::Empty),
            (b"a/", PathFault::Empty),
            (b"../x", PathFault::Dots),
            (b"a/../../x", PathFault::Dots),
            (b"./a", PathFault::Dots),
            (b"a\0b", PathFault::Nul),
            (b".git/config", PathFault::GitMetadata),
            (b"sub/.GIT/hooks/post-checkout", PathFault::GitMetadata),
            (b"Git~1/config", PathFault::GitMetadata),
            (b".git. ./config", PathFault::GitMetadata),
            (".g\u{200c}it/config".as_bytes(), PathFault::GitMetadata),
        ];
        for (bytes, fault) in cases {
            assert_eq!(RelPath::from_bytes(bytes), Err(fault), "{bytes:?}");
        }
    }

    #[test]
    fn git_like_names_that_are_not_metadata_pass() {
        for name in [&b".gitignore"[..], b".github", b"git", b"git~2", b".git-x", b"x.git", b"..git"] {
            assert!(!is_git_name(name), "{name:?}");
        }
        for name in [&b".git::$INDEX_ALLOCATION"[..], b".git\\x", b".git   ", b"GIT~1."] {
            assert!(is_git_name(name), "{name:?}");
        }
    }

    #[test]
    fn text_form_is_what_git_prints() {
        assert_eq!(quoted("a/", b"plain name"), "a/plain name");
        assert_eq!(quoted("a/", b"x\ny\"\\\x1b\xff\t"), r#""a/x\ny\"\\\033\377\t""#);
    }

    #[test]
    fn only_the_canonical_text_form_is_read() {
        for bad in ["\"plain\"", "\"a\\141\\n\"", "\"open", "\"\\400\"", "\"\\1\"", "a\\", "../a"] {
            assert_eq!(RelPath::try_from(bad.to_owned()).ok(), None, "{bad}");
        }
    }

    #[test]
    fn parts_of_a_path() {
        let path = RelPath::from_bytes(b"a/b/c").unwrap();
        assert_eq!(path.split(), (&b"a/b"[..], &b"c"[..]));
        let above: Vec<String> = path.ancestors().map(String::from).collect();
        assert_eq!(above, ["a", "a/b"]);
        let within = |bytes: &[u8]| path.is_within(&RelPath::from_bytes(bytes).unwrap());
        assert_eq!(
            [within(b"a"), within(b"a/b/c"), within(b"a/b/c/d"), within(b"a/b/cc"), within(b"aa")],
            [true, true, false, false, false]
        );
    }

    proptest! {
        #[test]
        fn any_accepted_path_survives_its_text_form(bytes in proptest::collection::vec(any::<u8>(), 1..40)) {
            if let Ok(path) = RelPath::from_bytes(&bytes) {
                let text = String::from(path.clone());
                prop_assert!(text.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
                prop_assert_eq!(RelPath::try_from(text), Ok(path));
            }
        }
    }
}
