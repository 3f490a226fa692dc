//! Whether the keys of this control plane are those its store was made with. Another state directory on the same database has other
//! ones: its checkpoints would be nobody's, and what it seals nobody else could open.
//!
//! TRUSTED. Decided by names of keys, before anything is written. Somebody with the database may change those names, and gains that a
//! control plane does not serve; whether the log is the one that was signed is judged where it grows (`tree.rs`).

use pond_seal::audit::checkpoint::origin;
use pond_seal::key::SigningKey;
use pond_seal::vault::{KeyRing, Kid};

use super::Store;
use super::credential::count;
use super::engine::{Fault, Row, args};

/// How the origin of every audit log of pond's begins.
const LOG: &str = "pond.audit/";

/// The store was made with other keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    #[error(
        "the audit log of this store is {theirs}, signed by another control plane; the key here, control/signing.key, is that of {ours}"
    )]
    Signing { theirs: String, ours: String },
    #[error(
        "the secrets and sources of this store are under keys that control/vault.keys does not have, such as {0}"
    )]
    Vault(Kid),
}

/// A record that the ring does not open: where it stands, and nothing of what it holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {what} {name} of {} is under the key {kid}, which is not in the vault's ring", whose(project))]
pub struct Stranger {
    /// A secret or a source.
    pub what: String,
    pub name: String,
    /// Empty: of every project.
    pub project: String,
    pub kid: Kid,
}

fn whose(project: &str) -> String {
    if project.is_empty() { "every project".to_owned() } else { format!("project {project}") }
}

impl Store {
    /// What is wrong with this signing key, or the ring that is in use, for this store.
    pub async fn misfit(&self, key: &SigningKey) -> Result<Option<Misfit>, Fault> {
        let ours = origin(&key.public());
        let note = self.checkpoint().await?.unwrap_or_default();
        // What is no origin is a damaged log, and none of another control plane.
        let theirs = note.lines().next().filter(|line| line.starts_with(LOG));
        if let Some(theirs) = theirs.filter(|theirs| *theirs != ours) {
            return Ok(Some(Misfit::Signing { theirs: theirs.to_owned(), ours }));
        }
        let (ring, records) = (self.ring(), self.records_by_key().await?);
        let known = ring.kids().any(|kid| records.contains_key(&kid));
        Ok(records.keys().next().filter(|_| !known).copied().map(Misfit::Vault))
    }

    /// A record under a key that is not in this ring, if there is one.
    pub async fn stranger(&self, ring: &KeyRing) -> Result<Option<Stranger>, Fault> {
        let mut tx = self.engine.read().await?;
        let records = count(&mut tx).await?;
        let Some(kid) = records.keys().find(|kid| ring.kids().all(|known| known != **kid)) else {
            return Ok(None);
        };
        let sql = "SELECT what, name, project, kid FROM (
                       SELECT 'secret' AS what, name, project, kid FROM credential
                       UNION ALL SELECT 'source' AS what, id AS name, project, kid FROM bundle) AS sealed
                   WHERE kid = $1 ORDER BY what, project, name LIMIT 1";
        let row = tx.row(sql, args![&kid.to_string()]).await?;
        row.as_ref().map(Stranger::read).transpose()
    }
}

impl Stranger {
    fn read(row: &Row) -> Result<Self, Fault> {
        Ok(Self {
            what: row.text("what")?,
            name: row.text("name")?,
            project: row.text("project")?,
            kid: row.read("kid", Kid::parse)?,
        })
    }
}
