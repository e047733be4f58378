-- Whether a batch was aborted because no live run looked after it (R6). Until now the reason alone told.
ALTER TABLE txbatch.batch ADD COLUMN abandoned boolean NOT NULL DEFAULT false;

UPDATE txbatch.batch SET abandoned = true
 WHERE status = 'aborted'
   AND CASE WHEN kind = 'restate' THEN reason LIKE '%; aborted: abandoned by %' ELSE reason LIKE 'abandoned by %' END;

ALTER TABLE txbatch.batch ADD CONSTRAINT batch_abandoned_check CHECK (NOT abandoned OR status = 'aborted');
