//! Credentials: written, listed by name, released at dispatch, never read back. Each is a record of the vault, bound to its
//! row and tenant. A project's own value comes before everybody's.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use pond_policy::name::{Name, Project};
use pond_seal::vault::{KeyRing, Kid, Place, VaultFault};
use serde_json::json;
use zeroize::Zeroizing;

use super::Store;
use super::bundle::key_place;
use super::engine::{Fault, Row, Tx, args};
use super::id::{BundleId, CredentialId, Moment};
use super::journal::{self, Action, Actor, Change};
use super::lease::Lease;

/// The tenant of credentials that are everybody's.
const EVERYBODY: &str = "";

/// What may be known of a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// `None`: everybody's.
    pub project: Option<Project>,
    pub name: Name,
    pub kid: Kid,
    pub changed_at: Moment,
}

/// What a rotation did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotated {
    pub rewrapped: u64,
    /// Records per key, after it.
    pub records: BTreeMap<Kid, u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum CredentialFault {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error("a value at rest")]
    Vault(#[from] VaultFault),
}

impl Store {
    /// Sets or replaces a credential.
    pub async fn set_credential(
        &self,
        project: Option<&Project>,
        name: &Name,
        value: &[u8],
        actor: &Actor,
        now: Moment,
    ) -> Result<(), CredentialFault> {
        let tenant = tenant(project);
        let ring = self.ring();
        let mut tx = self.engine.write().await?;
        let sql = "DELETE FROM credential WHERE project = $1 AND name = $2";
        tx.run(sql, args![tenant, name.as_str()]).await?;
        let id = CredentialId::new(now)?;
        let record = ring.seal(value_place(id.as_str(), tenant), value)?;
        tx.run(
            "INSERT INTO credential (id, project, name, kid, value, changed_at) VALUES ($1, $2, $3, $4, $5, $6)",
            args![&id, tenant, name.as_str(), &ring.active().to_string(), record.as_slice(), now],
        )
        .await?;
        journal::write(&mut tx, now, &about(project, name, actor, Action::CredentialSet));
        Ok(tx.commit().await?)
    }

    /// Whether there was one.
    pub async fn remove_credential(
        &self,
        project: Option<&Project>,
        name: &Name,
        actor: &Actor,
        now: Moment,
    ) -> Result<bool, Fault> {
        let mut tx = self.engine.write().await?;
        let sql = "DELETE FROM credential WHERE project = $1 AND name = $2";
        let removed = tx.run(sql, args![tenant(project), name.as_str()]).await? == 1;
        if removed {
            journal::write(&mut tx, now, &about(project, name, actor, Action::CredentialRemoved));
            tx.commit().await?;
        }
        Ok(removed)
    }

    /// Names, never values: a project's own and everybody's; without a project all there are.
    pub async fn credentials(&self, project: Option<&Project>) -> Result<Vec<Credential>, Fault> {
        let mut tx = self.engine.read().await?;
        let rows = match project {
            Some(project) => {
                let sql =
                    "SELECT project, name, kid, changed_at FROM credential WHERE project = $1 OR project = ''
                           ORDER BY project, name";
                tx.rows(sql, args![project.as_str()]).await?
            }
            None => {
                let sql = "SELECT project, name, kid, changed_at FROM credential ORDER BY project, name";
                tx.rows(sql, args![]).await?
            }
        };
        rows.iter().map(Credential::read).collect()
    }

