-- Times are milliseconds since 1970, by the control plane's clock. Ids sort by the time they were made.

CREATE TABLE project (
    name text COLLATE "C" PRIMARY KEY,
    created_at bigint NOT NULL
);

CREATE TABLE credential (
    id text COLLATE "C" PRIMARY KEY,
    project text COLLATE "C" NOT NULL, -- empty: of everybody
    name text COLLATE "C" NOT NULL,
    kid text NOT NULL,
    value bytea NOT NULL,
    changed_at bigint NOT NULL,
    UNIQUE (project, name)
);

CREATE TABLE egress_rule (
    project text COLLATE "C" NOT NULL REFERENCES project (name),
    rule text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (project, rule)
);

CREATE TABLE worker (
    id text COLLATE "C" PRIMARY KEY,
    name text NOT NULL,
    sign_key text NOT NULL UNIQUE,
    seal_key text NOT NULL,
    generation bigint NOT NULL DEFAULT 0, -- how often the keys changed
    tags text NOT NULL,
    capabilities text NOT NULL,
    state text NOT NULL,
    reason text NOT NULL,
    enrolled_at bigint NOT NULL,
    seen_at bigint NOT NULL
);

CREATE TABLE enrollment (
    token bytea PRIMARY KEY,
    tags text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    used_at bigint,
    challenge text, -- what a machine was asked last, while the token is unused
    worker_id text COLLATE "C" REFERENCES worker (id)
);

-- Encrypted trees that runs work on; one may serve several runs of its project.
CREATE TABLE bundle (
    id text COLLATE "C" PRIMARY KEY,
    project text COLLATE "C" NOT NULL,
    place text NOT NULL,
    digest bytea NOT NULL, -- of the ciphertext
    input bytea NOT NULL, -- of the tree inside
    size bigint NOT NULL,
    kid text NOT NULL,
    key bytea NOT NULL,
    created_at bigint NOT NULL
);

CREATE TABLE run (
    id text COLLATE "C" PRIMARY KEY,
    project text COLLATE "C" NOT NULL REFERENCES project (name),
    state text NOT NULL,
    open_stages bigint NOT NULL,
    cancel text,
    source text COLLATE "C" REFERENCES bundle (id),
    created_at bigint NOT NULL,
    ended_at bigint
);
CREATE INDEX run_by_project ON run (project, id);
CREATE INDEX run_by_source ON run (source) WHERE source IS NOT NULL;

CREATE TABLE document (
    run_id text COLLATE "C" PRIMARY KEY REFERENCES run (id),
    body bytea NOT NULL
);

-- What workers are matched with: few distinct needs, each with a number.
CREATE TABLE class (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    need text COLLATE "C" NOT NULL UNIQUE
);

CREATE TABLE stage (
    id text COLLATE "C" PRIMARY KEY,
    run_id text COLLATE "C" NOT NULL REFERENCES run (id),
    position bigint NOT NULL,
    name text NOT NULL,
    state text NOT NULL,
    class_id bigint NOT NULL REFERENCES class (id),
    unmet bigint NOT NULL,
    tries bigint NOT NULL,
    timeout_ms bigint NOT NULL,
    reason text NOT NULL,
    ended_at bigint,
    UNIQUE (run_id, position)
);

CREATE TABLE stage_need (
    stage_id text COLLATE "C" NOT NULL REFERENCES stage (id),
    needs_id text COLLATE "C" NOT NULL REFERENCES stage (id),
    PRIMARY KEY (needs_id, stage_id)
);

-- Live jobs only, and narrow: an ended job is its result.
CREATE TABLE job (
    id text COLLATE "C" PRIMARY KEY,
    stage_id text COLLATE "C" NOT NULL UNIQUE,
    run_id text COLLATE "C" NOT NULL,
    class_id bigint NOT NULL,
    attempt bigint NOT NULL,
    queued_at bigint NOT NULL,
    state text NOT NULL,
    worker_id text COLLATE "C",
    epoch bigint NOT NULL,
    lease_until bigint NOT NULL,
    deadline bigint,
    cancel bigint NOT NULL,
    offered_at bigint,
    cost_microcents bigint NOT NULL DEFAULT 0,
    egress_bytes bigint NOT NULL DEFAULT 0,
    output_bytes bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
CREATE INDEX job_queue ON job (class_id, id) WHERE state = 'queued';
CREATE INDEX job_lease ON job (lease_until) WHERE state <> 'queued';

CREATE TABLE lease_loss (
    job_id text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    worker_id text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (job_id, epoch)
);
CREATE INDEX lease_loss_by_worker ON lease_loss (worker_id, at);

CREATE TABLE result (
    job_id text COLLATE "C" PRIMARY KEY,
    stage_id text COLLATE "C" NOT NULL,
    worker_id text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    attempt bigint NOT NULL,
    outcome text NOT NULL,
    digest bytea NOT NULL,
    envelope bytea NOT NULL,
    at bigint NOT NULL
);
CREATE INDEX result_by_stage ON result (stage_id, attempt);

CREATE TABLE log_chunk (
    job_id text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    stream text NOT NULL,
    seq bigint NOT NULL,
    start bigint NOT NULL,
    size bigint NOT NULL,
    chain bytea NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (job_id, epoch, stream, seq)
);

CREATE TABLE bundle_token (
    token bytea PRIMARY KEY,
    bundle_id text COLLATE "C" NOT NULL REFERENCES bundle (id),
    job_id text COLLATE "C" NOT NULL,
    worker_id text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    expires_at bigint NOT NULL,
    redeemed_at bigint,
    sent bigint NOT NULL
);

CREATE TABLE api_token (
    id text COLLATE "C" PRIMARY KEY,
    kind text NOT NULL,
    digest bytea NOT NULL,
    scopes text NOT NULL,
    project text COLLATE "C",
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint
);

CREATE TABLE idempotency (
    scope text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    fingerprint bytea NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (scope, key)
);

-- `tx` orders what several control planes write at once: a number of `seq` may become visible after a higher one.
CREATE TABLE event (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tx bigint NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),
    at bigint NOT NULL,
    project text COLLATE "C",
    run_id text COLLATE "C",
    stage_id text COLLATE "C",
    action text NOT NULL,
    detail text NOT NULL
);
CREATE INDEX event_by_run ON event (run_id, tx, seq);

CREATE TABLE audit (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tx bigint NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),
    at bigint NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    project text COLLATE "C",
    subject text NOT NULL,
    detail text NOT NULL
);
CREATE INDEX audit_in_order ON audit (tx, seq);
