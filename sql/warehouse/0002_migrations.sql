-- Which migrations this database has had, as txbatch.migration says of a ledger, which may be in the same database. One that
-- was made before they were counted has had the first.

CREATE TABLE txbatch.warehouse_migration (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO txbatch.warehouse_migration (number, name) VALUES (1, 'apart');
