-- What people ask about corrections: which batches were replaced and by what, what each batch read, and up to where a state can be
-- asked for its past (R17, R19).
CREATE INDEX partition_txid ON txbatch.partition (topology, txid);

CREATE VIEW report.batch_reads AS
SELECT topology, txid, stream, partition AS source, metadata ->> 'start' AS start_offset, metadata ->> 'end' AS end_offset
  FROM txbatch.partition WHERE status = 'read' AND partition <> ''
 UNION ALL
SELECT b.topology, b.txid, s.key, f.key, NULL, NULL
  FROM txbatch.batch b
 CROSS JOIN json_each(CASE WHEN json_typeof(b.metadata -> 'streams') = 'object' THEN b.metadata -> 'streams' END) s
 CROSS JOIN json_each(CASE WHEN json_typeof(s.value) = 'object' AND json_typeof(s.value -> 'files') = 'object'
                           THEN s.value -> 'files' END) f
 WHERE b.status = 'committed' AND b.kind <> 'skip' AND b.data_interval IS NOT NULL;

CREATE VIEW report.restatements AS
SELECT r.topology, r.position, r.txid, o.txid AS replaced_txid, r.status, r.reason, r.requested_by, k.dag_id, k.run_id,
       r.lease_run AS run, r.created_at, r.committed_at, o.records AS records_before, r.records, r.keys, r.replaced_by
  FROM txbatch.batch r
  LEFT JOIN txbatch.batch o ON o.topology = r.topology AND o.replaced_by = r.txid
  LEFT JOIN LATERAL (
       SELECT dag_id, run_id FROM txbatch.batch_key k
        WHERE k.topology = r.topology AND k.txid = r.txid
        ORDER BY key, ordinal LIMIT 1) k ON true
 WHERE r.kind = 'restate';

-- True, or an error that says why a state cannot be asked as of a txid.
CREATE FUNCTION report.known_at(state text, txid bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    horizon bigint;
    newest bigint;
BEGIN
    SELECT s.horizon, COALESCE((SELECT max(b.txid) FROM txbatch.batch b WHERE b.topology = s.topology AND b.status = 'committed'), 0)
      INTO horizon, newest FROM txbatch.state s WHERE s.state = known_at.state;
    IF horizon IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format('no state %L is known', known_at.state),
            HINT = 'SELECT state FROM report.state_coverage has them all.';
    ELSIF known_at.txid IS NULL OR known_at.txid NOT BETWEEN 0 AND newest THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('state %L cannot be asked as of txid %s: the newest committed one is %s', known_at.state,
                             COALESCE(known_at.txid::text, 'null'), newest),
            HINT = format('Ask for one of %s to %s.', horizon, newest);
    ELSIF known_at.txid < horizon THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('state %L cannot be asked as of txid %s: retention has folded what it was before txid %s',
                             known_at.state, known_at.txid, horizon),
            HINT = format('Ask for one of %s to %s.', horizon, newest);
    END IF;
    RETURN true;
END
$$;

COMMENT ON FUNCTION report.known_at(text, bigint) IS 'True, or an error that says why a state cannot be asked as of a txid.';
COMMENT ON VIEW report.batch_reads IS 'What a batch read: one row per partition or file.';
COMMENT ON COLUMN report.batch_reads.topology IS 'The pipeline';
COMMENT ON COLUMN report.batch_reads.txid IS 'The batch';
COMMENT ON COLUMN report.batch_reads.stream IS 'The stream of the topology';
COMMENT ON COLUMN report.batch_reads.source IS 'The partition or file';
COMMENT ON COLUMN report.batch_reads.start_offset IS 'Where it began to read; null for a file of a batch by time, of which it read the interval';
COMMENT ON COLUMN report.batch_reads.end_offset IS 'Where it ended';
COMMENT ON VIEW report.restatements IS 'A restate: a batch that counts an earlier one again, in its place.';
COMMENT ON COLUMN report.restatements.topology IS 'The pipeline';
COMMENT ON COLUMN report.restatements.position IS 'The txid that was counted first';
COMMENT ON COLUMN report.restatements.txid IS 'The txid that counts it again';
COMMENT ON COLUMN report.restatements.replaced_txid IS 'The txid that counted until then: the first, or a restate of it; null until the restate is committed';
COMMENT ON COLUMN report.restatements.status IS 'planned: its records are fixed; emitted: Spark has read them; committed: it counts, or did; aborted: the earlier one goes on counting';
COMMENT ON COLUMN report.restatements.reason IS 'Why it was asked for; of an aborted one why that';
COMMENT ON COLUMN report.restatements.requested_by IS 'Who asked for it, where a person did';
COMMENT ON COLUMN report.restatements.dag_id IS 'The DAG of the run that planned it; null outside Airflow';
COMMENT ON COLUMN report.restatements.run_id IS 'The run of that DAG';
COMMENT ON COLUMN report.restatements.run IS 'The run that looks after it, or did last, also outside Airflow';
COMMENT ON COLUMN report.restatements.created_at IS 'When it was planned';
COMMENT ON COLUMN report.restatements.committed_at IS 'Since when its numbers count';
COMMENT ON COLUMN report.restatements.records_before IS 'Source records that the replaced one had read';
COMMENT ON COLUMN report.restatements.records IS 'Source records that it has read';
COMMENT ON COLUMN report.restatements.keys IS 'Keys whose values it computed anew, by state';
COMMENT ON COLUMN report.restatements.replaced_by IS 'A later restate of the same position, which counts now; null: this one does, once committed';
