//! A source as it arrives, written into an empty private directory, with the hash of what was written.
//!
//! HOSTILE INPUT, taken apart by `pond_wire::tree` under caps. Everything is made anew by descriptor below the directory;
//! nothing is opened that was not made here, and no link is followed. Permissions are what the hash covers and no more:
//! whether a file is executable. What no source can have, a device, fifo or socket, is a refusal.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pond_seal::Digest;
use pond_seal::tree::{Entry as Named, Listing, TreeFault as NamingFault};
use pond_wire::tree::{Decoder, Entry, Event, Moment, TreeCaps, TreeFault};
use rustix::fs::{Mode, Timespec, Timestamps, fchmod, futimens, mkdirat, symlinkat};
use rustix::io::Errno;

use crate::beneath;
use crate::digest::Hashing;
use crate::path::join;

const PIECE: usize = 64 << 10;
const EXECUTABLE: Mode = Mode::from_raw_mode(0o755);
const PLAIN: Mode = Mode::from_raw_mode(0o644);

#[derive(Debug, thiserror::Error)]
pub enum UnpackFault {
    #[error("read the source")]
    Read(#[source] io::Error),
    #[error("the source is cut short")]
    Cut,
    #[error("the source is no tree")]
    Tree(#[from] TreeFault),
    #[error("the source holds something that is neither file, directory nor link")]
    Special,
    #[error("write the source")]
    Write(#[source] io::Error),
    #[error("name the source by its hash")]
    Hash(#[from] NamingFault),
}

/// Fills the empty directory `target` with what `source` yields. Only a whole tree, with nothing behind it, has a hash.
pub fn unpack(source: &mut impl Read, target: BorrowedFd<'_>, caps: TreeCaps) -> Result<Digest, UnpackFault> {
    let root = beneath::open_dir(target, b"").map_err(writing)?;
    let open = vec![Level { directory: root, path: Vec::new() }];
    let mut unpacking = Unpacking { open, file: None, listing: Listing::default() };
    let (mut decoder, mut piece) = (Decoder::new(caps), vec![0; PIECE]);
    loop {
        let length = match source.read(&mut piece) {
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => continue,
            read => read.map_err(UnpackFault::Read)?,
        };
        if length == 0 {
            break;
        }
        decoder.push(piece.get(..length).unwrap_or_default());
        while let Some(event) = decoder.next_event()? {
            unpacking.take(event)?;
        }
    }
    if decoder.is_over() { Ok(unpacking.listing.finish()?) } else { Err(UnpackFault::Cut) }
}

struct Unpacking {
    /// The directories that were entered, the root first.
    open: Vec<Level>,
    file: Option<Arriving>,
    listing: Listing,
}

struct Level {
    directory: OwnedFd,
    path: Vec<u8>,
}

/// A file whose content is not all there.
struct Arriving {
    content: Hashing<File>,
    handle: File,
    path: Vec<u8>,
    executable: bool,
    modified: Moment,
    size: u64,
    left: u64,
}

impl Unpacking {
    fn take(&mut self, event: Event) -> Result<(), UnpackFault> {
        match event {
            Event::Entry(entry) => self.entry(entry),
            Event::Content(bytes) => self.content(&bytes),
            Event::End => self.leave(),
        }
    }

    fn entry(&mut self, entry: Entry) -> Result<(), UnpackFault> {
        match entry {
            Entry::Enter { name } => {
                let (here, path) = self.here(&name)?;
                mkdirat(here, &name, Mode::RWXU).map_err(writing)?;
                let directory = beneath::open_dir(here, &name).map_err(writing)?;
                self.listing.add(path.clone(), Named::Directory);
                self.open.push(Level { directory, path });
                Ok(())
            }
            Entry::Leave { .. } => self.leave(),
            Entry::File { name, mode, modified, size } => {
                let (here, path) = self.here(&name)?;
                let made = beneath::create_file(here, &name, Mode::RUSR | Mode::WUSR).map_err(writing)?;
                let handle = File::from(made);
                let content = Hashing::new(handle.try_clone().map_err(UnpackFault::Write)?);
                let executable = mode & 0o100 != 0;
                self.file = Some(Arriving { content, handle, path, executable, modified, size, left: size });
                self.finish()
            }
            Entry::Link { name, target } => {
                let (here, path) = self.here(&name)?;
                symlinkat(&target, here, &name).map_err(writing)?;
                self.listing.add(path, Named::Link { target });
                Ok(())
            }
            Entry::Fifo { .. } | Entry::Socket { .. } | Entry::Large { .. } => Err(UnpackFault::Special),
        }
    }

    fn leave(&mut self) -> Result<(), UnpackFault> {
        let Level { directory, .. } = self.open.pop().ok_or(UnpackFault::Cut)?;
        fchmod(&directory, EXECUTABLE).map_err(writing)
    }

    fn content(&mut self, bytes: &[u8]) -> Result<(), UnpackFault> {
        let file = self.file.as_mut().ok_or(UnpackFault::Cut)?;
        file.content.write_all(bytes).map_err(UnpackFault::Write)?;
        file.left = file.left.saturating_sub(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.finish()
    }

    fn finish(&mut self) -> Result<(), UnpackFault> {
        let Some(file) = self.file.take_if(|file| file.left == 0) else { return Ok(()) };
        let Arriving { content, handle, path, executable, modified, size, .. } = file;
        let sha256 = content.finish().map_err(UnpackFault::Write)?;
        let modified = Timespec { tv_sec: modified.seconds, tv_nsec: modified.nanos.into() };
        let times = Timestamps { last_access: modified, last_modification: modified };
        futimens(&handle, &times).map_err(writing)?;
        fchmod(&handle, if executable { EXECUTABLE } else { PLAIN }).map_err(writing)?;
        self.listing.add(path, Named::File { executable, size, sha256 });
        Ok(())
    }

    /// The directory entered last, and the path of a name in it.
    fn here(&self, name: &[u8]) -> Result<(BorrowedFd<'_>, Vec<u8>), UnpackFault> {
        let Level { directory, path } = self.open.last().ok_or(UnpackFault::Cut)?;
        Ok((directory.as_fd(), join(path, name)))
    }
}

fn writing(errno: Errno) -> UnpackFault {
    UnpackFault::Write(errno.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    const CAPS: TreeCaps = TreeCaps { entries: 10, bytes: 100 };

    fn stream(entries: &[(Entry, &[u8])]) -> Vec<u8> {
        let bytes = |(entry, content): &(Entry, &[u8])| [&entry.encode().unwrap(), *content].concat();
        entries.iter().flat_map(bytes).collect()
    }

    fn file(name: &str, mode: u16, size: u64) -> Entry {
        Entry::File { name: name.into(), mode, modified: Moment { seconds: 1_700_000_000, nanos: 0 }, size }
    }

    fn unpacked(bytes: &[u8]) -> (tempfile::TempDir, Result<Digest, String>) {
        let place = tempfile::tempdir().unwrap();
        let root = File::open(place.path()).unwrap();
        let hash = unpack(&mut &*bytes, root.as_fd(), CAPS).map_err(|fault| fault.to_string());
        (place, hash)
    }

    #[test]
    fn permissions_are_what_the_hash_covers() {
        let end = (Entry::Leave { mode: 0o700 }, &b""[..]);
        let (one, first) = unpacked(&stream(&[(file("x", 0o4000 | 0o711, 2), b"hi"), end.clone()]));
        assert_eq!(first, Err("the source is no tree".to_owned()), "setuid does not travel");
        drop(one);
        let (one, first) = unpacked(&stream(&[(file("x", 0o711, 2), b"hi"), end.clone()]));
        let (_, second) = unpacked(&stream(&[(file("x", 0o777, 2), b"hi"), end.clone()]));
        let (_, third) = unpacked(&stream(&[(file("x", 0o666, 2), b"hi"), end]));
        assert_eq!(first, second);
        assert_ne!(first, third);
        let made = one.path().join("x").metadata().unwrap();
        assert_eq!((made.permissions().mode() & 0o7777, made.mtime()), (0o755, 1_700_000_000));
    }

    #[test]
    fn what_is_no_source_is_refused() {
        let end = (Entry::Leave { mode: 0o700 }, &b""[..]);
        let whole = stream(&[(file("x", 0o644, 2), b"hi"), end.clone()]);
        let mut longer = whole.clone();
        longer.push(0);
        for (bytes, expected) in [
            (whole[..whole.len() - 1].to_vec(), "the source is cut short"),
            (longer, "the source is no tree"),
            (
                stream(&[(Entry::Fifo { name: b"x".to_vec() }, b""), end.clone()]),
                "the source holds something that is neither file, directory nor link",
            ),
            (stream(&[(file("x", 0o644, 101), &[0; 101]), end]), "the source is no tree"),
        ] {
            assert_eq!(unpacked(&bytes).1, Err(expected.to_owned()));
        }
    }

    #[test]
    fn a_link_is_never_written_through() {
        let outside = tempfile::tempdir().unwrap();
        let link = Entry::Link {
            name: b"a".to_vec(),
            target: outside.path().as_os_str().as_encoded_bytes().to_vec(),
        };
        let inside = [(link, &b""[..]), (Entry::Enter { name: b"a".to_vec() }, b"")];
        let (_place, refused) = unpacked(&stream(&inside));
        assert_eq!(refused, Err("the source is no tree".to_owned()), "one name twice");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    /// The format has no holes and no compression, so a bomb is a tree that says it is large, has many entries or is deep. None of
    /// them gets more onto the disk than the caps, and one that says so beforehand gets nothing.
    #[test]
    fn bombs_are_refused_before_they_go_off() {
        let end = (Entry::Leave { mode: 0o700 }, &b""[..]);
        let named = |at: usize| format!("{at:03}");
        let huge = [(file("hole", 0o644, 1 << 40), &b""[..])];
        let many: Vec<_> = (0..11).map(|at| (file(&named(at), 0o644, 0), &b""[..])).collect();
        let sums: Vec<_> = (0..3).map(|at| (file(&named(at), 0o644, 40), &[0; 40][..])).collect();
        let deep = vec![(Entry::Enter { name: b"d".to_vec() }, &b""[..]); 70];
        for (bomb, most_entries) in [(&huge[..], 0), (&many, 10), (&sums, 2), (&deep, 10)] {
            let (place, refused) = unpacked(&stream(&[bomb, std::slice::from_ref(&end)].concat()));
            assert_eq!(refused, Err("the source is no tree".to_owned()), "{bomb:?}");
            let (mut entries, mut open) = (0, vec![place.path().to_owned()]);
            while let Some(directory) = open.pop() {
                for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
                    entries += 1;
                    open.extend(entry.file_type().unwrap().is_dir().then(|| entry.path()));
                }
            }
            assert!(entries <= most_entries, "{entries} of {bomb:?}");
        }
    }
}
