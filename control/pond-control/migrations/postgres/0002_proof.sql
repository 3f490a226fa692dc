-- The audit log as a Merkle tree. A tile has up to 256 hashes of one level; one of level 0 says which entry is its first.
CREATE TABLE audit_tile (
    level bigint NOT NULL,
    number bigint NOT NULL,
    hashes bytea NOT NULL,
    first_tx bigint,
    first_seq bigint,
    PRIMARY KEY (level, number)
);
CREATE INDEX audit_tile_first ON audit_tile (first_tx, first_seq) WHERE level = 0;

-- One row: how many entries are in the tree, which the last of them is, and the last signed checkpoint.
CREATE TABLE audit_tree (
    id bigint PRIMARY KEY CHECK (id = 1),
    size bigint NOT NULL,
    last_tx bigint NOT NULL,
    last_seq bigint NOT NULL,
    checkpoint text NOT NULL
);
INSERT INTO audit_tree (id, size, last_tx, last_seq, checkpoint) VALUES (1, 0, -1, -1, '');

-- Results are asked for with the proof that they are in the log.
CREATE INDEX audit_of_result ON audit (subject) WHERE action = 'result.accepted';

-- Runs that are repeated: whom a job must not go to, what a result was compared by, what it counts for.
ALTER TABLE job ADD COLUMN avoid text NOT NULL DEFAULT '';
CREATE INDEX job_avoiding ON job (class_id) WHERE avoid <> '';
ALTER TABLE result ADD COLUMN ballot bytea;
ALTER TABLE result ADD COLUMN standing text NOT NULL DEFAULT 'single';
ALTER TABLE result ADD COLUMN differs text NOT NULL DEFAULT '';
