//! Postgres only: the ordinary course of several workers' calls of one kind as one statement, which is a transaction by itself: one way
//! to the database and back, and one commit, for all of them.
//!
//! For each call it does what the transaction of that call does and nothing else, under the same rows in the same order: the run's,
//! then the job's. None waits for a row: one that somebody else holds is passed over, so that whoever has to wait waits alone. Where
//! anything is out of the ordinary (a row that is held, another lease, a budget, a cancellation, a stage that is not the last) no row comes
//! back for that call and nothing was changed for it; the caller goes the long way, which decides. Ids are the only text that is put into an entry here.
//! What is looked up for each call is written so that no plan reads a whole table for it, whatever the planner guesses.
//! The first parameters are columns, an element per call; what all calls share comes last.

/// The next jobs of class `$5` for workers `$1` with keys of generation `$2`, offered at `$4` until `$3`; the project is `$6`. A worker
/// that is not active gets none, and is not revoked meanwhile. Where jobs of the class avoid some workers nobody gets any.
pub(crate) const TAKE: &str = r#"
    WITH me AS MATERIALIZED (
        SELECT worker.id, until, now FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) AS asked (id, generation, until, now)
        JOIN worker ON worker.id = asked.id AND worker.state = 'active' AND worker.generation = asked.generation
        ORDER BY worker.id FOR SHARE OF worker SKIP LOCKED),
    next AS MATERIALIZED (
        SELECT id FROM job WHERE state = 'queued' AND class_id = $5
            AND NOT EXISTS (SELECT 1 FROM job AS picky WHERE picky.class_id = $5 AND picky.avoid <> '')
        ORDER BY id LIMIT (SELECT count(*) FROM me) FOR UPDATE SKIP LOCKED),
    job_place AS MATERIALIZED (SELECT id, row_number() OVER (ORDER BY id) AS place FROM next),
    place AS MATERIALIZED (SELECT id, until, now, row_number() OVER (ORDER BY id) AS place FROM me),
    pair AS (
        SELECT job_place.id AS job, place.id AS worker, place.until, place.now FROM job_place JOIN place USING (place)),
    taken AS (
        UPDATE job SET state = 'leased', worker_id = pair.worker, epoch = epoch + 1, lease_until = pair.until, offered_at = pair.now
        FROM pair WHERE job.id = pair.job
        RETURNING job.id, job.stage_id, job.run_id, job.attempt, job.state, job.epoch, job.worker_id, job.offered_at,
            job.lease_until),
    entry AS (
        INSERT INTO audit (at, actor, action, project, subject, detail, run_id, stage_id)
        SELECT offered_at, worker_id, 'stage.leased', $6, stage_id,
            format('{"epoch":%s,"job":"%s","worker":"%s"}', epoch, id, worker_id), run_id, stage_id FROM taken ORDER BY id)
    SELECT taken.id, worker_id, epoch, taken.run_id, stage_id, run.project AS project, attempt, taken.state, offered_at, lease_until,
        body, position, stage.name AS name, timeout_ms, inherits, stage.source AS made, bundle.id AS bundle_id, bundle.input AS input, wall_until, output_most,
        output_used, artifact_most, artifact_used, egress_most, egress_used
    FROM taken JOIN stage ON stage.id = taken.stage_id JOIN run ON run.id = taken.run_id
    JOIN document ON document.run_id = taken.run_id LEFT JOIN bundle ON bundle.id = coalesce(stage.source, run.source)"#;

/// The holders `$2` of leases `$3` of jobs `$1` begin at `$6`; the lease holds until `$4`, the job until its time limit after `$5`.
pub(crate) const START: &str = r#"
    WITH asked AS MATERIALIZED (
        SELECT job.id, until, grace, now
        FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
            AS asked (id, worker, epoch, until, grace, now)
        JOIN job ON job.id = asked.id AND job.worker_id = asked.worker AND job.epoch = asked.epoch
        WHERE job.state = 'leased' AND job.lease_until >= asked.now
        ORDER BY job.id FOR UPDATE OF job SKIP LOCKED),
    started AS (
        UPDATE job SET state = 'running', deadline = stage.timeout_ms + asked.grace, lease_until = asked.until
        FROM asked, stage, run
        WHERE job.id = asked.id AND stage.id = job.stage_id AND run.id = job.run_id
        RETURNING job.id, job.stage_id, job.run_id, job.worker_id, job.epoch, job.cancel, job.lent, job.egress_lent, run.project,
            asked.now),
    entry AS (
        INSERT INTO audit (at, actor, action, project, subject, detail, run_id, stage_id)
        SELECT now, worker_id, 'stage.running', project, stage_id, format('{"epoch":%s,"job":"%s"}', epoch, id), run_id, stage_id
        FROM started ORDER BY id)
    SELECT id, cancel, lent, egress_lent FROM started"#;

