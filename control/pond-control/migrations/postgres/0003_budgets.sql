-- What a run has of each budget and has used of it; changed by whoever holds the run's row. Money in millionths of a cent.
-- A run from before has no bound but the money a job had then.
ALTER TABLE run ADD COLUMN wall_until bigint NOT NULL DEFAULT 9223372036854775807;
ALTER TABLE run ADD COLUMN cost_most bigint NOT NULL DEFAULT 1000000000;
ALTER TABLE run ADD COLUMN cost_held bigint NOT NULL DEFAULT 0; -- lent to leases, or settled: never more than there is
ALTER TABLE run ADD COLUMN cost_spent bigint NOT NULL DEFAULT 0; -- as workers say
ALTER TABLE run ADD COLUMN output_most bigint NOT NULL DEFAULT 9223372036854775807;
ALTER TABLE run ADD COLUMN output_used bigint NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN artifact_most bigint NOT NULL DEFAULT 9223372036854775807;
ALTER TABLE run ADD COLUMN artifact_used bigint NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN egress_most bigint NOT NULL DEFAULT 9223372036854775807;
ALTER TABLE run ADD COLUMN egress_used bigint NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN crossed text; -- the budget that ended it
ALTER TABLE run ADD COLUMN crossed_figure bigint NOT NULL DEFAULT 0;
CREATE INDEX run_by_wall ON run (wall_until) WHERE ended_at IS NULL;

-- Whether the stage has a model, which costs money.
ALTER TABLE stage ADD COLUMN costs bigint NOT NULL DEFAULT 0;

-- Money set aside for the lease there is.
ALTER TABLE job ADD COLUMN lent bigint NOT NULL DEFAULT 0;
