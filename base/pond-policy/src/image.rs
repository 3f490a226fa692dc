//! The image a sandbox runs in: a registry reference, or a file on the machine that launches it. Only the characters are
//! judged here; whoever opens it judges the rest.

use std::fmt;

use crate::refusal::Code;
use crate::shape::{Kind, TextForm};

const MOST: usize = 255;
const RULE: &str = "an image reference such as registry.example/agent:1, or a path beginning with / or ./ to an OCI \
                    layout or archive, in at most 255 plain characters";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// A name in a registry.
    Reference(String),
    /// A path on the launching machine. Never honoured when it came from another machine.
    File(String),
}

impl Image {
    pub const fn kind(code: Code) -> Kind {
        let pattern = "^[A-Za-z0-9./][A-Za-z0-9._/:@+~-]{0,254}$";
        Kind::Text(TextForm { pattern, most: MOST, check: is_image, code, rule: RULE })
    }

    pub fn parse(text: &str) -> Option<Self> {
        let is_file = ["/", "./", "../"].iter().any(|prefix| text.starts_with(prefix));
        let image = if is_file { Self::File } else { Self::Reference };
        is_image(text).then(|| image(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        match self {
            Self::Reference(text) | Self::File(text) => text,
        }
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn is_image(text: &str) -> bool {
    let plain = |b: u8| {
        b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'/' | b':' | b'@' | b'+' | b'~' | b'-')
    };
    let first = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'/');
    text.len() <= MOST && text.as_bytes().first().is_some_and(first) && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_and_files_are_told_apart() {
        for text in ["your/agent:latest", "ghcr.io/a/b@sha256:abc", "debian", "localhost:5000/x"] {
            assert_eq!(Image::parse(text), Some(Image::Reference(text.into())));
        }
        for text in ["/var/images/a.tar", "./layout", "../a.tar"] {
            assert_eq!(Image::parse(text), Some(Image::File(text.into())));
        }
    }

    #[test]
    fn odd_characters_are_refused() {
        let long = "a".repeat(256);
        for text in
            ["", "-v", "--privileged", "a b", "a\n", "a\0", "a$b", "a;b", "é", "~root", ":x", "@x", &long]
        {
            assert_eq!(Image::parse(text), None, "{text:?}");
        }
    }
}