macro_rules! append {
    ($used:literal, $most:literal) => {
        concat!(
            "WITH asked AS MATERIALIZED (
                SELECT DISTINCT ON (job.run_id) job.id, job.run_id, job.worker_id, job.epoch, stream, size, chain, bytes
                FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bytea[], $7::bytea[])
                    AS asked (id, worker, epoch, stream, size, chain, bytes)
                JOIN job ON job.id = asked.id AND job.worker_id = asked.worker AND job.epoch = asked.epoch
                ORDER BY job.run_id),
            held AS MATERIALIZED (
                SELECT run.id AS run_id, job.id, job.epoch, job.cancel, stream, size, chain, bytes
                FROM asked JOIN job ON job.id = asked.id AND job.worker_id = asked.worker_id AND job.epoch = asked.epoch
                JOIN run ON run.id = job.run_id
                WHERE job.state = 'running'
                    AND NOT EXISTS (
                        SELECT 1 FROM log_chunk
                        WHERE log_chunk.job_id = asked.id AND log_chunk.epoch = asked.epoch AND log_chunk.stream = asked.stream)
                ORDER BY run.id FOR NO KEY UPDATE OF run SKIP LOCKED FOR SHARE OF job SKIP LOCKED),
            counted AS (
                UPDATE run SET ",
            $used,
            " = ",
            $used,
            " + held.size FROM held WHERE run.id = held.run_id AND run.",
            $used,
            " + held.size <= run.",
            $most,
            " RETURNING held.id, held.epoch, held.cancel, stream, size, chain, bytes, run.cancel AS why),
            stored AS (
                INSERT INTO log_chunk (job_id, epoch, stream, seq, start, size, chain, bytes)
                SELECT id, epoch, stream, 0, 0, size, chain, bytes FROM counted)
            SELECT id, cancel, why FROM counted"
        )
    };
}

/// The first pieces of streams `$4` under leases `$1` to `$3`, within the budget: `$5` bytes `$7`, and the chain after them `$6`. Of each
/// run one.
pub(crate) const APPEND_OUTPUT: &str = append!("output_used", "output_most");
pub(crate) const APPEND_RESULT: &str = append!("artifact_used", "artifact_most");

/// Jobs that cost nothing succeeded at `$6`, under leases `$1` to `$3`, and each was all that was left of a run in which nothing else
/// went wrong: envelope `$5` with digest `$4`; what is told of the results, the stages and the runs is `$7`, `$8` and `$9`. One
/// that comes with its whole result, `$11` with the chain after it `$10`, has sent nothing before, and there is room for it. One of which
/// nobody said that it began, and whose offer still stands, begins with its end, and that is told first.
pub(crate) const FINISH: &str = r#"
    WITH held AS MATERIALIZED (
        SELECT run.id AS run_id, run.project, job.id, job.stage_id, job.attempt, job.worker_id, job.epoch, digest, envelope, now, of_result, of_stage,
            of_run, chain, bytes, job.state
        FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[], $5::bytea[], $6::bigint[], $7::text[], $8::text[], $9::text[],
            $10::bytea[], $11::bytea[])
            AS asked (id, worker, epoch, digest, envelope, now, of_result, of_stage, of_run, chain, bytes)
        JOIN job ON job.id = asked.id AND job.worker_id = asked.worker AND job.epoch = asked.epoch
        JOIN run ON run.id = job.run_id
        WHERE (job.state = 'running' OR job.state = 'leased' AND job.lease_until >= now) AND job.cancel = 0
            AND job.lent = 0 AND job.cost_microcents = 0 AND job.egress_lent = 0 AND job.egress_bytes = 0
            AND run.open_stages = 1 AND run.cancel IS NULL AND run.crossed IS NULL
            AND NOT EXISTS (
                SELECT 1 FROM stage
                WHERE stage.run_id = run.id AND stage.id <> job.stage_id AND stage.state <> 'succeeded')
            AND (bytes = '' OR run.artifact_used + octet_length(bytes) <= run.artifact_most
                AND (SELECT 1 FROM log_chunk WHERE log_chunk.job_id = job.id AND log_chunk.epoch = job.epoch LIMIT 1) IS NULL)
        ORDER BY run.id FOR NO KEY UPDATE OF run SKIP LOCKED FOR UPDATE OF job SKIP LOCKED),
    gone AS (DELETE FROM job USING held WHERE job.id = held.id),
    kept AS (
        INSERT INTO result (job_id, stage_id, worker_id, epoch, attempt, outcome, digest, envelope, at)
        SELECT id, stage_id, worker_id, epoch, attempt, 'succeeded', digest, envelope, now FROM held),
    stored AS (
        INSERT INTO log_chunk (job_id, epoch, stream, seq, start, size, chain, bytes)
        SELECT id, epoch, 'result', 0, 0, octet_length(bytes), chain, bytes FROM held WHERE bytes <> ''),
    stage_over AS (
        UPDATE stage SET state = 'succeeded', reason = '', ended_at = now FROM held WHERE stage.id = held.stage_id),
    run_over AS (
        UPDATE run SET open_stages = 0, state = 'succeeded', ended_at = now, artifact_used = artifact_used + octet_length(bytes)
        FROM held WHERE run.id = held.run_id),
    entry AS (
        INSERT INTO audit (at, actor, action, project, subject, detail, run_id, stage_id)
        SELECT now, actor, action, project, subject, detail, run_id, stage
        FROM held, LATERAL (VALUES
            (0, worker_id, 'stage.running', stage_id, format('{"epoch":%s,"job":"%s"}', epoch, id), stage_id),
            (1, worker_id, 'result.accepted', stage_id, of_result, stage_id),
            (2, worker_id, 'stage.ended', stage_id, of_stage, stage_id),
            (3, 'system', 'run.ended', run_id, of_run, NULL)) AS entry (number, actor, action, subject, detail, stage)
        WHERE number > 0 OR state = 'leased' ORDER BY run_id, number)
    SELECT id FROM held"#;
