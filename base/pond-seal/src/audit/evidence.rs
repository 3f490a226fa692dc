//! One entry with everything that shows it is in the log, as a file that needs no server: C2SP's tlog-proof, whose extra data is
//! the entry itself.
//!
//! HOSTILE INPUT until [`Evidence::verify`] returned.

use super::checkpoint::{self, Checkpoint, CheckpointFault};
use super::proof::{ProofFault, check_inclusion};
use super::tree;
use crate::Digest;
use crate::key::PublicKey;
use crate::pem::{from_base64, to_base64};

const MAGIC: &str = "c2sp.org/tlog-proof@v1";
/// An entry is a line of some hundred bytes; a proof has 64 hashes at most.
pub const MOST_BYTES: usize = 1 << 20;
const MOST_HASHES: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// The bytes of the entry.
    pub entry: Vec<u8>,
    pub index: u64,
    pub path: Vec<Digest>,
    /// The note.
    pub checkpoint: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EvidenceFault {
    #[error("not a proof of a log: {MAGIC}")]
    Malformed,
    #[error(transparent)]
    Checkpoint(#[from] CheckpointFault),
    #[error(transparent)]
    Proof(#[from] ProofFault),
}

impl EvidenceFault {
    /// Stable; the documents list it.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Malformed => "evidence_malformed",
            Self::Checkpoint(fault) => fault.code(),
            Self::Proof(fault) => fault.code(),
        }
    }
}

impl Evidence {
    #[must_use]
    pub fn to_text(&self) -> String {
        let hash = |hash: &Digest| format!("{}\n", to_base64(hash.as_bytes()));
        let path: String = self.path.iter().map(hash).collect();
        let entry = to_base64(&self.entry);
        format!("{MAGIC}\nextra {entry}\nindex {}\n{path}\n{}", self.index, self.checkpoint)
    }

    pub fn parse(text: &str) -> Result<Self, EvidenceFault> {
        let fault = EvidenceFault::Malformed;
        if text.len() > MOST_BYTES {
            return Err(fault);
        }
        let (head, note) = text.split_once("\n\n").ok_or(fault)?;
        if note.len() > checkpoint::MOST_BYTES {
            return Err(fault);
        }
        let mut lines = head.split('\n');
        let magic = lines.next().filter(|line| *line == MAGIC);
        let entry = lines.next().and_then(|line| from_base64(line.strip_prefix("extra ")?));
        let index = lines.next().and_then(|line| line.strip_prefix("index "));
        let index =
            index.and_then(|text| text.parse::<u64>().ok().filter(|number| number.to_string() == text));
        let (Some(_), Some(entry), Some(index)) = (magic, entry, index) else { return Err(fault) };
        let hash = |line: &str| <[u8; 32]>::try_from(from_base64(line)?).ok().map(Digest::from_bytes);
        let path: Option<Vec<Digest>> = lines.map(hash).collect();
        let path = path.filter(|path| path.len() <= MOST_HASHES).ok_or(fault)?;
        Ok(Self { entry, index, path, checkpoint: note.to_owned() })
    }

    /// The checkpoint that the entry is in, if `key` signed it.
    pub fn verify(&self, key: &PublicKey) -> Result<Checkpoint, EvidenceFault> {
        let checkpoint = Checkpoint::verify(&self.checkpoint, key)?;
        let leaf = tree::leaf(&self.entry);
        check_inclusion(&leaf, self.index, (checkpoint.size, &checkpoint.root), &self.path)?;
        Ok(checkpoint)
    }
}
