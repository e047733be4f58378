-- Names that a living process holds. That it lives is told by an advisory lock of its session, whose key nobody can guess.

CREATE TABLE txbatch.running (
    topology text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,              -- a run's, or what one process alone does for all
    key      bigint NOT NULL,
    role     oid NOT NULL,                           -- whose sessions' locks count
    since    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (topology, name)
);
