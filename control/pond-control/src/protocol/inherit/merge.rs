//! A source and what was changed in it, as one stream: taken apart, and put together again entry by entry, in the order a tree has.
//!
//! HOSTILE on both sides: the source is what a user sent, the changes are what workers signed. Nothing is opened or followed; a
//! content that is not what was signed ends it, and so does anything below what is no directory.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use pond_seal::Digest;
use pond_seal::digest::Hashing;
use pond_wire::path::{join, quoted};
use pond_wire::tree::{Decoder, Entry, Event, MAX_TARGET, Moment, TreeCaps, TreeFault};

use super::overlay::{Conflict, Overlay, Stands, conflict};

const PIECE: usize = 64 << 10;
const DIRECTORY: u16 = 0o755;

#[derive(Debug, thiserror::Error)]
pub(super) enum MergeFault<T: std::error::Error + 'static> {
    #[error("{} is a file to one stage and a directory to another", .0.path)]
    Conflict(Conflict),
    #[error("the content of {0} is not what was signed")]
    Content(String),
    #[error("reading the source")]
    Source(#[source] io::Error),
    #[error("the source is no tree")]
    Tree(#[from] TreeFault),
    #[error("the source holds what no source can")]
    Kind,
    #[error("reading contents")]
    Spool(#[source] io::Error),
    #[error(transparent)]
    Taken(T),
}

/// Contents that were signed for, in a file without a name.
#[derive(Debug)]
pub(super) struct Spool {
    file: File,
    at: HashMap<Digest, (u64, u64)>,
    end: u64,
}

impl Spool {
    pub(super) fn new(file: File) -> Self {
        Self { file, at: HashMap::new(), end: 0 }
    }

    /// The next content begins.
    pub(super) fn begin(&mut self, name: Digest, size: u64) {
        self.at.insert(name, (self.end, size));
    }

    pub(super) fn has_all(&self, names: &HashSet<Digest>) -> bool {
        names.iter().all(|name| self.at.contains_key(name))
    }

    pub(super) fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.end += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.file.write_all(bytes)
    }

    /// A content, if it is there and as long as it was signed.
    fn open(&mut self, name: Digest, size: u64) -> io::Result<Option<io::Take<&mut File>>> {
        let Some((at, _)) = self.at.get(&name).filter(|(_, there)| *there == size) else { return Ok(None) };
        self.file.seek(SeekFrom::Start(*at))?;
        Ok(Some((&mut self.file).take(size)))
    }
}

/// A directory that was entered.
struct Level {
    path: Vec<u8>,
    /// What has to be in it and was not told yet, in order.
    due: VecDeque<Vec<u8>>,
    /// It was told.
    told: bool,
    /// Something in it is gone.
    lost: bool,
    /// A file or a link took its place: all of it must be gone.
    replaced: bool,
}

/// What takes the stream.
pub(super) trait Taker {
    type Fault: std::error::Error + 'static;
    fn take(&mut self, bytes: &[u8]) -> Result<(), Self::Fault>;
}

struct Merging<'a, T: Taker> {
    overlay: &'a Overlay,
    directories: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
    spool: &'a mut Spool,
    to: &'a mut T,
    open: Vec<Level>,
    /// The content that comes belongs to an entry that stays.
    passing: bool,
    now: Moment,
}

