//! Postgres only: the ordinary course of a worker's call as one statement, which is a transaction by itself: one way to the
//! database and back instead of a dozen.
//!
//! Each does what the transaction of its call does and nothing else, under the same rows in the same order: the run's, then the
//! job's. Where anything is out of the ordinary (another lease, a budget, a cancellation, a stage that is not the last) no row comes
//! back and nothing was changed; the caller goes the long way, which decides. Ids are the only text that is put into an entry here.

/// The next job of class `$1` for worker `$2`, offered at `$4` until `$3`; the project is `$5`. A worker that is not active gets none,
/// and is not revoked meanwhile.
pub(crate) const TAKE: &str = r#"
    WITH me AS MATERIALIZED (SELECT id FROM worker WHERE id = $2 AND state = 'active' FOR SHARE),
    next AS MATERIALIZED (
        SELECT id FROM job WHERE state = 'queued' AND class_id = $1 AND EXISTS (SELECT 1 FROM me)
            AND (avoid = '' OR avoid NOT LIKE '%' || $2 || '%')
        ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED),
    taken AS (
        UPDATE job SET state = 'leased', worker_id = $2, epoch = epoch + 1, lease_until = $3, offered_at = $4
        FROM next WHERE job.id = next.id
        RETURNING job.id, stage_id, run_id, class_id, attempt, epoch),
    entry AS (
        INSERT INTO audit (at, actor, action, project, subject, detail, run_id, stage_id)
        SELECT $4, $2, 'stage.leased', $5, stage_id,
            format('{"epoch":%s,"job":"%s","worker":"%s"}', epoch, id, $2::text), run_id, stage_id FROM taken)
    SELECT id, stage_id, run_id, class_id, attempt, epoch FROM taken"#;

/// The holder `$2` of lease `$3` of job `$1` begins at `$6`; the lease holds until `$4`, the job until its time limit after `$5`.
pub(crate) const START: &str = r#"
    WITH started AS (
        UPDATE job SET state = 'running', deadline = stage.timeout_ms + $5, lease_until = $4
        FROM stage, run
        WHERE job.id = $1 AND job.worker_id = $2 AND job.epoch = $3 AND job.state = 'leased' AND job.lease_until >= $6
            AND stage.id = job.stage_id AND run.id = job.run_id
        RETURNING job.id, job.stage_id, job.run_id, job.epoch, job.cancel, job.lent, job.egress_lent, run.project),
    entry AS (
        INSERT INTO audit (at, actor, action, project, subject, detail, run_id, stage_id)
        SELECT $6, $2, 'stage.running', project, stage_id, format('{"epoch":%s,"job":"%s"}', epoch, id), run_id, stage_id
        FROM started)
    SELECT cancel, lent, egress_lent FROM started"#;

macro_rules! append {
    ($used:literal, $most:literal) => {
        concat!(
            "WITH held AS MATERIALIZED (
                SELECT run.id, job.cancel AS cancel FROM job JOIN run ON run.id = job.run_id
                WHERE job.id = $1 AND job.worker_id = $2 AND job.epoch = $3 AND job.state = 'running'
                    AND NOT EXISTS (SELECT 1 FROM log_chunk WHERE job_id = $1 AND epoch = $3 AND stream = $4)
                FOR NO KEY UPDATE OF run FOR SHARE OF job),
            counted AS (
                UPDATE run SET ",
            $used,
            " = ",
            $used,
            " + $5 FROM held WHERE run.id = held.id AND run.",
            $used,
            " + $5 <= run.",
            $most,
            " RETURNING held.cancel, run.cancel AS why),
            stored AS (
                INSERT INTO log_chunk (job_id, epoch, stream, seq, start, size, chain, bytes)
                SELECT $1, $3, $4, 0, 0, $5, $6, $7 FROM counted)
            SELECT cancel, why FROM counted"
        )
    };
}

/// The first piece of stream `$4`, within the budget: `$5` bytes `$7`, and the chain after them `$6`.
pub(crate) const APPEND_OUTPUT: &str = append!("output_used", "output_most");
pub(crate) const APPEND_RESULT: &str = append!("artifact_used", "artifact_most");

/// A job that cost nothing succeeded at `$6`, and was all that was left of a run in which nothing else went wrong: envelope `$5` with
/// digest `$4`; what is told of the result, the stage and the run is `$7`, `$8` and `$9`.
pub(crate) const FINISH: &str = r"
    WITH held AS MATERIALIZED (
        SELECT run.id AS run_id, run.project, job.id AS job_id, job.stage_id, job.attempt
        FROM job JOIN run ON run.id = job.run_id
        WHERE job.id = $1 AND job.worker_id = $2 AND job.epoch = $3 AND job.state IN ('leased', 'running') AND job.cancel = 0
            AND job.lent = 0 AND job.cost_microcents = 0 AND job.egress_lent = 0 AND job.egress_bytes = 0
            AND run.open_stages = 1 AND run.cancel IS NULL AND run.crossed IS NULL
            AND NOT EXISTS (
                SELECT 1 FROM stage
                WHERE stage.run_id = run.id AND stage.id <> job.stage_id AND stage.state <> 'succeeded')
        FOR NO KEY UPDATE OF run FOR UPDATE OF job),
    gone AS (DELETE FROM job USING held WHERE job.id = held.job_id),
    kept AS (
        INSERT INTO result (job_id, stage_id, worker_id, epoch, attempt, outcome, digest, envelope, at)
        SELECT job_id, stage_id, $2, $3, attempt, 'succeeded', $4, $5, $6 FROM held),
    stage_over AS (
        UPDATE stage SET state = 'succeeded', reason = '', ended_at = $6 FROM held WHERE stage.id = held.stage_id),
    run_over AS (
        UPDATE run SET open_stages = 0, state = 'succeeded', ended_at = $6 FROM held WHERE run.id = held.run_id),
    told AS (
        INSERT INTO audit (at, actor, action, project, subject, detail, run_id, stage_id)
        SELECT $6, actor, action, project, subject, detail, run_id, stage
        FROM held, LATERAL (VALUES
            (1, $2, 'result.accepted', stage_id, $7, stage_id),
            (2, $2, 'stage.ended', stage_id, $8, stage_id),
            (3, 'system', 'run.ended', run_id, $9, NULL)) AS told (number, actor, action, subject, detail, stage)
        ORDER BY number)
    SELECT stage_id FROM held";
