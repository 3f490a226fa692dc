-- An entry of the audit log is also the event of its run: written once. Neither column is part of what is in the tree.
ALTER TABLE audit ADD COLUMN run_id text;
ALTER TABLE audit ADD COLUMN stage_id text;
UPDATE audit SET stage_id = subject, run_id = (SELECT run_id FROM stage WHERE stage.id = subject)
    WHERE subject LIKE 'stage\_%' ESCAPE '\';
UPDATE audit SET run_id = subject WHERE subject LIKE 'run\_%' ESCAPE '\';
CREATE INDEX audit_by_run ON audit (run_id, tx, seq) WHERE run_id IS NOT NULL;
DROP TABLE event;

-- Keys a worker signed with before it changed them: results of then are still its own.
ALTER TABLE worker ADD COLUMN former_keys text NOT NULL DEFAULT '';
