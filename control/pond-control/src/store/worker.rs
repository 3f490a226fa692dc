//! Workers as the control plane knows them: pinned keys, granted tags, confirmed capabilities, and whether they may have work.

use std::collections::HashMap;

use pond_policy::capability::Capability;
use pond_policy::route::Have;
use pond_policy::tags::Tag;
use serde_json::json;

use super::Store;
use super::dialect::Dialect;
use super::engine::{Column, Fault, Row, Tx, args};
use super::expire::ALWAYS;
use super::id::{JobId, Moment, WorkerId};
use super::journal::{self, Action, Actor, Change};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    Active,
    /// Ends what it has and takes no more.
    Draining,
    /// Lost too many jobs; waits for an operator.
    Quarantined,
    /// Its keys are worth nothing any more.
    Revoked,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerView {
    pub id: WorkerId,
    pub name: String,
    /// Ed25519 and X25519, as they were pinned.
    pub sign_key: String,
    pub seal_key: String,
    /// What it signed with before, oldest first.
    pub former_keys: Vec<String>,
    /// How often they changed.
    pub generation: u64,
    pub have: Have,
    pub state: WorkerState,
    /// Why, when it is not active.
    pub reason: String,
    pub enrolled_at: Moment,
    pub seen_at: Moment,
}

#[derive(Debug, thiserror::Error)]
pub enum WorkerFault {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error("there is no worker {0}")]
    Unknown(WorkerId),
    #[error("the worker is {}", .0.name())]
    Is(WorkerState),
}

impl WorkerState {
    pub const ALL: [Self; 4] = [Self::Active, Self::Draining, Self::Quarantined, Self::Revoked];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Quarantined => "quarantined",
            Self::Revoked => "revoked",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

macro_rules! view {
    ($which:literal) => {
        concat!(
            "SELECT id, name, sign_key, seal_key, former_keys, generation, tags, capabilities, state, reason, enrolled_at, seen_at
             FROM worker ",
            $which
        )
    };
}

const VIEW: &str = view!("ORDER BY id");
const VIEW_ONE: &str = view!("WHERE id = $1");
const VIEW_SOME: &str = view!("WHERE id = ANY ($1::text[])");
/// On SQLite, by a list in JSON.
const VIEW_LISTED: &str = view!("WHERE id IN (SELECT value FROM json_each($1))");

impl Store {
    pub async fn workers(&self) -> Result<Vec<WorkerView>, Fault> {
        let rows = self.engine.rows(VIEW, &[]).await?;
        rows.iter().map(WorkerView::read).collect()
    }

    pub async fn worker(&self, id: &WorkerId) -> Result<Option<WorkerView>, Fault> {
        let changes = self.known.changes();
        let row = self.engine.row(VIEW_ONE, args![id]).await?;
        let found = row.as_ref().map(WorkerView::read).transpose()?;
        if let Some(worker) = &found {
            self.known.keep(changes, worker);
        }
        Ok(found)
    }

    /// The same as of at most half a second ago; what this process changed since is there.
    pub async fn known_worker(&self, id: &WorkerId) -> Result<Option<WorkerView>, Fault> {
        if let Some(known) = self.known.get(id) {
            return Ok(Some(known));
        }
        match self.know_together(id.clone()).await {
            Some(known) => Ok(Some(known)),
            None => self.worker(id).await,
        }
    }

    /// Those of them there are.
    pub(super) async fn workers_named(
        &self,
        ids: &[&WorkerId],
    ) -> Result<HashMap<WorkerId, WorkerView>, Fault> {
        let changes = self.known.changes();
        let ids: Vec<&str> = ids.iter().map(|id| id.as_str()).collect();
        let rows = match self.engine.dialect() {
            Dialect::Postgres => self.engine.together(VIEW_SOME, vec![Column::Texts(ids)], &[]).await?,
            Dialect::Sqlite => self.engine.rows(VIEW_LISTED, args![&json!(ids).to_string()]).await?,
        };
        let mut found = HashMap::new();
        for row in &rows {
            let worker = WorkerView::read(row)?;
            self.known.keep(changes, &worker);
            found.insert(worker.id.clone(), worker);
        }
        Ok(found)
    }

    /// What probes on the worker's host confirm now. Whether that is news.
    pub async fn set_capabilities(
        &self,
        id: &WorkerId,
        capabilities: &[Capability],
        now: Moment,
    ) -> Result<bool, WorkerFault> {
        let mut tx = self.engine.write().await?;
        let row = tx.row("SELECT capabilities, state FROM worker WHERE id = $1", args![id]).await?;
        let row = row.ok_or_else(|| WorkerFault::Unknown(id.clone()))?;
        let state = row.read("state", WorkerState::from_name)?;
        if state == WorkerState::Revoked {
            return Err(WorkerFault::Is(state));
        }
        let text = words(capabilities);
        let news = row.text("capabilities")? != text;
        let sql = "UPDATE worker SET capabilities = $2, seen_at = $3 WHERE id = $1";
        tx.run(sql, args![id, &text, now]).await?;
        if news {
            let actor = Actor::Worker(id.clone());
            let change = about(id, &actor, Action::WorkerCapabilities, json!({"capabilities": text}));
            journal::write(&mut tx, now, &change);
        }
        tx.commit().await?;
        self.known.forget_one(id);
        Ok(news)
    }

