"""The databases of the tests themselves: what a test left is undone, which costs a tenth of what a new one does."""

from __future__ import annotations

import pytest
from databases import Pool, admin, in_database


@pytest.mark.parametrize(
    "left",
    [
        "SELECT 1",
        "CREATE TABLE state.a (b int); "
        "CREATE FUNCTION report.as_of_a(txid bigint) RETURNS SETOF state.a AS 'TABLE state.a' LANGUAGE sql",
        "INSERT INTO txbatch.topology (topology, job, by_interval) VALUES ('a', 'a.py', false)",
    ],
    ids=["nothing", "a state with its function", "rows"],
)
def test_a_migrated_database_serves_the_next_test(postgres_server: str, left: str) -> None:
    pool = Pool(postgres_server, "migrated")
    name = pool.take()
    admin(in_database(postgres_server, name), left)
    pool.give_back(name)
    ((renamed, _),) = pool.idle
    assert renamed != name


def test_one_whose_functions_are_others_is_dropped(postgres_server: str) -> None:
    pool = Pool(postgres_server, "migrated")
    name = pool.take()
    admin(in_database(postgres_server, name), "CREATE FUNCTION txbatch.a() RETURNS int AS 'SELECT 1' LANGUAGE sql")
    pool.give_back(name)
    assert pool.idle == []