/// Tells `to` the tree of `source` with everything of `overlay` in it, as of `now`.
pub(super) fn merge<T: Taker>(
    source: Option<impl Read>,
    (overlay, spool): (&Overlay, &mut Spool),
    to: &mut T,
    now: Moment,
) -> Result<(), MergeFault<T::Fault>> {
    let directories = overlay.directories().map_err(MergeFault::Conflict)?;
    let mut merging = Merging { overlay, directories, spool, to, open: Vec::new(), passing: false, now };
    merging.enter(Vec::new(), false);
    if let Some(level) = merging.open.last_mut() {
        level.told = true;
    }
    let Some(mut source) = source else { return merging.leave(DIRECTORY) };
    let (mut decoder, mut piece) = (Decoder::new(TreeCaps::SOURCE), vec![0; PIECE]);
    loop {
        let length = source.read(&mut piece).map_err(MergeFault::Source)?;
        if length == 0 {
            break;
        }
        decoder.push(piece.get(..length).unwrap_or_default());
        while let Some(event) = decoder.next_event()? {
            match event {
                Event::Entry(entry) => merging.entry(entry)?,
                Event::Content(content) if merging.passing => merging.say(&content)?,
                Event::Content(_) => {}
                Event::End => merging.leave(DIRECTORY)?,
            }
        }
    }
    if decoder.is_over() { Ok(()) } else { Err(MergeFault::Source(io::ErrorKind::UnexpectedEof.into())) }
}