    /// Pins new keys in the place of those of `before`, who signed for them. Which generation that makes.
    pub async fn rotate_worker(
        &self,
        before: &WorkerView,
        (sign_key, seal_key): (&str, &str),
        now: Moment,
    ) -> Result<u64, WorkerFault> {
        let mut tx = self.engine.write().await?;
        let generation = before.generation + 1;
        let changed = tx
            .run(
                "UPDATE worker SET sign_key = $3, seal_key = $4, generation = $5, former_keys = former_keys || ' ' || sign_key
                 WHERE id = $1 AND sign_key = $2 AND generation = $6 AND state <> 'revoked'",
                args![&before.id, &before.sign_key, sign_key, seal_key, generation, before.generation],
            )
            .await?;
        if changed == 0 {
            return Err(WorkerFault::Unknown(before.id.clone()));
        }
        let actor = Actor::Worker(before.id.clone());
        let detail = json!({"generation": generation, "sign_key": sign_key});
        journal::write(&mut tx, now, &about(&before.id, &actor, Action::WorkerRotated, detail));
        tx.commit().await?;
        self.known.forget();
        Ok(generation)
    }

    /// Takes no more work; ends what it has.
    pub async fn drain(&self, id: &WorkerId, actor: &Actor, now: Moment) -> Result<(), WorkerFault> {
        let from = [WorkerState::Active];
        self.set_state(
            id,
            &from,
            (WorkerState::Draining, "shutting down"),
            (actor, Action::WorkerDraining),
            now,
        )
        .await
    }

    /// An operator lets a drained or quarantined worker have work again. What it lost before is forgotten.
    pub async fn release(&self, id: &WorkerId, actor: &Actor, now: Moment) -> Result<(), WorkerFault> {
        let from = [WorkerState::Draining, WorkerState::Quarantined];
        self.set_state(id, &from, (WorkerState::Active, ""), (actor, Action::WorkerReleased), now).await
    }

    /// For good. Its leases are over before this returns: none of them is good for anything from the moment of the commit.
    pub async fn revoke(&self, id: &WorkerId, actor: &Actor, now: Moment) -> Result<Vec<JobId>, WorkerFault> {
        let mut tx = self.engine.write().await?;
        let from = [WorkerState::Active, WorkerState::Draining, WorkerState::Quarantined];
        change_state(&mut tx, id, &from, (WorkerState::Revoked, "revoked")).await?;
        // The epoch moves on first: nobody has to wait for the runs these jobs belong to.
        let rows = tx
            .rows(
                "UPDATE job SET epoch = epoch + 1, lease_until = 0 WHERE worker_id = $1 AND state <> 'queued' RETURNING id",
                args![id],
            )
            .await?;
        let jobs = rows.iter().map(|row| row.read("id", JobId::parse)).collect::<Result<Vec<_>, _>>()?;
        let change = about(id, actor, Action::WorkerRevoked, json!({"leases": jobs.len()}));
        journal::write(&mut tx, now, &change);
        tx.commit().await?;
        self.known.forget();
        for job in &jobs {
            self.lapse(job, ALWAYS, now).await?;
        }
        Ok(jobs)
    }

    async fn set_state(
        &self,
        id: &WorkerId,
        from: &[WorkerState],
        (to, reason): (WorkerState, &str),
        (actor, action): (&Actor, Action),
        now: Moment,
    ) -> Result<(), WorkerFault> {
        let mut tx = self.engine.write().await?;
        change_state(&mut tx, id, from, (to, reason)).await?;
        if to == WorkerState::Active {
            tx.run("DELETE FROM lease_loss WHERE worker_id = $1", args![id]).await?;
        }
        journal::write(&mut tx, now, &about(id, actor, action, json!({})));
        tx.commit().await?;
        self.known.forget();
        Ok(())
    }
}

/// Moves a worker that is in one of the states of `from`.
async fn change_state(
    tx: &mut Tx,
    id: &WorkerId,
    from: &[WorkerState],
    (to, reason): (WorkerState, &str),
) -> Result<(), WorkerFault> {
    for state in from {
        let sql = "UPDATE worker SET state = $3, reason = $4 WHERE id = $1 AND state = $2";
        if tx.run(sql, args![id, state.name(), to.name(), reason]).await? == 1 {
            return Ok(());
        }
    }
    let row = tx.row("SELECT state FROM worker WHERE id = $1", args![id]).await?;
    let row = row.ok_or_else(|| WorkerFault::Unknown(id.clone()))?;
    Err(WorkerFault::Is(row.read("state", WorkerState::from_name)?))
}

impl WorkerView {
    fn read(row: &Row) -> Result<Self, Fault> {
        Ok(Self {
            id: row.read("id", WorkerId::parse)?,
            name: row.text("name")?,
            sign_key: row.text("sign_key")?,
            seal_key: row.text("seal_key")?,
            former_keys: row.text("former_keys")?.split_ascii_whitespace().map(str::to_owned).collect(),
            generation: row.count("generation")?,
            have: read_have(row)?,
            state: row.read("state", WorkerState::from_name)?,
            reason: row.text("reason")?,
            enrolled_at: Moment(row.int("enrolled_at")?),
            seen_at: Moment(row.int("seen_at")?),
        })
    }
}

pub(super) fn read_have(row: &Row) -> Result<Have, Fault> {
    let tags = row.read("tags", |text| text.split_ascii_whitespace().map(Tag::parse).collect())?;
    let capabilities =
        row.read("capabilities", |text| text.split_ascii_whitespace().map(Capability::parse).collect())?;
    Ok(Have { tags, capabilities })
}

/// Tags and capabilities have no blanks in them.
pub(super) fn words(parts: &[impl ToString]) -> String {
    parts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

pub(super) fn about<'a>(
    id: &'a WorkerId,
    actor: &'a Actor,
    action: Action,
    detail: serde_json::Value,
) -> Change<'a> {
    Change { actor, action, project: None, run: None, stage: None, subject: id.as_str(), detail }
}
