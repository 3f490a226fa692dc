-- Times are milliseconds since 1970, by the control plane's clock. Ids sort by the time they were made.

CREATE TABLE project (
    name text PRIMARY KEY,
    created_at integer NOT NULL
) STRICT;

CREATE TABLE credential (
    id text PRIMARY KEY,
    project text NOT NULL, -- empty: of everybody
    name text NOT NULL,
    kid text NOT NULL,
    value blob NOT NULL,
    changed_at integer NOT NULL,
    UNIQUE (project, name)
) STRICT;

CREATE TABLE egress_rule (
    project text NOT NULL REFERENCES project (name),
    rule text NOT NULL,
    created_at integer NOT NULL,
    PRIMARY KEY (project, rule)
) STRICT;

CREATE TABLE worker (
    id text PRIMARY KEY,
    name text NOT NULL,
    sign_key text NOT NULL UNIQUE,
    seal_key text NOT NULL,
    generation integer NOT NULL DEFAULT 0, -- how often the keys changed
    tags text NOT NULL,
    capabilities text NOT NULL,
    state text NOT NULL,
    reason text NOT NULL,
    enrolled_at integer NOT NULL,
    seen_at integer NOT NULL
) STRICT;

CREATE TABLE enrollment (
    token blob PRIMARY KEY,
    tags text NOT NULL,
    created_at integer NOT NULL,
    expires_at integer NOT NULL,
    used_at integer,
    challenge text, -- what a machine was asked last, while the token is unused
    worker_id text REFERENCES worker (id)
) STRICT;

-- Encrypted trees that runs work on; one may serve several runs of its project.
CREATE TABLE bundle (
    id text PRIMARY KEY,
    project text NOT NULL,
    place text NOT NULL,
    digest blob NOT NULL, -- of the ciphertext
    input blob NOT NULL, -- of the tree inside
    size integer NOT NULL,
    kid text NOT NULL,
    key blob NOT NULL,
    created_at integer NOT NULL
) STRICT;

CREATE TABLE run (
    id text PRIMARY KEY,
    project text NOT NULL REFERENCES project (name),
    state text NOT NULL,
    open_stages integer NOT NULL,
    cancel text,
    source text REFERENCES bundle (id),
    created_at integer NOT NULL,
    ended_at integer
) STRICT;
CREATE INDEX run_by_project ON run (project, id);
CREATE INDEX run_by_source ON run (source) WHERE source IS NOT NULL;

CREATE TABLE document (
    run_id text PRIMARY KEY REFERENCES run (id),
    body blob NOT NULL
) STRICT;

-- What workers are matched with: few distinct needs, each with a number.
CREATE TABLE class (
    id integer PRIMARY KEY AUTOINCREMENT,
    need text NOT NULL UNIQUE
) STRICT;

CREATE TABLE stage (
    id text PRIMARY KEY,
    run_id text NOT NULL REFERENCES run (id),
    position integer NOT NULL,
    name text NOT NULL,
    state text NOT NULL,
    class_id integer NOT NULL REFERENCES class (id),
    unmet integer NOT NULL,
    tries integer NOT NULL,
    timeout_ms integer NOT NULL,
    reason text NOT NULL,
    ended_at integer,
    UNIQUE (run_id, position)
) STRICT;

CREATE TABLE stage_need (
    stage_id text NOT NULL REFERENCES stage (id),
    needs_id text NOT NULL REFERENCES stage (id),
    PRIMARY KEY (needs_id, stage_id)
) STRICT;

-- Live jobs only, and narrow: an ended job is its result.
CREATE TABLE job (
    id text PRIMARY KEY,
    stage_id text NOT NULL UNIQUE,
    run_id text NOT NULL,
    class_id integer NOT NULL,
    attempt integer NOT NULL,
    queued_at integer NOT NULL,
    state text NOT NULL,
    worker_id text,
    epoch integer NOT NULL,
    lease_until integer NOT NULL,
    deadline integer,
    cancel integer NOT NULL,
    offered_at integer,
    cost_microcents integer NOT NULL DEFAULT 0,
    egress_bytes integer NOT NULL DEFAULT 0,
    output_bytes integer NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX job_queue ON job (class_id, id) WHERE state = 'queued';
CREATE INDEX job_lease ON job (lease_until) WHERE state <> 'queued';

CREATE TABLE lease_loss (
    job_id text NOT NULL,
    epoch integer NOT NULL,
    worker_id text NOT NULL,
    kind text NOT NULL,
    at integer NOT NULL,
    PRIMARY KEY (job_id, epoch)
) STRICT;
CREATE INDEX lease_loss_by_worker ON lease_loss (worker_id, at);

CREATE TABLE result (
    job_id text PRIMARY KEY,
    stage_id text NOT NULL,
    worker_id text NOT NULL,
    epoch integer NOT NULL,
    attempt integer NOT NULL,
    outcome text NOT NULL,
    digest blob NOT NULL,
    envelope blob NOT NULL,
    at integer NOT NULL
) STRICT;
CREATE INDEX result_by_stage ON result (stage_id, attempt);

CREATE TABLE log_chunk (
    job_id text NOT NULL,
    epoch integer NOT NULL,
    stream text NOT NULL,
    seq integer NOT NULL,
    start integer NOT NULL,
    size integer NOT NULL,
    chain blob NOT NULL,
    bytes blob NOT NULL,
    PRIMARY KEY (job_id, epoch, stream, seq)
) STRICT;

CREATE TABLE bundle_token (
    token blob PRIMARY KEY,
    bundle_id text NOT NULL REFERENCES bundle (id),
    job_id text NOT NULL,
    worker_id text NOT NULL,
    epoch integer NOT NULL,
    expires_at integer NOT NULL,
    redeemed_at integer,
    sent integer NOT NULL
) STRICT;

CREATE TABLE api_token (
    id text PRIMARY KEY,
    kind text NOT NULL,
    digest blob NOT NULL,
    scopes text NOT NULL,
    project text,
    created_at integer NOT NULL,
    expires_at integer,
    revoked_at integer
) STRICT;

CREATE TABLE idempotency (
    scope text NOT NULL,
    key text NOT NULL,
    fingerprint blob NOT NULL,
    run_id text NOT NULL,
    at integer NOT NULL,
    PRIMARY KEY (scope, key)
) STRICT;

-- `tx` is for Postgres, where a number of `seq` may become visible after a higher one; here there is one writer.
CREATE TABLE event (
    seq integer PRIMARY KEY AUTOINCREMENT,
    tx integer NOT NULL DEFAULT 0,
    at integer NOT NULL,
    project text,
    run_id text,
    stage_id text,
    action text NOT NULL,
    detail text NOT NULL
) STRICT;
CREATE INDEX event_by_run ON event (run_id, tx, seq);

CREATE TABLE audit (
    seq integer PRIMARY KEY AUTOINCREMENT,
    tx integer NOT NULL DEFAULT 0,
    at integer NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    project text,
    subject text NOT NULL,
    detail text NOT NULL
) STRICT;
CREATE INDEX audit_in_order ON audit (tx, seq);
