//! The manifest: every path of the output with mode, size and digest, sorted by path bytes, in one canonical spelling.
//!
//! Its own digest is the output hash, so equal outputs give equal bytes: fixed field order, one entry per line.

use std::io::{self, Write};

use serde::Serialize;

use super::change::{Leaf, Mode};
use crate::digest::{Digest, Hashing};
use crate::path::RelPath;

#[derive(Serialize)]
#[serde(untagged)]
enum Entry<'a> {
    Present { path: &'a RelPath, mode: Mode, size: u64, sha256: Digest },
    Deleted { path: &'a RelPath, deleted: bool },
}

/// Writes the manifest of sorted paths, each with what it holds, and returns its digest.
pub(super) fn write<'a>(
    entries: impl Iterator<Item = (&'a RelPath, Option<Leaf>)>,
    out: impl Write,
) -> io::Result<Digest> {
    let mut out = Hashing::new(out);
    out.write_all(b"{\"format\":\"pond-manifest-1\",\"entries\":[")?;
    let mut separator = "\n";
    for (path, leaf) in entries {
        out.write_all(separator.as_bytes())?;
        serde_json::to_writer(&mut out, &entry(path, leaf))?;
        separator = ",\n";
    }
    out.write_all(b"\n]}\n")?;
    out.finish()
}

fn entry(path: &RelPath, leaf: Option<Leaf>) -> Entry<'_> {
    match leaf {
        Some(Leaf { mode, size, sha256 }) => Entry::Present { path, mode, size, sha256 },
        None => Entry::Deleted { path, deleted: true },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_one_is_what_whoever_accepts_it_expects() {
        let mut bytes = Vec::new();
        write(std::iter::empty(), &mut bytes).unwrap();
        assert_eq!(bytes, pond_seal::result::EMPTY_MANIFEST);
    }

    #[test]
    fn one_spelling_hostile_names_included() {
        let leaf = Leaf { mode: Mode::Executable, size: 3, sha256: Digest::of(b"abc") };
        let path = |bytes: &[u8]| RelPath::from_bytes(bytes).unwrap();
        let (present, gone) = (path(b"a\n\"\x1b"), path(b"gone"));
        let mut bytes = Vec::new();
        let digest = write([(&present, Some(leaf)), (&gone, None)].into_iter(), &mut bytes).unwrap();
        let expected = concat!(
            "{\"format\":\"pond-manifest-1\",\"entries\":[\n",
            r#"{"path":"\"a\\n\\\"\\033\"","mode":"100755","size":3,"#,
            r#""sha256":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},"#,
            "\n{\"path\":\"gone\",\"deleted\":true}\n]}\n"
        );
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
        assert_eq!(digest, Digest::of(expected.as_bytes()));
        assert!(serde_json::from_str::<serde_json::Value>(expected).is_ok_and(|value| value.is_object()));
    }
}
