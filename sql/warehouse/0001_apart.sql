-- A database that holds states apart from the ledger (R21), as its first topology makes it; state tables and report
-- views are made per topology by the library.

CREATE SCHEMA IF NOT EXISTS txbatch;
CREATE SCHEMA IF NOT EXISTS state;
CREATE SCHEMA IF NOT EXISTS report;
CREATE TABLE txbatch.apart (
    state      text COLLATE "C" PRIMARY KEY,
    topology   text NOT NULL,
    ledger     uuid NOT NULL,                        -- the ledger that it belongs to
    kind       text NOT NULL CHECK (kind IN ('non_transactional', 'transactional', 'opaque')),
    columns    json NOT NULL,
    txid       bigint NOT NULL DEFAULT 0,            -- the fence: who wrote here last; 0: nobody yet
    attempt_id integer NOT NULL DEFAULT 0,
    token      text,
    digest     text,                                 -- transactional: of the partials of this txid, if there were any
    status     text NOT NULL DEFAULT 'taken_back' CHECK (status IN ('applied', 'taken_back')),
    changed_at timestamptz NOT NULL DEFAULT now(),
    CHECK (status <> 'applied' OR (txid >= 1 AND attempt_id >= 1 AND token IS NOT NULL))
) WITH (fillfactor = 85);
