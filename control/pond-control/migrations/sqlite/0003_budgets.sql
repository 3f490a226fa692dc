-- What a run has of each budget and has used of it; changed by whoever holds the run's row. Money in millionths of a cent.
-- A run from before has no bound but the money a job had then.
ALTER TABLE run ADD COLUMN wall_until integer NOT NULL DEFAULT 9223372036854775807;
ALTER TABLE run ADD COLUMN cost_most integer NOT NULL DEFAULT 1000000000;
ALTER TABLE run ADD COLUMN cost_held integer NOT NULL DEFAULT 0; -- lent to leases, or settled: never more than there is
ALTER TABLE run ADD COLUMN cost_spent integer NOT NULL DEFAULT 0; -- as workers say
ALTER TABLE run ADD COLUMN output_most integer NOT NULL DEFAULT 9223372036854775807;
ALTER TABLE run ADD COLUMN output_used integer NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN artifact_most integer NOT NULL DEFAULT 9223372036854775807;
ALTER TABLE run ADD COLUMN artifact_used integer NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN egress_most integer NOT NULL DEFAULT 9223372036854775807;
ALTER TABLE run ADD COLUMN egress_used integer NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN crossed text; -- the budget that ended it
ALTER TABLE run ADD COLUMN crossed_figure integer NOT NULL DEFAULT 0;
CREATE INDEX run_by_wall ON run (wall_until) WHERE ended_at IS NULL;

-- Whether the stage has a model, which costs money.
ALTER TABLE stage ADD COLUMN costs integer NOT NULL DEFAULT 0;

-- Money set aside for the lease there is.
ALTER TABLE job ADD COLUMN lent integer NOT NULL DEFAULT 0;