impl<T: Taker> Merging<'_, T> {
    fn enter(&mut self, path: Vec<u8>, replaced: bool) {
        let due = self.directories.get(&path).filter(|_| !replaced);
        let due = due.map(|names| names.iter().cloned().collect()).unwrap_or_default();
        self.open.push(Level { path, due, told: false, lost: false, replaced });
    }

    fn entry(&mut self, entry: Entry) -> Result<(), MergeFault<T::Fault>> {
        self.passing = false;
        let name = match &entry {
            Entry::Leave { mode } => return self.leave(*mode),
            Entry::Enter { name } | Entry::File { name, .. } | Entry::Link { name, .. } => name.clone(),
            Entry::Fifo { .. } | Entry::Socket { .. } | Entry::Large { .. } => return Err(MergeFault::Kind),
        };
        self.due_before(Some(&name))?;
        let path = self.path(&name);
        let is_directory = matches!(entry, Entry::Enter { .. });
        let within_replaced = self.open.last().is_some_and(|level| level.replaced);
        match self.overlay.at(&path) {
            _ if within_replaced && is_directory => self.enter(path, true),
            Some(Stands::Nothing) if within_replaced => {}
            _ if within_replaced => return Err(MergeFault::Conflict(conflict(&path))),
            None | Some(Stands::Nothing) if is_directory => self.enter(path, false),
            None if self.directories.contains_key(&path) => {
                return Err(MergeFault::Conflict(conflict(&path)));
            }
            None => {
                self.tell_open()?;
                self.say_entry(&entry)?;
                self.passing = true;
            }
            Some(Stands::Nothing) => {
                self.lose();
                if self.directories.contains_key(&path) {
                    self.new_entry(&path, &name)?;
                }
            }
            Some(Stands::File { .. } | Stands::Link { .. }) => {
                self.new_entry(&path, &name)?;
                if is_directory {
                    self.enter(path, true);
                }
            }
        }
        Ok(())
    }

    /// A directory that has nothing left of what it had goes with it.
    fn leave(&mut self, mode: u16) -> Result<(), MergeFault<T::Fault>> {
        self.due_before(None)?;
        let Some(level) = self.open.last() else { return Err(MergeFault::Kind) };
        if level.replaced {
            self.open.pop();
        } else if !level.told && level.lost {
            self.open.pop();
            self.lose();
        } else {
            self.tell_open()?;
            self.open.pop();
            self.say_entry(&Entry::Leave { mode })?;
        }
        Ok(())
    }

    fn lose(&mut self) {
        if let Some(level) = self.open.last_mut() {
            level.lost = true;
        }
    }

    /// Tells what is new and comes before a name, or all that is left; the name itself is told by whoever is at it.
    fn due_before(&mut self, name: Option<&[u8]>) -> Result<(), MergeFault<T::Fault>> {
        loop {
            let Some(level) = self.open.last_mut() else { return Ok(()) };
            let is_due = |due: &mut Vec<u8>| name.is_none_or(|name| due.as_slice() <= name);
            let Some(next) = level.due.pop_front_if(is_due) else { return Ok(()) };
            if Some(next.as_slice()) != name {
                let path = self.path(&next);
                self.new_entry(&path, &next)?;
            }
        }
    }

    /// Something that the source does not have there.
    fn new_entry(&mut self, path: &[u8], name: &[u8]) -> Result<(), MergeFault<T::Fault>> {
        self.tell_open()?;
        match self.overlay.at(path) {
            Some(Stands::File { executable, size, sha256 }) => {
                let mode = if executable { 0o755 } else { 0o644 };
                let (name, modified) = (name.to_vec(), self.now);
                self.say_entry(&Entry::File { name, mode, modified, size })?;
                self.content(path, sha256, size)
            }
            Some(Stands::Link { size, sha256 }) => self.link(path, name, sha256, size),
            None | Some(Stands::Nothing) => {
                let names = self.directories.get(path).cloned().unwrap_or_default();
                self.say_entry(&Entry::Enter { name: name.to_vec() })?;
                for below in names {
                    self.new_entry(&join(path, &below), &below)?;
                }
                self.say_entry(&Entry::Leave { mode: DIRECTORY })
            }
        }
    }

    fn link(
        &mut self,
        path: &[u8],
        name: &[u8],
        sha256: Digest,
        size: u64,
    ) -> Result<(), MergeFault<T::Fault>> {
        let unlike = || MergeFault::Content(quoted("", path));
        let mut target = Vec::new();
        if usize::try_from(size).is_ok_and(|size| size <= MAX_TARGET) {
            let content = self.spool.open(sha256, size).map_err(MergeFault::Spool)?;
            content.ok_or_else(unlike)?.read_to_end(&mut target).map_err(MergeFault::Spool)?;
        }
        if target.is_empty() || Digest::of(&target) != sha256 {
            return Err(unlike());
        }
        self.say_entry(&Entry::Link { name: name.to_vec(), target })
    }

    fn content(&mut self, path: &[u8], sha256: Digest, size: u64) -> Result<(), MergeFault<T::Fault>> {
        let unlike = || MergeFault::Content(quoted("", path));
        let mut content = self.spool.open(sha256, size).map_err(MergeFault::Spool)?.ok_or_else(unlike)?;
        let (mut hash, mut piece) = (Hashing::new(io::sink()), vec![0; PIECE]);
        let mut left = size;
        while left > 0 {
            let length = content.read(&mut piece).map_err(MergeFault::Spool)?;
            let bytes = piece.get(..length).unwrap_or_default();
            if bytes.is_empty() {
                return Err(unlike());
            }
            hash.write_all(bytes).map_err(MergeFault::Spool)?;
            self.to.take(bytes).map_err(MergeFault::Taken)?;
            left = left.saturating_sub(u64::try_from(length).unwrap_or(u64::MAX));
        }
        if hash.finish().map_err(MergeFault::Spool)? == sha256 { Ok(()) } else { Err(unlike()) }
    }

    /// The directories that are open and were not told, because nothing in them was.
    fn tell_open(&mut self) -> Result<(), MergeFault<T::Fault>> {
        let mut names = Vec::new();
        for level in self.open.iter_mut().filter(|level| !level.told && !level.replaced) {
            level.told = true;
            names.push(level.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec());
        }
        names.into_iter().try_for_each(|name| self.say_entry(&Entry::Enter { name }))
    }

    fn say_entry(&mut self, entry: &Entry) -> Result<(), MergeFault<T::Fault>> {
        let bytes = entry.encode().ok_or(MergeFault::Kind)?;
        self.say(&bytes)
    }

    fn say(&mut self, bytes: &[u8]) -> Result<(), MergeFault<T::Fault>> {
        self.to.take(bytes).map_err(MergeFault::Taken)
    }

    fn path(&self, name: &[u8]) -> Vec<u8> {
        join(self.open.last().map_or(&[], |level| level.path.as_slice()), name)
    }
}
