//! What is asked about runs: pages of them, one with its stages, the work of a stage, its results.
//!
//! Pages go by the last id seen, newest first: what is submitted meanwhile shifts nothing.

use pond_policy::name::{Name, Project};
use pond_policy::reason::{Cause, Reason};
use pond_policy::stage::State;
use pond_seal::Digest;

use super::Store;
use super::complete::Outcome;
use super::engine::{Fault, Row, Tx, args};
use super::flow::RunState;
use super::id::{BundleId, JobId, Moment, RunId, StageId, WorkerId};
use super::rerun::Standing;

/// Rows of one page.
const MOST_ROWS: u32 = 200;
/// Sorts after every id.
const LAST: &str = "s";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    pub id: RunId,
    pub project: String,
    pub state: RunState,
    /// Why it is being cancelled, or was.
    pub cancel: Option<Reason>,
    pub open_stages: u64,
    pub created_at: Moment,
    pub ended_at: Option<Moment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunView {
    pub run: RunSummary,
    pub source: Option<BundleId>,
    pub stages: Vec<StageView>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageView {
    pub id: StageId,
    pub name: String,
    pub state: State,
    /// Why it ended so, or what it waits for.
    pub reason: Reason,
    pub job: Option<JobView>,
    pub ended_at: Option<Moment>,
}

/// The try that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobView {
    pub id: JobId,
    pub attempt: u64,
    pub worker: Option<WorkerId>,
    pub epoch: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultView {
    pub job: JobId,
    pub worker: WorkerId,
    pub epoch: u64,
    pub attempt: u64,
    pub outcome: Outcome,
    pub digest: Digest,
    pub envelope: Vec<u8>,
    pub at: Moment,
    /// What it was compared by, if it was.
    pub ballot: Option<Digest>,
    pub standing: Standing,
    /// Paths in which it differs from another.
    pub differs: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    pub rows: Vec<T>,
    /// Where the next page begins, if there is one.
    pub next: Option<RunId>,
}

/// Which runs, from where on.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// `None`: of every project.
    pub project: Option<&'a Project>,
    pub state: Option<RunState>,
    pub after: Option<&'a RunId>,
    pub limit: u32,
}

impl Store {
    /// Runs, newest first.
    pub async fn runs(&self, asked: Asked<'_>) -> Result<Page<RunSummary>, Fault> {
        let limit = asked.limit.clamp(1, MOST_ROWS);
        let before = asked.after.map_or(LAST, RunId::as_str);
        let (project, state) = (asked.project.map(Project::as_str), asked.state.map(RunState::name));
        let sql = self.engine.dialect().runs(project.is_some());
        let rows = self.engine.rows(sql, args![before, i64::from(limit) + 1, state, project]).await?;
        let mut rows = rows.iter().map(RunSummary::read).collect::<Result<Vec<_>, _>>()?;
        let size = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = rows.len() > size;
        rows.truncate(size);
        let next = rows.last().filter(|_| more).map(|last| last.id.clone());
        Ok(Page { rows, next })
    }

    pub async fn run(&self, id: &RunId) -> Result<Option<RunView>, Fault> {
        let mut tx = self.engine.read().await?;
        let sql = "SELECT id, project, state, cancel, open_stages, source, created_at, ended_at FROM run WHERE id = $1";
        let Some(row) = tx.row(sql, args![id]).await? else { return Ok(None) };
        let run = RunSummary::read(&row)?;
        let source = row.maybe_read("source", BundleId::parse)?;
        let stages = self.stages(&mut tx, id).await?;
        Ok(Some(RunView { run, source, stages }))
    }

    async fn stages(&self, tx: &mut Tx, run: &RunId) -> Result<Vec<StageView>, Fault> {
        let sql = "SELECT stage.id AS id, name, stage.state AS state, reason, unmet, ended_at, stage.class_id AS class_id,
                      job.id AS job_id, job.state AS job_state, attempt, worker_id, epoch
                   FROM stage LEFT JOIN job ON job.stage_id = stage.id WHERE stage.run_id = $1 ORDER BY position";
        let rows = tx.rows(sql, args![run]).await?;
        let mut stages = rows.iter().map(StageView::read).collect::<Result<Vec<_>, _>>()?;
        if stages.iter().any(|stage| stage.state == State::Queued && stage.job.is_some()) {
            let waiting = self.waiting_in(tx).await?;
            for (stage, row) in stages.iter_mut().zip(&rows) {
                let class = row.int("class_id")?;
                let why = waiting
                    .iter()
                    .find(|waiting| waiting.is_of(class, stage.job.as_ref().map(|job| &job.id)));
                if let Some(why) = why.filter(|_| stage.state == State::Queued && stage.job.is_some()) {
                    stage.reason = Reason::of(Cause::NoWorker, why.reason.clone());
                }
            }
        }
        Ok(stages)
    }

