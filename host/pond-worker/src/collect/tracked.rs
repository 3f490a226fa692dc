//! Which files of the base git knows: an ignored file it does not know is build output, even when it was there before.
//!
//! Read from the `.git/index` of the base or of the repository around it, which may be hostile: by descriptor, a regular file,
//! within a size, its checksum right. An index that cannot be used, or that does not list every file by itself (split and sparse ones), makes every file count as
//! known, so the failure shows more, never less.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::ops::Bound;
use std::os::fd::BorrowedFd;

use rustix::fs::FileType;
use sha1::{Digest, Sha1};

use super::above::Above;
use super::caps::PATH_BYTES;
use crate::beneath;

const INDEX: &[u8] = b".git/index";
const MAX_BYTES: u64 = 32 << 20;
/// Of all names together, as they stand in memory.
const MOST_TEXT: usize = 64 << 20;
const CHECKSUM: usize = 20;
/// Times, numbers, mode, size, object name and flags of one entry.
const ENTRY: usize = 62;
const EXTENDED: u16 = 0x4000;

#[derive(Debug)]
pub(super) enum Tracked {
    /// Nothing is known, so everything may be.
    Unknown,
    Known(BTreeSet<Vec<u8>>),
}

impl Tracked {
    /// From the index of the base, or of the repository that the base is a part of.
    pub(super) fn read(lower: BorrowedFd<'_>, above: Option<&Above>) -> Self {
        let known = contents(above.map_or(lower, Above::top)).and_then(|bytes| parse(&bytes));
        match (known, above) {
            (None, _) => Self::Unknown,
            (Some(paths), None) => Self::Known(paths),
            (Some(paths), Some(above)) => {
                let way = [above.prefix(), b"/"].concat();
                let within = |path: Vec<u8>| path.strip_prefix(way.as_slice()).map(<[u8]>::to_vec);
                Self::Known(paths.into_iter().filter_map(within).collect())
            }
        }
    }

    pub(super) fn has(&self, file: &[u8]) -> bool {
        match self {
            Self::Unknown => true,
            Self::Known(paths) => paths.contains(file),
        }
    }

    /// Whether git is known to know this file, where not knowing would be no reason.
    pub(super) fn surely_has(&self, file: &[u8]) -> bool {
        match self {
            Self::Unknown => false,
            Self::Known(paths) => paths.contains(file),
        }
    }

    /// Whether git knows anything below a directory.
    pub(super) fn has_below(&self, directory: &[u8]) -> bool {
        let prefix = [directory, b"/"].concat();
        match self {
            Self::Unknown => true,
            Self::Known(paths) => {
                let mut from = paths.range::<[u8], _>((Bound::Included(prefix.as_slice()), Bound::Unbounded));
                from.next().is_some_and(|path| path.starts_with(&prefix))
            }
        }
    }
}

fn contents(lower: BorrowedFd<'_>) -> Option<Vec<u8>> {
    let stat = rustix::fs::fstat(beneath::open_handle(lower, INDEX).ok()?).ok()?;
    if beneath::kind(&stat) != FileType::RegularFile || beneath::size(&stat) > MAX_BYTES {
        return None;
    }
    let mut bytes = Vec::new();
    File::from(beneath::open_file(lower, INDEX).ok()?).take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn parse(bytes: &[u8]) -> Option<BTreeSet<Vec<u8>>> {
    let (body, checksum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM)?)?;
    // git may be told to leave the checksum out, and then writes zeros.
    if checksum.iter().any(|byte| *byte != 0) && Sha1::digest(body).as_slice() != checksum {
        return None;
    }
    let rest = body.strip_prefix(b"DIRC")?;
    let (version, rest) = number(rest)?;
    let (count, mut rest) = number(rest)?;
    if !(2..=4).contains(&version) {
        return None;
    }
    let mut paths = BTreeSet::new();
    let (mut path, mut text) = (Vec::new(), 0);
    for _ in 0..count {
        rest = if version == 4 { short_entry(rest, &mut path)? } else { padded_entry(rest, &mut path)? };
        text += path.len();
        // A name may say in a few bytes that it is the last one and a little more.
        if path.len() > PATH_BYTES || text > MOST_TEXT {
            return None;
        }
        paths.insert(path.clone());
    }
    lists_everything(rest).then_some(paths)
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*number), rest))
}

/// Skips an entry's fixed part; returns its length and what follows.
fn fixed(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let flags = bytes.get(ENTRY - 2..ENTRY)?.first_chunk::<2>().map(|flags| u16::from_be_bytes(*flags))?;
    let length = if flags & EXTENDED == 0 { ENTRY } else { ENTRY + 2 };
    Some((length, bytes.get(length..)?))
}

/// Versions 2 and 3: the whole name, then zeros up to a multiple of eight, at least one.
fn padded_entry<'a>(bytes: &'a [u8], path: &mut Vec<u8>) -> Option<&'a [u8]> {
    let (length, name) = fixed(bytes)?;
    let end = name.iter().position(|byte| *byte == 0)?;
    path.clear();
    path.extend_from_slice(name.get(..end)?);
    bytes.get((length + end) / 8 * 8 + 8..)
}

