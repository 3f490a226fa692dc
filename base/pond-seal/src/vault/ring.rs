//! The operator's keys: one that new records are sealed under, and older ones that still open what they sealed.
//!
//! A ring's file is one key a line, 64 hexadecimal digits, the active one first. A key is named by a digest of itself, so
//! two files that hold the same key agree on its name.

use std::fmt;

use zeroize::Zeroizing;

use crate::digest::{Digest, from_hex, to_hex};
use crate::fresh::{self, NoRandomness};

/// Older than anybody keeps.
const MOST_KEYS: usize = 64;
const DOMAIN: &[u8] = b"pond/vault-key/v1\0";

/// The name of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kid([u8; Kid::BYTES]);

/// Keys that open records; the first one also seals.
pub struct KeyRing {
    active: Key,
    older: Vec<Key>,
}

struct Key {
    kid: Kid,
    bytes: Zeroizing<[u8; 32]>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RingFault {
    #[error("drawing a new key")]
    Random(#[source] NoRandomness),
    #[error("a key ring has 1 to {MOST_KEYS} keys, each on a line of 64 lower-case hexadecimal digits")]
    Malformed,
    #[error("the key {0} is in the ring twice")]
    Twice(Kid),
    #[error("the key {0} is not in the ring")]
    Unknown(Kid),
    #[error("the key {0} is the active one; rotate first")]
    Active(Kid),
    #[error("{records} records are still under the key {kid}; rotate them first")]
    InUse { kid: Kid, records: u64 },
}

impl Kid {
    pub const BYTES: usize = 8;

    pub(super) const fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let padded = from_hex(&format!("{text}{:048}", 0))?;
        padded.first_chunk().map(|kid| Self(*kid))
    }
}

impl KeyRing {
    /// A ring of one new key.
    pub fn generate() -> Result<Self, RingFault> {
        Ok(Self { active: Key::generate()?, older: Vec::new() })
    }

    pub fn parse(text: &str) -> Result<Self, RingFault> {
        let keys: Option<Vec<Key>> =
            text.lines().take(MOST_KEYS + 1).map(|line| from_hex(line).map(Key::new)).collect();
        let mut keys = keys.filter(|keys| keys.len() <= MOST_KEYS).ok_or(RingFault::Malformed)?.into_iter();
        let mut ring = Self { active: keys.next().ok_or(RingFault::Malformed)?, older: Vec::new() };
        for key in keys {
            if ring.key(key.kid).is_some() {
                return Err(RingFault::Twice(key.kid));
            }
            ring.older.push(key);
        }
        Ok(ring)
    }

    /// The ring's file.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::new());
        for key in self.keys() {
            text.push_str(&Zeroizing::new(to_hex(key.bytes.as_slice())));
            text.push('\n');
        }
        text
    }

    /// A new key becomes the active one; what the others sealed still opens.
    pub fn rotate(&mut self) -> Result<Kid, RingFault> {
        let old = std::mem::replace(&mut self.active, Key::generate()?);
        self.older.insert(0, old);
        Ok(self.active())
    }

    /// Forgets a key that no record is under. `records` says how many are, as counted where records are kept.
    pub fn forget(&mut self, kid: Kid, records: u64) -> Result<(), RingFault> {
        if kid == self.active() {
            return Err(RingFault::Active(kid));
        }
        if records > 0 {
            return Err(RingFault::InUse { kid, records });
        }
        let before = self.older.len();
        self.older.retain(|key| key.kid != kid);
        if self.older.len() == before { Err(RingFault::Unknown(kid)) } else { Ok(()) }
    }

    #[must_use]
    pub fn active(&self) -> Kid {
        self.active.kid
    }

    /// Every key's name, the active one first.
    pub fn kids(&self) -> impl Iterator<Item = Kid> {
        self.keys().map(|key| key.kid)
    }

    pub(super) fn active_key(&self) -> (Kid, &[u8; 32]) {
        (self.active.kid, &self.active.bytes)
    }

    pub(super) fn key(&self, kid: Kid) -> Option<&[u8; 32]> {
        self.keys().find(|key| key.kid == kid).map(|key| &*key.bytes)
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.active).chain(&self.older)
    }
}

impl Key {
    fn new(bytes: [u8; 32]) -> Self {
        let bytes = Zeroizing::new(bytes);
        let named = Zeroizing::new([DOMAIN, bytes.as_slice()].concat());
        let digest = Digest::of(&named);
        let mut kid = [0; Kid::BYTES];
        kid.iter_mut().zip(digest.as_bytes()).for_each(|(to, from)| *to = *from);
        Self { kid: Kid(kid), bytes }
    }

    fn generate() -> Result<Self, RingFault> {
        fresh::bytes::<32>().map(|bytes| Self::new(*bytes)).map_err(RingFault::Random)
    }
}

impl fmt::Display for Kid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for Kid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.kids()).finish()
    }
}
