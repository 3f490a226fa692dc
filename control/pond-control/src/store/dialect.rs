//! Everything in which the two engines differ. A statement that is not here is the same text on both.

pub(super) mod at_once;

/// Which engine a statement is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
}

/// A step of the schema. Once released it is never edited: the store remembers its digest.
#[derive(Debug)]
pub(super) struct Migration {
    pub(super) version: i64,
    pub(super) sql: &'static str,
}

const SQLITE: [Migration; 6] = [
    Migration { version: 1, sql: include_str!("../../migrations/sqlite/0001_first.sql") },
    Migration { version: 2, sql: include_str!("../../migrations/sqlite/0002_proof.sql") },
    Migration { version: 3, sql: include_str!("../../migrations/sqlite/0003_budgets.sql") },
    Migration { version: 4, sql: include_str!("../../migrations/sqlite/0004_egress.sql") },
    Migration { version: 5, sql: include_str!("../../migrations/sqlite/0005_one_journal.sql") },
    Migration { version: 6, sql: include_str!("../../migrations/sqlite/0006_inherited.sql") },
];
const POSTGRES: [Migration; 7] = [
    Migration { version: 1, sql: include_str!("../../migrations/postgres/0001_first.sql") },
    Migration { version: 2, sql: include_str!("../../migrations/postgres/0002_proof.sql") },
    Migration { version: 3, sql: include_str!("../../migrations/postgres/0003_budgets.sql") },
    Migration { version: 4, sql: include_str!("../../migrations/postgres/0004_egress.sql") },
    Migration { version: 5, sql: include_str!("../../migrations/postgres/0005_one_journal.sql") },
    Migration { version: 6, sql: include_str!("../../migrations/postgres/0006_inherited.sql") },
    Migration { version: 7, sql: include_str!("../../migrations/postgres/0007_places.sql") },
];

