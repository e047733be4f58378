"""A run's name is held by one living process, and nobody who may only read can take it, or keep it (R6)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import Any

import pytest
from postgres_bench import Bench, Calls, raw_connection
from sqlalchemy import Engine, make_url, text

from txbatch.core.errors import Unavailable
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.migrate import migrate, migrations
from txbatch.postgres.database.run_locks import PostgresRunLocks

pytestmark = pytest.mark.rule("R6")
_numbers = count(1)


@pytest.fixture
def other(postgres_url: str) -> Iterator[Engine]:
    """Another process of the same user."""
    engine = connect(postgres_url)
    yield engine
    engine.dispose()


@pytest.fixture
def reader(engine: Engine, postgres_url: str) -> Iterator[Any]:
    """The session of a role that reads reports."""
    name = f"reader_{next(_numbers)}"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA report TO {name}"))
    session = raw_connection(make_url(postgres_url).set(username=name).render_as_string())
    session.autocommit = True
    with session.cursor() as cursor:
        yield cursor
    session.close()
    with engine.begin() as connection:
        connection.execute(text(f"DROP OWNED BY {name}; DROP ROLE {name}"))


def test_a_name_is_held_once_in_its_topology(engine: Engine, other: Engine) -> None:
    with (
        PostgresRunLocks(engine).hold("a", "nightly") as first,
        PostgresRunLocks(other).hold("b", "nightly") as elsewhere,
    ):
        assert (first, elsewhere) == (True, True)
        assert PostgresRunLocks(other).held("a", "nightly")
        with PostgresRunLocks(other).hold("a", "nightly") as second:
            assert not second
        assert PostgresRunLocks(other).held("a", "nightly")
    assert not PostgresRunLocks(other).held("a", "nightly")


def test_two_ask_at_once(engine: Engine, other: Engine) -> None:
    for number in range(10):
        calls = Calls()
        with ExitStack() as held:
            for name, each in (("one", engine), ("other", other)):
                asked = PostgresRunLocks(each).hold("a", str(number))
                calls.start(name, partial(held.enter_context, asked))
            assert sorted(calls.join().values()) == [False, True]


def test_a_session_that_is_gone_holds_nothing(bench: Bench, other: Engine) -> None:
    with PostgresRunLocks(bench.engine).hold("a", "nightly"):
        ended = "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory'"
        with other.begin() as connection:
            connection.execute(text(ended))
        assert not PostgresRunLocks(other).held("a", "nightly")
        with PostgresRunLocks(other).hold("a", "nightly") as heir:
            assert heir
    assert not PostgresRunLocks(other).held("a", "nightly")
    assert bench.rows("SELECT FROM txbatch.running WHERE name = 'nightly'") == []


def test_a_reader_who_saw_the_key_holds_nobody_up(engine: Engine, other: Engine, reader: Any) -> None:
    """He waits for the key, and gets it when its holder ends."""
    with PostgresRunLocks(engine).hold("a", "nightly"):
        reader.execute("SELECT classid::bigint << 32 | objid::bigint FROM pg_locks WHERE locktype = 'advisory'")
        ((key,),) = reader.fetchall()
        calls = Calls()
        calls.start("reader", lambda: reader.execute("SELECT pg_advisory_lock(%s)", (key,)))
    assert calls.join() == {"reader": None}
    assert not PostgresRunLocks(other).held("a", "nightly")
    with PostgresRunLocks(other).hold("a", "nightly") as held:
        assert held


def test_a_reader_does_not_hold_up_a_migration(engine: Engine, reader: Any) -> None:
    number = next(each.number for each in migrations() if each.name == "running")
    with engine.begin() as connection:
        missing = f"DELETE FROM txbatch.migration WHERE number = {number}; DROP TABLE txbatch.running"
        connection.execute(text(missing))
    for key in ("txbatch migrate", "txbatch run"):
        reader.execute("SELECT pg_advisory_lock(hashtext(%s))", (key,))
    for statement in ("BEGIN; LOCK TABLE txbatch.migration IN SHARE MODE", "SELECT FROM txbatch.running FOR UPDATE"):
        with pytest.raises(Exception, match="permission denied for schema txbatch"):
            reader.execute(statement)
        reader.execute("ROLLBACK")
    assert [each.number for each in migrate(engine)] == [number]


def test_a_database_that_is_away_is_told_in_our_words(postgres_url: str) -> None:
    away = connect(str(make_url(postgres_url).set(query={"host": "/nowhere", "port": "1"})))
    with pytest.raises(Unavailable), PostgresRunLocks(away).hold("a", "nightly"):
        pass
