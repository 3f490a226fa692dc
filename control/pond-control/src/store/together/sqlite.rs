//! On SQLite each is a transaction of the one writer: what is ordinary is looked up, then changed, a statement each for all calls,
//! which reads them from a list in JSON; bytes lie one after the other in a parameter of their own, and the list says where. Nobody writes
//! in between.

use std::collections::{HashMap, HashSet};

use pond_policy::stage::State;
use serde_json::{Value as Json, json};

use super::{Finish, Piece, Start, Take, Taken};
use crate::store::engine::{Engine, Fault, Row, Tx, args};
use crate::store::id::{JobId, Moment, RunId, StageId, WorkerId};
use crate::store::journal::{self, Action, Actor, Change};
use crate::store::lease::{Lease, Renewed};

pub(super) async fn take(engine: &Engine, all: &[&Take]) -> Result<HashMap<WorkerId, Taken>, Fault> {
    let Some(Take { class, project, .. }) = all.first() else { return Ok(HashMap::new()) };
    let mut tx = engine.write().await?;
    let asked = list(all.iter().map(|one| json!([one.worker.as_str(), one.generation])));
    let rows = tx.rows(ACTIVE, args![&asked]).await?;
    let active = rows.iter().map(|row| row.read("id", WorkerId::parse)).collect::<Result<HashSet<_>, _>>()?;
    let may: Vec<&&Take> = all.iter().filter(|one| active.contains(&one.worker)).collect();
    let most = i64::try_from(may.len()).unwrap_or(i64::MAX);
    let rows = tx.rows(OLDEST, args![*class, most]).await?;
    let (mut taken, mut pairs) = (HashMap::new(), Vec::new());
    for (row, one) in rows.iter().zip(may) {
        let mut given = Taken::read(row)?;
        given.epoch += 1;
        (given.held.state, given.held.offered_at, given.held.until) = (State::Leased, one.now, one.until);
        pairs.push(json!([given.job.as_str(), one.worker.as_str(), one.until.0, one.now.0]));
        let detail = json!({"job": given.job.as_str(), "worker": one.worker.as_str(), "epoch": given.epoch});
        let (run, stage) = (&given.held.run, &given.held.stage);
        tell(&mut tx, (&one.worker, Action::StageLeased), (project, run, stage), detail, one.now);
        taken.insert(one.worker.clone(), given);
    }
    tx.run(LEASE, args![&Json::Array(pairs).to_string()]).await?;
    tx.commit().await?;
    Ok(taken)
}

pub(super) async fn start(engine: &Engine, all: &[&Start]) -> Result<HashMap<JobId, Renewed>, Fault> {
    let mut tx = engine.write().await?;
    let asked = list(all.iter().map(|one| {
        let Lease { job, worker, epoch } = &one.lease;
        json!([job.as_str(), worker.as_str(), epoch, one.until.0, one.grace.0, one.now.0])
    }));
    let mut started = HashMap::new();
    for row in tx.rows(START, args![&asked]).await? {
        let job = row.read("id", JobId::parse)?;
        let Some(one) = all.iter().find(|one| one.lease.job == job) else { continue };
        let (run, stage) = (row.read("run_id", RunId::parse)?, row.read("stage_id", StageId::parse)?);
        let detail = json!({"job": job.as_str(), "epoch": one.lease.epoch});
        let about = (&*row.text("project")?, &run, &stage);
        tell(&mut tx, (&one.lease.worker, Action::StageRunning), about, detail, one.now);
        started.insert(job, Renewed::read(&row, one.until)?);
    }
    tx.commit().await?;
    Ok(started)
}

