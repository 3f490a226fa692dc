//! A directory tree as a stream: the checkout on its way into a container that shares no directory with the host, and what the
//! job made of it on its way out.
//!
//! What comes out was written in the hostile zone. There are no paths in it, only names inside the directory that was entered
//! last, so none leads anywhere else; names ascend, so none comes twice; there is no hard link and no device. A header is
//! bounded, and what is over a cap ends the reading before anything of it is kept.

use std::mem::size_of;

/// Components of the deepest entry: one more than a result may have, so that whoever collects sees that there was more.
pub const MAX_DEPTH: usize = 65;
/// Content of one file. A larger one is told, not sent.
pub const MAX_FILE: u64 = 1 << 30;
/// What a link may say.
pub const MAX_TARGET: usize = 4095;
/// Bytes of content that one event carries at most.
pub const MAX_CONTENT: usize = 64 << 10;

const MODE_BITS: u16 = 0o777;
/// Tag and length of the name.
const PREFIX: usize = 2;
const FILE_FACTS: usize = size_of::<u16>() + size_of::<i64>() + size_of::<u32>() + size_of::<u64>();

/// One thing in a tree, or the end of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A directory; what follows is in it.
    Enter {
        name: Vec<u8>,
    },
    /// The end of the directory entered last, whose mode this is; at the top, of the whole.
    Leave {
        mode: u16,
    },
    /// A file; so many bytes of content follow.
    File {
        name: Vec<u8>,
        mode: u16,
        modified: Moment,
        size: u64,
    },
    Link {
        name: Vec<u8>,
        target: Vec<u8>,
    },
    Fifo {
        name: Vec<u8>,
    },
    Socket {
        name: Vec<u8>,
    },
    /// A file that is larger than a file may be.
    Large {
        name: Vec<u8>,
    },
}

/// When something was last changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub seconds: i64,
    pub nanos: u32,
}

/// What a whole tree may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeCaps {
    pub entries: u64,
    pub bytes: u64,
}

impl TreeCaps {
    /// Of a source, at both ends of its way.
    pub const SOURCE: Self = Self { entries: 200_000, bytes: 4 << 30 };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TreeFault {
    #[error("an entry of unknown kind {0}")]
    Kind(u8),
    #[error("a name that no directory can hold")]
    Name,
    #[error("a name that does not follow the one before it")]
    Order,
    #[error("a directory more than {MAX_DEPTH} deep")]
    Depth,
    #[error("a file of {0} bytes")]
    Size(u64),
    #[error("a mode or a time that no file has")]
    Facts,
    #[error("a link that says nothing, or more than a link can")]
    Target,
    #[error("more than {0} entries")]
    Entries(u64),
    #[error("more than {0} bytes of content")]
    Bytes(u64),
    #[error("something after the end")]
    Trailing,
}

impl Entry {
    /// The bytes of the header; nothing for an entry that has none.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let (tag, name): (u8, &[u8]) = match self {
            Self::Enter { name } => (1, name),
            Self::Leave { .. } => (2, &[]),
            Self::File { name, .. } => (3, name),
            Self::Link { name, .. } => (4, name),
            Self::Fifo { name } => (5, name),
            Self::Socket { name } => (6, name),
            Self::Large { name } => (7, name),
        };
        let mut bytes = vec![tag, u8::try_from(name.len()).ok()?];
        bytes.extend(name);
        match self {
            Self::Leave { mode } => bytes.extend(mode.to_le_bytes()),
            Self::File { mode, modified, size, .. } => {
                bytes.extend(mode.to_le_bytes());
                bytes.extend(modified.seconds.to_le_bytes());
                bytes.extend(modified.nanos.to_le_bytes());
                bytes.extend(size.to_le_bytes());
            }
            Self::Link { target, .. } => {
                bytes.extend(u16::try_from(target.len()).ok()?.to_le_bytes());
                bytes.extend(target);
            }
            Self::Enter { .. } | Self::Fifo { .. } | Self::Socket { .. } | Self::Large { .. } => {}
        }
        Some(bytes)
    }
}

/// What the next bytes of a stream are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Entry(Entry),
    /// Of the file that was named last.
    Content(Vec<u8>),
    /// The tree is whole.
    End,
}

/// Takes a stream apart, however it is cut. Holds no more than one header, or one piece of content, beyond what it was given.
#[derive(Debug)]
pub struct Decoder {
    caps: TreeCaps,
    raw: Vec<u8>,
    /// How much of it is used up.
    used: usize,
    /// The last name in each directory that is open.
    open: Vec<Vec<u8>>,
    content: u64,
    entries: u64,
    bytes: u64,
    is_over: bool,
}

impl Decoder {
    pub fn new(caps: TreeCaps) -> Self {
        let open = vec![Vec::new()];
        Self { caps, raw: Vec::new(), used: 0, open, content: 0, entries: 0, bytes: 0, is_over: false }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.raw.drain(..self.used);
        self.used = 0;
        self.raw.extend(bytes);
    }

    /// True once the tree is whole.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// What can be told from what was given so far.
    pub fn next_event(&mut self) -> Result<Option<Event>, TreeFault> {
        if self.is_over {
            return if self.rest().is_empty() { Ok(None) } else { Err(TreeFault::Trailing) };
        }
        if self.content > 0 {
            return Ok(self.take_content());
        }
        let Some((entry, length)) = parse(self.rest())? else { return Ok(None) };
        self.used += length;
        self.admit(&entry)?;
        Ok(Some(if self.is_over { Event::End } else { Event::Entry(entry) }))
    }

    fn rest(&self) -> &[u8] {
        self.raw.get(self.used..).unwrap_or_default()
    }

