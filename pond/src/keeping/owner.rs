//! Whose sandboxes are: a file for each that was asked for through the control plane, beside the sandboxes and not in them, because a
//! sandbox that is deleted leaves nothing but its name and its events.
//!
//! Invariant: an entry counts for the sandbox whose document it names by digest, and for no other that came to the same id.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use pond_policy::sandboxes::SandboxId;
use pond_seal::Digest;
use serde::{Deserialize, Serialize};

use crate::keeper::place::Place;

const ROOM: &str = "sandbox-owners";

#[derive(Debug)]
pub(super) struct Owners(PathBuf);

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Owner {
    document_sha256: String,
    labels: Vec<(String, String)>,
}

impl Owners {
    pub(super) fn open(state: &Path) -> io::Result<Self> {
        let room = state.join(ROOM);
        DirBuilder::new().recursive(true).mode(0o700).create(&room)?;
        Ok(Self(room))
    }

    /// A place of this process's own for files on their way.
    pub(super) fn desk(&self) -> &Path {
        &self.0
    }

    /// Written before the sandbox is asked for, whole or not at all.
    pub(super) fn write(
        &self,
        id: &SandboxId,
        document: &[u8],
        labels: &[(String, String)],
    ) -> io::Result<()> {
        let owner = Owner { document_sha256: Digest::of(document).to_string(), labels: labels.to_vec() };
        let (made, named) = (self.0.join(format!(".{id}")), self.path(id.as_str()));
        std::fs::write(&made, serde_json::to_vec(&owner)?)?;
        std::fs::rename(made, named)
    }

    /// Nothing for a sandbox that was made elsewhere, or whose entry cannot be read: then it is nobody's but the machine's.
    pub(super) fn of(&self, place: &Place) -> Vec<(String, String)> {
        let read = || -> Option<Owner> {
            let owner: Owner = serde_json::from_slice(&std::fs::read(self.path(place.id())).ok()?).ok()?;
            let document = place.document().ok()?;
            (Digest::of(&document).to_string() == owner.document_sha256).then_some(owner)
        };
        read().map(|owner| owner.labels).unwrap_or_default()
    }

    fn path(&self, id: &str) -> PathBuf {
        self.0.join(format!("{id}.json"))
    }
}
