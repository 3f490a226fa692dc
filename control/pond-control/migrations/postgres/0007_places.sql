-- Where rows lie; what they say is as before. A stage changes once, at its end: with room on its page the new row needs no new
-- entry in an index. (A run's end is in an index, so its row moves in any case.)
ALTER TABLE stage SET (fillfactor = 60);

-- Small results are kept as they come: to compress one costs Postgres more than to store it. Larger ones still are.
ALTER TABLE result SET (toast_tuple_target = 8160);
ALTER TABLE log_chunk SET (toast_tuple_target = 8160);

-- Nobody asks for an entry but by its place in the order, so that is its key, and there is one index less to write.
ALTER TABLE audit DROP CONSTRAINT audit_pkey;
DROP INDEX audit_in_order;
ALTER TABLE audit ADD PRIMARY KEY (tx, seq);