/// Version 4: how many bytes of the last name to drop, and what to append.
fn short_entry<'a>(bytes: &'a [u8], path: &mut Vec<u8>) -> Option<&'a [u8]> {
    let (_, mut rest) = fixed(bytes)?;
    let mut dropped = 0_usize;
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        dropped = dropped.checked_mul(128)?.checked_add(usize::from(byte & 127))?;
        if byte & 128 == 0 {
            break;
        }
        dropped = dropped.checked_add(1)?;
    }
    let end = rest.iter().position(|byte| *byte == 0)?;
    path.truncate(path.len().checked_sub(dropped)?);
    path.extend_from_slice(rest.get(..end)?);
    rest.get(end + 1..)
}

/// Extensions follow the entries; two of them say that other files are known as well.
fn lists_everything(mut rest: &[u8]) -> bool {
    while let Some((signature, after)) = rest.split_first_chunk::<4>() {
        let Some((length, after)) = number(after) else { return false };
        let known = usize::try_from(length).ok().and_then(|length| after.get(length..));
        match (signature, known) {
            (b"link" | b"sdir", _) | (_, None) => return false,
            (_, Some(next)) => rest = next,
        }
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    //! git writes the index, we read it; anything else is unknown.
    use super::*;
    use std::os::fd::AsFd;
    use std::process::Command;

    #[expect(clippy::disallowed_methods, reason = "git is the oracle")]
    fn git(directory: &std::path::Path, line: &str) {
        let script = format!("git -c user.name=x -c user.email=x@y {line}");
        let status = Command::new("sh").args(["-c", &script]).current_dir(directory).status().unwrap();
        assert!(status.success(), "{line}");
    }

    fn repository(version: &str) -> (tempfile::TempDir, Tracked) {
        let directory = tempfile::tempdir().unwrap();
        let long = "d/".repeat(60) + "deep";
        for name in ["a", "src/lib.rs", "src/main.rs", "target/kept.txt", "target/debug/x", &long] {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        git(directory.path(), "init -q");
        git(directory.path(), "add a src d target/kept.txt");
        git(directory.path(), &format!("update-index --index-version {version}"));
        let tracked = Tracked::read(std::fs::File::open(directory.path()).unwrap().as_fd(), None);
        (directory, tracked)
    }

    #[test]
    fn every_version_of_the_index_lists_what_git_knows() {
        for version in ["2", "3", "4"] {
            let (_directory, tracked) = repository(version);
            let deep = "d/".repeat(60) + "deep";
            for known in ["a", "src/lib.rs", "src/main.rs", "target/kept.txt", &deep] {
                assert!(tracked.has(known.as_bytes()), "{version}: {known}");
            }
            assert!(!tracked.has(b"target/debug/x") && !tracked.has(b"src"), "{version}");
            assert!(tracked.has_below(b"target") && tracked.has_below(b"src"), "{version}");
            assert!(!tracked.has_below(b"target/debug") && !tracked.has_below(b"sr"), "{version}");
        }
    }

    /// An index of version 4: a first name this long, then so many that are each the last one and a byte more or, from a length on,
    /// the last one again with another end.
    fn growing(first: usize, entries: u32, longest: usize) -> Vec<u8> {
        let mut bytes = [b"DIRC".as_slice(), &4_u32.to_be_bytes(), &entries.to_be_bytes()].concat();
        let mut length = first;
        for number in 0..entries {
            bytes.extend([0; ENTRY]);
            match number {
                0 => bytes.extend([[0].as_slice(), &vec![b'a'; first], &[0]].concat()),
                _ if length < longest => {
                    length += 1;
                    bytes.extend([0, b'a', 0]);
                }
                _ => bytes
                    .extend([[4].as_slice(), format!("{:04x}", number % 0x1_0000).as_bytes(), &[0]].concat()),
            }
        }
        [bytes, vec![0; CHECKSUM]].concat()
    }

    #[test]
    fn names_that_grow_from_each_other_take_no_more_memory_than_is_allowed() {
        let known = |bytes: &[u8]| parse(bytes).map(|paths| paths.len());
        assert_eq!(known(&growing(8, 100, 4000)), Some(100));
        assert_eq!(known(&growing(4000, 100, PATH_BYTES)), Some(100));
        assert_eq!(known(&growing(4000, 200, PATH_BYTES + 1)), None, "no path is as long");
        assert_eq!(known(&growing(4000, 20_000, 4000)), None, "nor are so many together");
    }

    #[test]
    fn a_damaged_split_or_absent_index_makes_everything_known() {
        let (directory, _) = repository("2");
        let read = || Tracked::read(std::fs::File::open(directory.path()).unwrap().as_fd(), None);
        let index = directory.path().join(".git/index");
        let mut bytes = std::fs::read(&index).unwrap();
        bytes[20] ^= 1;
        std::fs::write(&index, &bytes).unwrap();
        assert!(read().has(b"target/debug/x"));
        std::fs::remove_file(&index).unwrap();
        assert!(read().has(b"target/debug/x"));
        git(directory.path(), "add a");
        git(directory.path(), "update-index --split-index");
        assert!(read().has(b"target/debug/x"));
    }
}