    /// The value a job of this project gets, to be sealed to its worker at once. The release is written down first, with the
    /// lease it is for.
    pub async fn release_credential(
        &self,
        project: &Project,
        name: &Name,
        (actor, lease): (&Actor, Option<&Lease>),
        now: Moment,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, CredentialFault> {
        let mut tx = self.engine.write().await?;
        let sql =
            "SELECT id, project, value FROM credential WHERE name = $2 AND (project = $1 OR project = '')
                   ORDER BY project DESC LIMIT 1";
        let Some(row) = tx.row(sql, args![project.as_str(), name.as_str()]).await? else { return Ok(None) };
        let (id, tenant) = (row.text("id")?, row.text("project")?);
        let value = self.ring().open(value_place(&id, &tenant), &row.bytes("value")?)?;
        let detail =
            lease.map_or(json!({}), |lease| json!({"job": lease.job.as_str(), "epoch": lease.epoch}));
        let change = Change { detail, ..about(Some(project), name, actor, Action::CredentialReleased) };
        journal::write(&mut tx, now, &change);
        tx.commit().await?;
        Ok(Some(value))
    }

    /// From here on values are sealed under the active key of `ring`, which must hold the older ones too; every record is
    /// wrapped anew. What was done is told by key, so that one without records can be forgotten.
    pub async fn rotate(
        &self,
        ring: KeyRing,
        actor: &Actor,
        now: Moment,
    ) -> Result<Rotated, CredentialFault> {
        let ring = Arc::new(ring);
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&ring);
        let mut tx = self.engine.write().await?;
        let mut rewrapped = 0;
        for row in tx.rows("SELECT id, project, value FROM credential", &[]).await? {
            let (id, tenant) = (row.text("id")?, row.text("project")?);
            let place = value_place(&id, &tenant);
            if let Some(record) = ring.rewrap(place, &row.bytes("value")?)? {
                let sql = "UPDATE credential SET value = $2, kid = $3 WHERE id = $1";
                rewrapped += tx.run(sql, args![&id, record.as_slice(), &ring.active().to_string()]).await?;
            }
        }
        for row in tx.rows("SELECT id, project, key FROM bundle", &[]).await? {
            let (id, tenant) = (row.read("id", BundleId::parse)?, row.text("project")?);
            if let Some(record) = ring.rewrap(key_place(&id, &tenant), &row.bytes("key")?)? {
                let sql = "UPDATE bundle SET key = $2, kid = $3 WHERE id = $1";
                rewrapped += tx.run(sql, args![&id, record.as_slice(), &ring.active().to_string()]).await?;
            }
        }
        let records = count(&mut tx).await?;
        let subject = ring.active().to_string();
        let detail = json!({"rewrapped": rewrapped});
        let action = Action::VaultRotated;
        let change =
            Change { actor, action, project: None, run: None, stage: None, subject: &subject, detail };
        journal::write(&mut tx, now, &change);
        tx.commit().await?;
        Ok(Rotated { rewrapped, records })
    }

    /// Takes a ring over that has another active key; whether it did. Nothing for one that lacks the key that is active here.
    pub fn renew_ring(&self, ring: KeyRing) -> Option<bool> {
        let mut own = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.active() == own.active() {
            return Some(false);
        }
        ring.kids().find(|kid| *kid == own.active())?;
        *own = Arc::new(ring);
        Some(true)
    }

    /// How many records are under which key. A key that is not among them can be forgotten.
    pub async fn records_by_key(&self) -> Result<BTreeMap<Kid, u64>, Fault> {
        count(&mut self.engine.read().await?).await
    }
}

pub(super) async fn count(tx: &mut Tx) -> Result<BTreeMap<Kid, u64>, Fault> {
    let sql = "SELECT kid, count(*) AS records FROM (
                   SELECT kid FROM credential UNION ALL SELECT kid FROM bundle) AS sealed GROUP BY kid";
    let rows = tx.rows(sql, &[]).await?;
    rows.iter().map(|row| Ok((row.read("kid", Kid::parse)?, row.count("records")?))).collect()
}

impl Credential {
    fn read(row: &Row) -> Result<Self, Fault> {
        let project = row.text("project")?;
        let named = |text: &str| Name::parse(text).ok_or(Fault::Unreadable { column: "project" });
        Ok(Self {
            project: if project == EVERYBODY { None } else { Some(Project::from(named(&project)?)) },
            name: row.read("name", Name::parse)?,
            kid: row.read("kid", Kid::parse)?,
            changed_at: Moment(row.int("changed_at")?),
        })
    }
}

fn tenant(project: Option<&Project>) -> &str {
    project.map_or(EVERYBODY, Project::as_str)
}

fn value_place<'a>(id: &'a str, tenant: &'a str) -> Place<'a> {
    Place { table: "credential", row: id, column: "value", tenant }
}

fn about<'a>(project: Option<&'a Project>, name: &'a Name, actor: &'a Actor, action: Action) -> Change<'a> {
    let project = project.map(Project::as_str);
    Change { actor, action, project, run: None, stage: None, subject: name.as_str(), detail: json!({}) }
}