    fn take_content(&mut self) -> Option<Event> {
        let wanted = usize::try_from(self.content).unwrap_or(usize::MAX);
        let length = wanted.min(self.rest().len()).min(MAX_CONTENT);
        let piece = self.rest().get(..length)?.to_vec();
        self.used += length;
        self.content -= u64::try_from(length).unwrap_or(self.content);
        (length > 0).then_some(Event::Content(piece))
    }

    /// Whether an entry may stand where it does.
    fn admit(&mut self, entry: &Entry) -> Result<(), TreeFault> {
        let name = match entry {
            Entry::Leave { .. } => {
                self.open.pop();
                self.is_over = self.open.is_empty();
                return Ok(());
            }
            Entry::Enter { name }
            | Entry::File { name, .. }
            | Entry::Link { name, .. }
            | Entry::Fifo { name }
            | Entry::Socket { name }
            | Entry::Large { name } => name,
        };
        let before = self.open.last_mut().ok_or(TreeFault::Trailing)?;
        if name <= before {
            return Err(TreeFault::Order);
        }
        before.clone_from(name);
        self.entries += 1;
        if self.entries > self.caps.entries {
            return Err(TreeFault::Entries(self.caps.entries));
        }
        // At the top stands the root's own list.
        if self.open.len() > MAX_DEPTH {
            return Err(TreeFault::Depth);
        }
        match entry {
            Entry::Enter { .. } => self.open.push(Vec::new()),
            Entry::File { size, .. } => {
                self.bytes = self.bytes.saturating_add(*size);
                if self.bytes > self.caps.bytes {
                    return Err(TreeFault::Bytes(self.caps.bytes));
                }
                self.content = *size;
            }
            Entry::Leave { .. }
            | Entry::Link { .. }
            | Entry::Fifo { .. }
            | Entry::Socket { .. }
            | Entry::Large { .. } => {}
        }
        Ok(())
    }
}

/// The header at the start of these bytes and its length; nothing while it is not all there.
fn parse(raw: &[u8]) -> Result<Option<(Entry, usize)>, TreeFault> {
    let Some([tag, name_length]) = raw.first_chunk::<PREFIX>() else { return Ok(None) };
    let (tag, name_length) = (*tag, usize::from(*name_length));
    if !(1..=7).contains(&tag) {
        return Err(TreeFault::Kind(tag));
    }
    if (tag == 2) != (name_length == 0) {
        return Err(TreeFault::Name);
    }
    let mut fields = Fields { raw, at: PREFIX };
    let Some(name) = fields.bytes(name_length) else { return Ok(None) };
    if !is_name(&name) && tag != 2 {
        return Err(TreeFault::Name);
    }
    let Some(entry) = tail(tag, name, &mut fields)? else { return Ok(None) };
    Ok(Some((entry, fields.at)))
}

fn tail(tag: u8, name: Vec<u8>, fields: &mut Fields<'_>) -> Result<Option<Entry>, TreeFault> {
    Ok(match tag {
        1 => Some(Entry::Enter { name }),
        2 => match fields.number() {
            Some(bytes) => Some(Entry::Leave { mode: mode(bytes)? }),
            None => None,
        },
        3 => file(name, fields)?,
        4 => link(name, fields)?,
        5 => Some(Entry::Fifo { name }),
        6 => Some(Entry::Socket { name }),
        _ => Some(Entry::Large { name }),
    })
}

fn file(name: Vec<u8>, fields: &mut Fields<'_>) -> Result<Option<Entry>, TreeFault> {
    let Some(facts) = fields.number::<FILE_FACTS>() else { return Ok(None) };
    let mut facts = Fields { raw: &facts, at: 0 };
    let (Some(told), Some(seconds), Some(nanos), Some(size)) =
        (facts.number(), facts.number(), facts.number(), facts.number())
    else {
        return Ok(None);
    };
    let (nanos, size) = (u32::from_le_bytes(nanos), u64::from_le_bytes(size));
    if nanos >= 1_000_000_000 {
        return Err(TreeFault::Facts);
    }
    if size > MAX_FILE {
        return Err(TreeFault::Size(size));
    }
    let modified = Moment { seconds: i64::from_le_bytes(seconds), nanos };
    Ok(Some(Entry::File { name, mode: mode(told)?, modified, size }))
}

fn link(name: Vec<u8>, fields: &mut Fields<'_>) -> Result<Option<Entry>, TreeFault> {
    let Some(length) = fields.number() else { return Ok(None) };
    let length = usize::from(u16::from_le_bytes(length));
    if !(1..=MAX_TARGET).contains(&length) {
        return Err(TreeFault::Target);
    }
    let Some(target) = fields.bytes(length) else { return Ok(None) };
    if target.contains(&0) { Err(TreeFault::Target) } else { Ok(Some(Entry::Link { name, target })) }
}

fn mode(bytes: [u8; 2]) -> Result<u16, TreeFault> {
    let mode = u16::from_le_bytes(bytes);
    if mode & !MODE_BITS == 0 { Ok(mode) } else { Err(TreeFault::Facts) }
}

/// One component of a path, and an ordinary one.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.iter().any(|byte| [0, b'/'].contains(byte))
}

struct Fields<'a> {
    raw: &'a [u8],
    at: usize,
}

impl Fields<'_> {
    fn bytes(&mut self, length: usize) -> Option<Vec<u8>> {
        let bytes = self.raw.get(self.at..self.at + length)?.to_vec();
        self.at += length;
        Some(bytes)
    }

    fn number<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.raw.get(self.at..)?.first_chunk::<N>()?;
        self.at += N;
        Some(*bytes)
    }
}

#[cfg(test)]
mod tests;
