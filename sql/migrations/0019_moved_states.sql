-- A state that came back from another database (R21): what is left of it there counts for nothing, and goes with the next run.

ALTER TABLE txbatch.state ADD COLUMN left_in text;
ALTER TABLE txbatch.state ADD CHECK (left_in <> database);
