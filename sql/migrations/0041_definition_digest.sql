-- A commit and a plan compare one text with the stored definition, and its parts only where the text differs (R23). Null: not
-- known yet, of a topology registered by an earlier version; its parts are compared until the topology is registered again.
ALTER TABLE txbatch.topology ADD COLUMN digest text;
