//! Several fields as one string of bytes, each with its length before it, so that no two lists of fields spell the same bytes.
//! The label comes first and says what the bytes are for: what was signed or sealed for one purpose fits no other.

use crate::digest::Digest;

pub(crate) struct Transcript(Vec<u8>);

impl Transcript {
    pub(crate) fn new(label: &str) -> Self {
        Self(Vec::new()).text(label)
    }

    pub(crate) fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    pub(crate) fn number(self, number: u64) -> Self {
        self.bytes(&number.to_be_bytes())
    }

    pub(crate) fn digest(self, digest: &Digest) -> Self {
        self.bytes(digest.as_bytes())
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_a_byte_between_fields_changes_the_bytes() {
        let of = |fields: &[&str]| {
            fields.iter().fold(Transcript::new("label"), |all, field| all.text(field)).finish()
        };
        let all = [of(&["ab", "c"]), of(&["a", "bc"]), of(&["abc"]), of(&["abc", ""]), of(&["", "abc"])];
        for (at, one) in all.iter().enumerate() {
            assert!(all.iter().skip(at + 1).all(|other| other != one), "{at}");
        }
        assert_eq!(of(&["a"]), b"\0\0\0\0\0\0\0\x05label\0\0\0\0\0\0\0\x01a");
    }
}