pub(super) async fn append(engine: &Engine, all: &[&Piece]) -> Result<HashMap<JobId, bool>, Fault> {
    let Some(Piece { stream, of_result, .. }) = all.first() else { return Ok(HashMap::new()) };
    let mut tx = engine.write().await?;
    let asked = list(all.iter().map(|one| json!(one.lease.job.as_str())));
    let (mut stored, mut pieces, mut runs) = (HashMap::new(), Vec::new(), HashSet::new());
    let mut bytes = Bytes::default();
    for row in tx.rows(BEGINNING, args![&asked, *stream]).await? {
        let Some(one) = holder(&row, all, |one| &one.lease)? else { continue };
        let (used, most) = match of_result {
            true => (row.count("artifact_used")?, row.count("artifact_most")?),
            false => (row.count("output_used")?, row.count("output_most")?),
        };
        let run = row.text("run_id")?;
        // What another call of the same run brings counts first.
        if used.saturating_add(one.size) > most || !runs.insert(run.clone()) {
            continue;
        }
        let Lease { job, epoch, .. } = &one.lease;
        let (chain, piece) = (bytes.lay(&one.chain), bytes.lay(&one.bytes));
        pieces.push(json!([job.as_str(), epoch, one.size, chain, piece, run]));
        stored.insert(job.clone(), row.int("cancel")? != 0 || row.maybe_text("why")?.is_some());
    }
    let sql = if *of_result { STORE_RESULT } else { STORE_OUTPUT };
    tx.run(sql, args![&Json::Array(pieces).to_string(), *stream, bytes.0.as_slice()]).await?;
    tx.commit().await?;
    Ok(stored)
}

pub(super) async fn finish(engine: &Engine, all: &[&Finish]) -> Result<HashMap<JobId, ()>, Fault> {
    let mut tx = engine.write().await?;
    let asked = list(all.iter().map(|one| json!(one.lease.job.as_str())));
    let (mut over, mut ends, mut bytes) = (HashMap::new(), Vec::new(), Bytes::default());
    for row in tx.rows(LAST, args![&asked]).await? {
        let Some(one) = holder(&row, all, |one| &one.lease)? else { continue };
        let Lease { job, worker, epoch } = &one.lease;
        let (run, stage) = (row.read("run_id", RunId::parse)?, row.read("stage_id", StageId::parse)?);
        let (attempt, project) = (row.int("attempt")?, row.text("project")?);
        let begins = row.read("state", State::from_name)? == State::Leased;
        let is_late = begins && row.int("lease_until")? < one.now.0;
        let piece = one.piece.as_ref();
        if is_late || !piece.map_or(Ok(true), |piece| has_room(&row, piece))? {
            continue;
        }
        let kept = (bytes.lay(&one.digest), bytes.lay(&one.envelope), one.envelope.len());
        let laid = piece.map(|piece| (bytes.lay(&piece.chain), bytes.lay(&piece.bytes)));
        let size = piece.map_or(0, |piece| piece.size);
        let ids = (job.as_str(), stage.as_str(), worker.as_str(), run.as_str());
        ends.push(json!([ids, epoch, attempt, one.now.0, kept, laid, size]));
        if begins {
            let detail = json!({"job": job.as_str(), "epoch": epoch});
            tell(&mut tx, (worker, Action::StageRunning), (&project, &run, &stage), detail, one.now);
        }
        let worker = Actor::Worker(worker.clone());
        let entries = [
            (&worker, Action::ResultAccepted, Some(&stage)),
            (&worker, Action::StageEnded, Some(&stage)),
            (&Actor::System, Action::RunEnded, None),
        ];
        for ((actor, action, stage), detail) in entries.into_iter().zip(&one.told) {
            let subject = stage.map_or(run.as_str(), StageId::as_str);
            let project = Some(&*project);
            let change =
                Change { actor, action, project, run: Some(&run), stage, subject, detail: Json::Null };
            journal::write_text(&mut tx, one.now, &change, detail);
        }
        over.insert(job.clone(), ());
    }
    tx.run(FINISH, args![&Json::Array(ends).to_string(), bytes.0.as_slice()]).await?;
    tx.commit().await?;
    Ok(over)
}

