-- A stage that needs others works on what they made of the run's source: a tree of its own, made when it is first offered. Stages
-- from before go on as they began.
ALTER TABLE stage ADD COLUMN inherits bigint NOT NULL DEFAULT 0;
ALTER TABLE stage ADD COLUMN source text COLLATE "C" REFERENCES bundle (id);
CREATE INDEX stage_by_source ON stage (source) WHERE source IS NOT NULL;
