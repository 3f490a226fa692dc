-- Bytes of connections are lent to leases, as money is. What runs that were there had used counts as settled.
ALTER TABLE run ADD COLUMN egress_held bigint NOT NULL DEFAULT 0; -- lent to leases, or settled: never more than there is
ALTER TABLE job ADD COLUMN egress_lent bigint NOT NULL DEFAULT 0;
UPDATE run SET egress_held = egress_used;
UPDATE job SET egress_lent = egress_bytes;