/// Whose lease a job's row is under.
fn holder<'a, Q>(row: &Row, all: &[&'a Q], lease: impl Fn(&Q) -> &Lease) -> Result<Option<&'a Q>, Fault> {
    let (job, epoch) = (row.text("id")?, row.count("epoch")?);
    let worker = row.maybe_text("worker_id")?;
    let is_it = |held: &Lease| {
        held.job.as_str() == job && Some(held.worker.as_str()) == worker.as_deref() && held.epoch == epoch
    };
    Ok(all.iter().copied().find(|one| is_it(lease(one))))
}

fn tell(
    tx: &mut Tx,
    (worker, action): (&WorkerId, Action),
    (project, run, stage): (&str, &RunId, &StageId),
    detail: Json,
    now: Moment,
) {
    let actor = &Actor::Worker(worker.clone());
    let (run, subject) = (Some(run), stage.as_str());
    let change = Change { actor, action, project: Some(project), run, stage: Some(stage), subject, detail };
    journal::write(tx, now, &change);
}

fn list(of: impl Iterator<Item = Json>) -> String {
    Json::Array(of.collect()).to_string()
}

/// Whether a job that sent nothing yet may keep this.
fn has_room(row: &Row, piece: &Piece) -> Result<bool, Fault> {
    let used = row.count("artifact_used")?.saturating_add(piece.size);
    Ok(row.int("begun")? == 0 && used <= row.count("artifact_most")?)
}

/// What statements cut their values from.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    /// Where it lies, as SQLite counts.
    fn lay(&mut self, bytes: &[u8]) -> usize {
        let at = self.0.len() + 1;
        self.0.extend_from_slice(bytes);
        at
    }
}

const ACTIVE: &str =
    "SELECT worker.id AS id FROM json_each($1) AS asked JOIN worker ON worker.id = asked.value ->> 0
    WHERE state = 'active' AND generation = asked.value ->> 1";

/// The oldest `$2` jobs of class `$1`; none where some of them avoid workers.
const OLDEST: &str = "SELECT job.id AS id, epoch, job.run_id AS run_id, stage_id, run.project AS project, attempt, job.state AS state,
        0 AS offered_at, lease_until, body, position, stage.name AS name, timeout_ms, inherits, stage.source AS made, bundle.id AS bundle_id,
        bundle.input AS input, wall_until, output_most, output_used, artifact_most, artifact_used, egress_most, egress_used
    FROM job JOIN stage ON stage.id = job.stage_id JOIN run ON run.id = job.run_id
    JOIN document ON document.run_id = job.run_id LEFT JOIN bundle ON bundle.id = coalesce(stage.source, run.source)
    WHERE job.id IN (SELECT id FROM job WHERE state = 'queued' AND class_id = $1
        AND NOT EXISTS (SELECT 1 FROM job AS picky WHERE picky.class_id = $1 AND picky.avoid <> '') ORDER BY id LIMIT $2)
    ORDER BY job.id";

const LEASE: &str = "UPDATE job SET state = 'leased', worker_id = pair.value ->> 1, epoch = epoch + 1,
        lease_until = pair.value ->> 2, offered_at = pair.value ->> 3
    FROM json_each($1) AS pair WHERE job.id = pair.value ->> 0";

const START: &str = "UPDATE job SET state = 'running', lease_until = asked.value ->> 3,
        deadline = (SELECT timeout_ms FROM stage WHERE stage.id = job.stage_id) + (asked.value ->> 4)
    FROM json_each($1) AS asked
    WHERE job.id = asked.value ->> 0 AND worker_id = asked.value ->> 1 AND epoch = asked.value ->> 2 AND state = 'leased'
        AND lease_until >= asked.value ->> 5
    RETURNING id, stage_id, run_id, cancel, lent, egress_lent, (SELECT project FROM run WHERE run.id = job.run_id) AS project";

