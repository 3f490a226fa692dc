//! What a result is made of: changes against the base, and entries refused with a reason.
//!
//! Pure data and the one comparison between two leaves; the vocabulary is git's (three modes, no owners, no attributes).

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::path::RelPath;

/// The three kinds of leaf a result can hold. Everything else about a mode is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    #[serde(rename = "100644")]
    Regular,
    #[serde(rename = "100755")]
    Executable,
    #[serde(rename = "120000")]
    Link,
}

impl Mode {
    /// As git does: executable if the owner may execute it.
    pub(crate) fn of_file(raw: u32) -> Self {
        if raw & 0o100 == 0 { Self::Regular } else { Self::Executable }
    }

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Regular => "100644",
            Self::Executable => "100755",
            Self::Link => "120000",
        }
    }
}

/// One file or symbolic link: for a link the content is its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leaf {
    pub mode: Mode,
    pub size: u64,
    pub sha256: Digest,
}

/// One changed path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    pub path: RelPath,
    pub delta: Delta,
}

/// How a path differs from the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Delta {
    Added { new: Leaf },
    Deleted { base: Leaf },
    Modified { base: Leaf, new: Leaf },
    ModeChanged { base: Leaf, new: Leaf },
    TypeChanged { base: Leaf, new: Leaf },
}

impl Delta {
    /// `None` when nothing a result can express differs.
    pub(crate) fn between(base: Leaf, new: Leaf) -> Option<Self> {
        let link = |leaf: Leaf| leaf.mode == Mode::Link;
        if link(base) != link(new) {
            Some(Self::TypeChanged { base, new })
        } else if base.sha256 != new.sha256 {
            Some(Self::Modified { base, new })
        } else if base.mode != new.mode {
            Some(Self::ModeChanged { base, new })
        } else {
            None
        }
    }

    #[must_use]
    pub fn base(&self) -> Option<Leaf> {
        match *self {
            Self::Added { .. } => None,
            Self::Deleted { base }
            | Self::Modified { base, .. }
            | Self::ModeChanged { base, .. }
            | Self::TypeChanged { base, .. } => Some(base),
        }
    }

    #[must_use]
    pub fn result(&self) -> Option<Leaf> {
        match *self {
            Self::Deleted { .. } => None,
            Self::Added { new }
            | Self::Modified { new, .. }
            | Self::ModeChanged { new, .. }
            | Self::TypeChanged { new, .. } => Some(new),
        }
    }
}

/// An entry left out of the result. Its path is text because a refused name need not be a valid [`RelPath`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rejected {
    pub path: String,
    pub reason: Reason,
}

/// Why an entry was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    #[error("is a fifo")]
    Fifo,
    #[error("is a socket")]
    Socket,
    #[error("is a character device")]
    CharDevice,
    #[error("is a block device")]
    BlockDevice,
    #[error("is of an unknown file type")]
    UnknownType,
    #[error("carries an overlay redirect, which would name another path of the base")]
    Redirect,
    #[error("carries an overlay metacopy mark, so its content is not its own")]
    Metacopy,
    #[error("is larger than the limit for one file")]
    FileTooLarge,
    #[error("lies deeper than the limit")]
    TooDeep,
    #[error("has a longer name than the limit")]
    NameTooLong,
    #[error("has a longer path than the system can open")]
    PathTooLong,
    #[error("may not be read by pond")]
    Unreadable,
    #[error("replaces something in the base that cannot be read or described")]
    BaseUnusable,
    #[error("uses a name pond or git reserves")]
    Reserved,
    /// Of artifacts alone: as a change a link is data like any other.
    #[error("is a symbolic link, and none is followed")]
    Link,
}
