//! What happened: an audit entry for each change, written in the transaction that makes it, with its commit.
//!
//! Those of a run are what its followers read as events, in an order that never changes. None holds a secret.

use std::fmt;

use pond_policy::name::Project;
use serde_json::{Value as Json, json};

use super::Store;
use super::dialect::Dialect;
use super::engine::{Fault, Row, Tx, Value, args};
use super::id::{Moment, RunId, StageId, TokenId, WorkerId};

/// On whose word something changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    System,
    /// Who showed nothing that counts.
    Nobody,
    Token(TokenId),
    Worker(WorkerId),
}

macro_rules! actions {
    ($( $variant:ident => $name:literal ),+ $(,)?) => {
        /// What changed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Action { $( $variant ),+ }

        impl Action {
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name ),+ }
            }

            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $( $name => Some(Self::$variant), )+ _ => None }
            }
        }
    };
}

actions! {
    ProjectCreated => "project.created",
    ProjectRemoved => "project.removed",
    EgressAllowed => "egress.allowed",
    EgressRemoved => "egress.removed",
    CredentialSet => "credential.set",
    CredentialRemoved => "credential.removed",
    CredentialReleased => "credential.released",
    VaultRotated => "vault.rotated",
    TokenIssued => "token.issued",
    TokenRevoked => "token.revoked",
    EnrollmentIssued => "enrollment.issued",
    WorkerEnrolled => "worker.enrolled",
    WorkerCapabilities => "worker.capabilities",
    WorkerDraining => "worker.draining",
    WorkerQuarantined => "worker.quarantined",
    WorkerReleased => "worker.released",
    WorkerRevoked => "worker.revoked",
    WorkerRotated => "worker.rotated",
    RequestRefused => "request.refused",
    CredentialRefused => "credential.refused",
    RunSubmitted => "run.submitted",
    RunCancelling => "run.cancelling",
    RunEnded => "run.ended",
    BudgetCrossed => "run.budget_crossed",
    StageQueued => "stage.queued",
    StageLeased => "stage.leased",
    StageRunning => "stage.running",
    StageRequeued => "stage.requeued",
    StageEnded => "stage.ended",
    ResultAccepted => "result.accepted",
    ResultRejected => "result.rejected",
    ResultDistrusted => "result.distrusted",
    BundleStored => "bundle.stored",
    BundleRedeemed => "bundle.redeemed",
    SandboxCreated => "sandbox.created",
    SandboxStopped => "sandbox.stopped",
    SandboxResumed => "sandbox.resumed",
    SandboxDeleted => "sandbox.deleted",
    SandboxExec => "sandbox.exec",
    SandboxExecCancelled => "sandbox.exec_cancelled",
    SandboxFileRead => "sandbox.file_read",
    SandboxFileWritten => "sandbox.file_written",
}

/// One change, before it is written.
#[derive(Debug)]
pub(super) struct Change<'a> {
    pub(super) actor: &'a Actor,
    pub(super) action: Action,
    pub(super) project: Option<&'a str>,
    pub(super) run: Option<&'a RunId>,
    pub(super) stage: Option<&'a StageId>,
    /// The id or name of what changed.
    pub(super) subject: &'a str,
    pub(super) detail: Json,
}

/// Where a reader stands in the events or the audit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub(super) tx: i64,
    pub(super) seq: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub place: Place,
    pub at: Moment,
    pub stage: Option<StageId>,
    pub action: Action,
    /// JSON.
    pub detail: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    pub place: Place,
    pub at: Moment,
    pub actor: String,
    pub action: Action,
    pub project: Option<String>,
    pub subject: String,
    /// JSON.
    pub detail: String,
}

/// A change, ready to be written.
#[derive(Debug)]
pub(super) struct Entry {
    at: Moment,
    actor: String,
    action: Action,
    project: Option<String>,
    subject: String,
    detail: String,
    run: Option<String>,
    stage: Option<String>,
}

macro_rules! insert {
    ($rows:literal) => {
        concat!(
            "INSERT INTO audit (at, actor, action, project, subject, detail, run_id, stage_id) VALUES ",
            $rows
        )
    };
}

/// On SQLite, from a list in JSON: however many there are.
const LISTED: &str = "INSERT INTO audit (at, actor, action, project, subject, detail, run_id, stage_id)
     SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7
     FROM json_each($1) ORDER BY key";

/// On Postgres, by how many entries they write: all that most changes have, in one statement.
const INSERTS: [&str; 3] = [
    insert!("($1, $2, $3, $4, $5, $6, $7, $8)"),
    insert!("($1, $2, $3, $4, $5, $6, $7, $8), ($9, $10, $11, $12, $13, $14, $15, $16)"),
    insert!(
        "($1, $2, $3, $4, $5, $6, $7, $8), ($9, $10, $11, $12, $13, $14, $15, $16),
         ($17, $18, $19, $20, $21, $22, $23, $24)"
    ),
];

/// Notes a change, to be written when its transaction is committed.
pub(super) fn write(tx: &mut Tx, now: Moment, change: &Change<'_>) {
    write_text(tx, now, change, &change.detail.to_string());
}

