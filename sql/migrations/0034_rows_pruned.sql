-- Which positions of a state have lost their rows to retention, as spans, each after a txid and up to another (R22).
ALTER TABLE txbatch.state ADD COLUMN pruned json;

UPDATE txbatch.state SET pruned = json_build_array(json_build_array(0, horizon))
 WHERE columns -> 'prune' IS NOT NULL AND horizon > 0;
