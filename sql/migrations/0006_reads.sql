-- What a stream reads by is part of its source (R2). That of one which was registered before it was kept is what its newest plan
-- says; one that has none yet, or whose plan of format 1 does not tell, gets it with the next registration.
UPDATE txbatch.topology t
   SET source = (
       SELECT json_object_agg(s.key, CASE WHEN r.reads IS NULL THEN s.value ELSE (
                  SELECT json_object_agg(e.key, e.value)
                    FROM (SELECT key, value FROM json_each(s.value) WHERE key <> 'reads'
                           UNION ALL SELECT 'reads', to_json(r.reads)) e) END)
         FROM json_each(t.source) s
         LEFT JOIN LATERAL (
              SELECT CASE WHEN ranges IS NOT NULL AND NOT EXISTS (
                                   SELECT FROM json_each(ranges) r
                                    WHERE r.value -> 'start' IS NULL OR r.value -> 'end' IS NULL) THEN 'partitions'
                          WHEN format > 1 AND plan -> 'interval' IS NOT NULL THEN 'interval'
                          WHEN format > 1 OR NOT t.by_interval THEN 'whole' END AS reads
                FROM (SELECT plan, format, CASE WHEN json_typeof(plan -> 'partitions') = 'object' THEN plan -> 'partitions' END
                             AS ranges
                        FROM (SELECT b.metadata -> 'streams' -> s.key AS plan, (b.metadata ->> 'format')::integer AS format
                                FROM txbatch.batch b
                               WHERE b.topology = t.topology AND b.metadata -> 'streams' -> s.key IS NOT NULL
                               ORDER BY b.txid DESC LIMIT 1) newest) p) r ON true)
 WHERE t.source IS NOT NULL AND t.source::text <> '{}';