/// The same, where the detail is text already.
pub(super) fn write_text(tx: &mut Tx, now: Moment, change: &Change<'_>, detail: &str) {
    tx.tell(Entry {
        at: now,
        actor: change.actor.to_string(),
        action: change.action,
        project: change.project.map(str::to_owned),
        subject: change.subject.to_owned(),
        detail: detail.to_owned(),
        run: change.run.map(|run| run.as_str().to_owned()),
        stage: change.stage.map(|stage| stage.as_str().to_owned()),
    });
}

/// Writes what was noted, in its order.
pub(super) async fn keep(tx: &mut Tx, entries: &[Entry]) -> Result<(), Fault> {
    if tx.dialect() == Dialect::Sqlite && !entries.is_empty() {
        let list = Json::Array(entries.iter().map(Entry::listed).collect()).to_string();
        return tx.run(LISTED, args![&list]).await.map(|_| ());
    }
    for some in entries.chunks(INSERTS.len()) {
        let sql = some.len().checked_sub(1).and_then(|at| INSERTS.get(at)).copied().unwrap_or_default();
        let values: Vec<_> = some.iter().flat_map(Entry::values).collect();
        tx.run(sql, &values).await?;
    }
    Ok(())
}

impl Entry {
    fn listed(&self) -> Json {
        let Self { at, actor, action, project, subject, detail, run, stage } = self;
        json!([at.0, actor, action.name(), project, subject, detail, run, stage])
    }

    fn values(&self) -> [Value<'_>; 8] {
        [
            self.at.into(),
            Value::from(&self.actor),
            self.action.name().into(),
            self.project.as_deref().into(),
            Value::from(&self.subject),
            Value::from(&self.detail),
            self.run.as_deref().into(),
            self.stage.as_deref().into(),
        ]
    }
}

impl Store {
    /// Writes down what changed nothing: a request or a release that was refused.
    pub async fn note(
        &self,
        (actor, action): (&Actor, Action),
        subject: &str,
        detail: Json,
        now: Moment,
    ) -> Result<(), Fault> {
        self.note_for(None, (actor, action), subject, detail, now).await
    }

    /// The events of a run after `place`, oldest first.
    pub async fn events(&self, run: &RunId, place: Place, limit: u32) -> Result<Vec<Event>, Fault> {
        let mut tx = self.engine.read().await?;
        let sql = tx.dialect().events();
        let rows = tx.rows(sql, args![run, place.tx, place.seq, i64::from(limit)]).await?;
        rows.iter().map(Event::read).collect()
    }

    /// The audit log after `place`, oldest first; of one project or of all.
    pub async fn audit(
        &self,
        project: Option<&Project>,
        place: Place,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, Fault> {
        let mut tx = self.engine.read().await?;
        let sql = tx.dialect().audit();
        let project = project.map(Project::as_str);
        let rows = tx.rows(sql, args![place.tx, place.seq, i64::from(limit), project]).await?;
        rows.iter().map(AuditEntry::read).collect()
    }

    /// The same, of something that concerns a project.
    pub async fn note_for(
        &self,
        project: Option<&Project>,
        (actor, action): (&Actor, Action),
        subject: &str,
        detail: Json,
        now: Moment,
    ) -> Result<(), Fault> {
        let mut tx = self.engine.write().await?;
        let project = project.map(Project::as_str);
        let change = Change { actor, action, project, run: None, stage: None, subject, detail };
        write(&mut tx, now, &change);
        tx.commit().await
    }
}

impl Event {
    fn read(row: &Row) -> Result<Self, Fault> {
        Ok(Self {
            place: Place::read(row)?,
            at: Moment(row.int("at")?),
            stage: row.maybe_read("stage_id", StageId::parse)?,
            action: row.read("action", Action::from_name)?,
            detail: row.text("detail")?,
        })
    }
}

impl AuditEntry {
    fn read(row: &Row) -> Result<Self, Fault> {
        Ok(Self {
            place: Place::read(row)?,
            at: Moment(row.int("at")?),
            actor: row.text("actor")?,
            action: row.read("action", Action::from_name)?,
            project: row.maybe_text("project")?,
            subject: row.text("subject")?,
            detail: row.text("detail")?,
        })
    }
}

impl Place {
    pub(super) fn read(row: &Row) -> Result<Self, Fault> {
        Ok(Self { tx: row.int("tx")?, seq: row.int("seq")? })
    }

    /// Reads back what `Display` wrote: the id of an event in a stream.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (tx, seq) = text.split_once('-')?;
        let number = |digits: &str| digits.parse::<u64>().ok().and_then(|number| i64::try_from(number).ok());
        let place = Self { tx: number(tx)?, seq: number(seq)? };
        (place.to_string() == text).then_some(place)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.tx, self.seq)
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("system"),
            Self::Nobody => f.write_str("nobody"),
            Self::Token(id) => id.fmt(f),
            Self::Worker(id) => id.fmt(f),
        }
    }
}