impl Dialect {
    pub(super) fn migrations(self) -> &'static [Migration] {
        match self {
            Self::Sqlite => &SQLITE,
            Self::Postgres => &POSTGRES,
        }
    }

    /// Where versions are written, made under a lock that control planes starting together wait for.
    pub(super) fn versions(self) -> &'static str {
        match self {
            Self::Sqlite => {
                "CREATE TABLE IF NOT EXISTS schema_version (version integer PRIMARY KEY, digest blob NOT NULL, at integer NOT NULL) STRICT"
            }
            Self::Postgres => {
                "SELECT pg_advisory_xact_lock(7236833);
                 CREATE TABLE IF NOT EXISTS schema_version (version bigint PRIMARY KEY, digest bytea NOT NULL, at bigint NOT NULL)"
            }
        }
    }

    /// Every change to the stages of a run is made by whoever holds its row. Always taken before a job's row.
    pub(super) fn lock_run(self) -> &'static str {
        match self {
            Self::Sqlite => "SELECT id, project, cancel, open_stages, cost_most, cost_held, cost_spent, output_most, output_used, artifact_most,
                    artifact_used, egress_most, egress_held, egress_used FROM run WHERE id = $1",
            Self::Postgres => {
                "SELECT id, project, cancel, open_stages, cost_most, cost_held, cost_spent, output_most, output_used, artifact_most,
                    artifact_used, egress_most, egress_held, egress_used FROM run WHERE id = $1 FOR NO KEY UPDATE"
            }
        }
    }

    pub(super) fn lock_run_of_job(self) -> &'static str {
        match self {
            Self::Sqlite => {
                "SELECT id, project, cancel, open_stages, cost_most, cost_held, cost_spent, output_most, output_used, artifact_most,
                    artifact_used, egress_most, egress_held, egress_used FROM run WHERE id = (SELECT run_id FROM job WHERE id = $1)"
            }
            Self::Postgres => {
                "SELECT id, project, cancel, open_stages, cost_most, cost_held, cost_spent, output_most, output_used, artifact_most,
                    artifact_used, egress_most, egress_held, egress_used FROM run WHERE id = (SELECT run_id FROM job WHERE id = $1)
                 FOR NO KEY UPDATE"
            }
        }
    }

    /// The oldest job of class `$1` for the active worker `$2` whose keys are of generation `$5`. On SQLite nobody writes meanwhile; on
    /// Postgres the worker is not revoked meanwhile, and jobs that others are about to take are passed over.
    pub(super) fn take(self) -> &'static str {
        match self {
            Self::Sqlite => {
                "UPDATE job SET state = 'leased', worker_id = $2, epoch = epoch + 1, lease_until = $3, offered_at = $4
                 WHERE id = (SELECT id FROM job WHERE state = 'queued' AND class_id = $1
                     AND (avoid = '' OR avoid NOT LIKE '%' || $2 || '%') ORDER BY id LIMIT 1)
                   AND EXISTS (SELECT 1 FROM worker WHERE id = $2 AND state = 'active' AND generation = $5)
                 RETURNING id, stage_id, run_id, attempt, epoch"
            }
            Self::Postgres => {
                "WITH me AS MATERIALIZED (SELECT id FROM worker WHERE id = $2 AND state = 'active' AND generation = $5 FOR SHARE),
                 next AS MATERIALIZED (
                     SELECT id FROM job WHERE state = 'queued' AND class_id = $1 AND EXISTS (SELECT 1 FROM me)
                         AND (avoid = '' OR avoid NOT LIKE '%' || $2 || '%')
                     ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
                 UPDATE job SET state = 'leased', worker_id = $2, epoch = epoch + 1, lease_until = $3, offered_at = $4
                 FROM next WHERE job.id = next.id
                 RETURNING job.id, stage_id, run_id, attempt, epoch"
            }
        }
    }

    /// A running job's lease that does not end while this transaction writes under it.
    pub(super) fn hold_lease(self) -> &'static str {
        match self {
            Self::Sqlite => {
                "SELECT cancel FROM job WHERE id = $1 AND worker_id = $2 AND epoch = $3 AND state = 'running'"
            }
            Self::Postgres => {
                "SELECT cancel FROM job WHERE id = $1 AND worker_id = $2 AND epoch = $3 AND state = 'running' FOR SHARE"
            }
        }
    }

    /// A page of runs. Which index serves it depends on whether a project is asked for.
    pub(super) fn runs(self, of_one_project: bool) -> &'static str {
        match (self, of_one_project) {
            (Self::Sqlite, false) => {
                "SELECT id, project, state, cancel, open_stages, created_at, ended_at FROM run
                 WHERE id < $1 AND ($3 IS NULL OR state = $3) AND $4 IS NULL ORDER BY id DESC LIMIT $2"
            }
            (Self::Sqlite, true) => {
                "SELECT id, project, state, cancel, open_stages, created_at, ended_at FROM run
                 WHERE project = $4 AND id < $1 AND ($3 IS NULL OR state = $3) ORDER BY id DESC LIMIT $2"
            }
            (Self::Postgres, false) => {
                "SELECT id, project, state, cancel, open_stages, created_at, ended_at FROM run
                 WHERE id < $1 AND ($3::text IS NULL OR state = $3) AND $4::text IS NULL ORDER BY id DESC LIMIT $2"
            }
            (Self::Postgres, true) => {
                "SELECT id, project, state, cancel, open_stages, created_at, ended_at FROM run
                 WHERE project = $4 AND id < $1 AND ($3::text IS NULL OR state = $3) ORDER BY id DESC LIMIT $2"
            }
        }
    }

    /// Events in an order that never changes: on Postgres only those before which nothing can appear any more.
    pub(super) fn events(self) -> &'static str {
        match self {
            Self::Sqlite => {
                "SELECT tx, seq, at, stage_id, action, detail FROM audit
                 WHERE run_id = $1 AND (tx > $2 OR (tx = $2 AND seq > $3)) ORDER BY tx, seq LIMIT $4"
            }
            Self::Postgres => {
                "SELECT tx, seq, at, stage_id, action, detail FROM audit
                 WHERE run_id = $1 AND (tx > $2 OR (tx = $2 AND seq > $3))
                   AND tx < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
                 ORDER BY tx, seq LIMIT $4"
            }
        }
    }

    pub(super) fn audit(self) -> &'static str {
        match self {
            Self::Sqlite => {
                "SELECT tx, seq, at, actor, action, project, subject, detail FROM audit
                 WHERE (tx > $1 OR (tx = $1 AND seq > $2)) AND ($4 IS NULL OR project = $4)
                 ORDER BY tx, seq LIMIT $3"
            }
            Self::Postgres => {
                "SELECT tx, seq, at, actor, action, project, subject, detail FROM audit
                 WHERE (tx > $1 OR (tx = $1 AND seq > $2)) AND ($4::text IS NULL OR project = $4)
                   AND tx < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
                 ORDER BY tx, seq LIMIT $3"
            }
        }
    }
}