/// Running jobs of which there is nothing yet in stream `$2`.
const BEGINNING: &str = "SELECT job.id AS id, worker_id, epoch, job.cancel AS cancel, run_id, run.cancel AS why, output_used, output_most,
        artifact_used, artifact_most
    FROM job JOIN run ON run.id = job.run_id
    WHERE job.id IN (SELECT value FROM json_each($1)) AND job.state = 'running'
        AND NOT EXISTS (SELECT 1 FROM log_chunk WHERE job_id = job.id AND log_chunk.epoch = job.epoch AND stream = $2)";

macro_rules! store {
    ($used:literal) => {
        concat!(
            "INSERT INTO log_chunk (job_id, epoch, stream, seq, start, size, chain, bytes)
                SELECT value ->> 0, value ->> 1, $2, 0, 0, value ->> 2, substr($3, value ->> 3, 32), substr($3, value ->> 4, value ->> 2)
                FROM json_each($1);
             UPDATE run SET ",
            $used,
            " = ",
            $used,
            " + (piece.value ->> 2) FROM json_each($1) AS piece WHERE run.id = piece.value ->> 5"
        )
    };
}

const STORE_OUTPUT: &str = store!("output_used");
const STORE_RESULT: &str = store!("artifact_used");

/// Jobs that cost nothing, each all that is left of a run in which nothing went wrong.
const LAST: &str =
    "SELECT job.id AS id, worker_id, epoch, run_id, stage_id, attempt, run.project AS project, job.state AS state, lease_until, artifact_used,
        artifact_most, EXISTS (SELECT 1 FROM log_chunk WHERE job_id = job.id AND log_chunk.epoch = job.epoch) AS begun
    FROM job JOIN run ON run.id = job.run_id
    WHERE job.id IN (SELECT value FROM json_each($1)) AND job.state IN ('leased', 'running') AND job.cancel = 0
        AND job.lent = 0 AND job.cost_microcents = 0 AND job.egress_lent = 0 AND job.egress_bytes = 0
        AND run.open_stages = 1 AND run.cancel IS NULL AND run.crossed IS NULL
        AND NOT EXISTS (SELECT 1 FROM stage
            WHERE stage.run_id = run.id AND stage.id <> job.stage_id AND stage.state <> 'succeeded')";

/// Of each: job, stage, worker and run; epoch; attempt; when; where its digest and its envelope lie, and how long that is; where the
/// chain and the piece lie that came with it, if one did, and how long that is.
const FINISH: &str = "DELETE FROM job WHERE id IN (SELECT value ->> '$[0][0]' FROM json_each($1));
    INSERT INTO result (job_id, stage_id, worker_id, epoch, attempt, outcome, digest, envelope, at)
        SELECT value ->> '$[0][0]', value ->> '$[0][1]', value ->> '$[0][2]', value ->> 1, value ->> 2, 'succeeded',
            substr($2, value ->> '$[4][0]', 32), substr($2, value ->> '$[4][1]', value ->> '$[4][2]'), value ->> 3 FROM json_each($1);
    INSERT INTO log_chunk (job_id, epoch, stream, seq, start, size, chain, bytes)
        SELECT value ->> '$[0][0]', value ->> 1, 'result', 0, 0, value ->> 6, substr($2, value ->> '$[5][0]', 32),
            substr($2, value ->> '$[5][1]', value ->> 6) FROM json_each($1) WHERE value ->> 6 > 0;
    UPDATE stage SET state = 'succeeded', reason = '', ended_at = ended.value ->> 3
        FROM json_each($1) AS ended WHERE stage.id = ended.value ->> '$[0][1]';
    UPDATE run SET open_stages = 0, state = 'succeeded', ended_at = ended.value ->> 3, artifact_used = artifact_used + (ended.value ->> 6)
        FROM json_each($1) AS ended WHERE run.id = ended.value ->> '$[0][3]'";