    /// The project of a run: what decides who may ask for more.
    pub async fn project_of(&self, run: &RunId) -> Result<Option<Project>, Fault> {
        let row = self.engine.row("SELECT project FROM run WHERE id = $1", args![run]).await?;
        row.map(|row| row.read("project", |text| Name::parse(text).map(Project::from))).transpose()
    }

    /// The last try of a stage that a worker was given, whatever came of it.
    pub async fn last_job(&self, run: &RunId, stage: &StageId) -> Result<Option<JobId>, Fault> {
        let sql = "SELECT detail FROM audit WHERE run_id = $1 AND stage_id = $2 AND action = 'stage.leased'
                   ORDER BY tx DESC, seq DESC LIMIT 1";
        let Some(row) = self.engine.row(sql, args![run, stage]).await? else { return Ok(None) };
        let unreadable = || Fault::Unreadable { column: "detail" };
        let told: serde_json::Value = serde_json::from_str(&row.text("detail")?).map_err(|_| unreadable())?;
        told.get("job").and_then(|job| job.as_str()).and_then(JobId::parse).map(Some).ok_or_else(unreadable)
    }

    /// Every accepted result of a stage, oldest first.
    pub async fn results(&self, stage: &StageId) -> Result<Vec<ResultView>, Fault> {
        let sql = "SELECT job_id, worker_id, epoch, attempt, outcome, digest, envelope, at, ballot, standing, differs FROM result
                   WHERE stage_id = $1 ORDER BY attempt";
        let rows = self.engine.rows(sql, args![stage]).await?;
        rows.iter().map(ResultView::read).collect()
    }
}

impl RunSummary {
    fn read(row: &Row) -> Result<Self, Fault> {
        Ok(Self {
            id: row.read("id", RunId::parse)?,
            project: row.text("project")?,
            state: row.read("state", RunState::from_name)?,
            cancel: row.maybe_text("cancel")?.map(|text| Reason::parse(&text)),
            open_stages: row.count("open_stages")?,
            created_at: Moment(row.int("created_at")?),
            ended_at: row.maybe_int("ended_at")?.map(Moment),
        })
    }
}

impl StageView {
    fn read(row: &Row) -> Result<Self, Fault> {
        let job = match row.maybe_read("job_id", JobId::parse)? {
            None => None,
            Some(id) => Some(JobView {
                id,
                attempt: row.count("attempt")?,
                worker: row.maybe_read("worker_id", WorkerId::parse)?,
                epoch: row.count("epoch")?,
            }),
        };
        let live = row.maybe_read("job_state", State::from_name)?;
        let state = row.read("state", State::from_name)?;
        let (reason, unmet) = (row.text("reason")?, row.int("unmet")?);
        let waits = state == State::Queued && unmet > 0;
        Ok(Self {
            id: row.read("id", StageId::parse)?,
            name: row.text("name")?,
            state: live.unwrap_or(state),
            reason: match waits {
                true => Reason::of(Cause::NeedsOthers, format!("needs {unmet} more to succeed first")),
                false => Reason::parse(&reason),
            },
            job,
            ended_at: row.maybe_int("ended_at")?.map(Moment),
        })
    }
}

impl ResultView {
    fn read(row: &Row) -> Result<Self, Fault> {
        Ok(Self {
            job: row.read("job_id", JobId::parse)?,
            worker: row.read("worker_id", WorkerId::parse)?,
            epoch: row.count("epoch")?,
            attempt: row.count("attempt")?,
            outcome: row.read("outcome", Outcome::from_name)?,
            digest: row.digest("digest")?,
            envelope: row.bytes("envelope")?,
            at: Moment(row.int("at")?),
            ballot: row.maybe_digest("ballot")?,
            standing: row.read("standing", Standing::from_name)?,
            differs: row.text("differs")?.lines().map(str::to_owned).collect(),
        })
    }
}
