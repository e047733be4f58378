"""A ledger that does not answer, is slow, is of another version, or forbids: said in words, soon, and without a host's name."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from databases import close, in_database, session
from outages import Outage
from slowness import slowness
from sqlalchemy import make_url
from ui.conftest import READER, Site
from ui.test_routes import KEY, routes

from txbatch.postgres.database import migrate as migrating
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.migrate import migrate, migrations
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.schema import state_tables
from txbatch.ui import app, reader

SECONDS_MAX = 3.0
URL = "postgresql+psycopg2://nobody:geheim@{0}:{1}/nothing"
T = "/api/topologies/flights"
# Routes that ask the ledger more than once, each with the question behind which the ledger goes away.
MIDDLE = {
    "/api/topologies": "txbatch.ui.reading.names",
    f"{T}/turn": "txbatch.ui.reading.batches",
    f"{T}/batches/30": "txbatch.ui.reading.batch_of",
    f"{T}/batches/30/changes?state=flights": "txbatch.ui.reading.batch_of",
    f"{T}/states/flights/why?{KEY}": "txbatch.ui.values.StatePages._dated_shape",
    f"{T}/states/flights/as-of?txid=1&{KEY}": "txbatch.ui.values.StatePages._past_shape",
}
# What a later version may do to the reports, and a route that asks for it.
LATER = {
    "ALTER VIEW report.batches RENAME COLUMN late TO late_records": f"{T}/batches",
    "ALTER VIEW report.topologies RENAME COLUMN zone TO time_zone": T,
    "ALTER VIEW report.exceptional_txids RENAME TO exceptions": f"{T}/overview",
    "ALTER FUNCTION report.known_at RENAME TO known_once": f"{T}/states/flights/as-of?txid=1&{KEY}",
}


def told_away(site: Site, path: str = "/api/topologies") -> None:
    began = time.monotonic()
    answer = site.get(path)
    took = time.monotonic() - began
    assert (answer.status_code, answer.json()) == (503, {"detail": app.AWAY}), path
    assert took <= SECONDS_MAX * max(1.0, slowness()), path


def test_a_server_that_is_gone_is_told_on_each_route(site_of: Callable[[str], Site]) -> None:
    site = site_of(URL.format("127.0.0.1", 1))
    for path in ("/api/topologies", *routes("flights")):
        told_away(site, path)
    assert site.get("/page").status_code == 200


def test_a_server_that_says_nothing_is_told_to_several_at_once(site_of: Callable[[str], Site]) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as silent:
        site = site_of(URL.format("127.0.0.1", silent.getsockname()[1]))
        with ThreadPoolExecutor(5) as several:
            list(several.map(lambda _: told_away(site), range(5)))


def test_connections_that_are_all_in_use_are_told_as_busy(ledgers: Callable[[str], str]) -> None:
    asked = reader.Reader(lambda: (ledgers("seeded"), "a test"))
    with ExitStack() as held:
        for _ in range(3):
            held.enter_context(asked.snapshot())
        with pytest.raises(reader.Busy) as told, asked.snapshot():
            pass
    assert app.answer_to(told.value) == (503, app.BUSY)
    with asked.snapshot() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1
    asked.engine.dispose()


def test_no_text_names_a_host_a_role_or_a_password(
    site_of: Callable[[str], Site], caplog: pytest.LogCaptureFixture
) -> None:
    site = site_of(URL.format("db.example.invalid", 5432))
    answer = site.get("/api/topologies")
    assert answer.json() == {"detail": app.AWAY}
    assert "geheim" not in answer.text + caplog.text


def test_a_url_that_is_none_is_a_ledger_away(site_of: Callable[[str], Site]) -> None:
    answer = site_of("mysql://nobody:geheim@db.example/x").get("/api/topologies")
    assert (answer.status_code, answer.json()) == (503, {"detail": app.AWAY})


def test_a_database_without_a_ledger_is_not_migrated(
    site_of: Callable[[str], Site], databases: Callable[[str], str]
) -> None:
    site = site_of(databases("empty"))
    for path in ("/api/topologies", *routes("flights")):
        answer = site.get(path)
        assert (answer.status_code, answer.json()) == (503, {"detail": app.OLD}), path


@pytest.mark.parametrize("route", MIDDLE)
def test_a_ledger_that_goes_away_in_the_middle_of_an_answer_is_told(
    route: str,
    site_of: Callable[[str], Site],
    ledgers: Callable[[str], str],
    postgres_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asks = resolve_name(MIDDLE[route])
    with TemporaryDirectory(prefix="tx") as folder:
        outage = Outage(in_database(postgres_server, str(make_url(ledgers("seeded")).database)), Path(folder) / "pg")
        outage.end()
        site = site_of(make_url(outage.url).set(username=READER).render_as_string(hide_password=False))

        def ask_and_go(*args: Any, **options: Any) -> Any:
            found = asks(*args, **options)
            outage.begin()
            return found

        site.told(route)
        with monkeypatch.context() as patch:
            patch.setattr(MIDDLE[route], ask_and_go)
            told_away(site, route)
        outage.end()
        site.told(route)


def of_this_version(site: Site, route: str) -> bool:
    """Whether a route is answered as by a ledger of the version of the pages; else it is said to be of another."""
    answer = site.get(route)
    assert answer.status_code in (200, 404) or (answer.status_code, answer.json()) == (503, {"detail": app.OLD}), (
        route,
        answer.text,
    )
    return bool(answer.status_code != 503)


@pytest.mark.parametrize(
    ("lacks", "answered"), [("pages", False), ("found_by", True), ("status", True), ("aborted_at", True)]
)
def test_a_ledger_that_is_older_is_told_or_answers(
    lacks: str,
    answered: bool,
    site_of: Callable[[str], Site],
    databases: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`lacks` is the first migration that the ledger has not seen. An older ledger is answered whole, or on no route."""
    every, url = migrations(), databases("older")
    last = next(each.number for each in every if each.name == lacks)
    with monkeypatch.context() as patch:
        patch.setattr(migrating, "migrations", lambda: [each for each in every if each.number < last])
        engine = connect(url)
        migrate(engine)
    with transaction(engine) as connection:
        connection.exec_driver_sql(
            "INSERT INTO txbatch.topology (topology, job, by_interval, source) VALUES ('flights', 'j', true, '{}')"
        )
    engine.dispose()
    site = site_of(url)
    assert {of_this_version(site, route) for route in ("/api/topologies", *routes("flights"))} == {answered}
    if answered:
        (listed,), one = site.told("/api/topologies")["topologies"], site.told(T)["topology"]
        assert (listed, one["newest_txid"], one["left_out"]) == (one, None, 0 if lacks == "aborted_at" else None)


@pytest.mark.parametrize("change", LATER)
def test_a_ledger_that_is_newer_is_told_where_it_differs(
    change: str, site_of: Callable[[str], Site], copied: Callable[[], tuple[str, str]]
) -> None:
    owner, as_reader = copied()
    site, engine = site_of(as_reader), connect(owner)
    with transaction(engine) as connection:
        connection.exec_driver_sql(change)
    engine.dispose()
    answered = {route: of_this_version(site, route) for route in ("/api/topologies", *routes("flights"), LATER[change])}
    assert answered[LATER[change]] is False


def test_a_ledger_is_answered_again_once_it_is_back(
    site_of: Callable[[str], Site], ledgers: Callable[[str], str], postgres_server: str
) -> None:
    """Sessions that were ended between two requests are no error."""
    site = site_of(ledgers("seeded"))
    assert len(site.told("/api/topologies")["topologies"]) == 3
    with session(postgres_server) as ask:
        ask(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{READER}'")
    assert len(site.told("/api/topologies")["topologies"]) == 3


@pytest.fixture
def copied(
    ledgers: Callable[[str], str], new_database: Callable[[str], str], postgres_server: str
) -> Callable[[], tuple[str, str]]:
    """Makes a copy of the seeded ledger; returns its URLs, as the owner and as the reader."""

    def copy() -> tuple[str, str]:
        as_reader = make_url(ledgers("seeded"))
        with session(postgres_server) as ask:
            close(ask, str(as_reader.database))  # PostgreSQL copies no database that is in use
        url = make_url(new_database(str(as_reader.database)))
        return url.render_as_string(hide_password=False), url.set(username=READER).render_as_string(hide_password=False)

    return copy


@contextmanager
def locked(url: str) -> Iterator[None]:
    """Context manager. Keep everybody from the tables of topologies and batches."""
    engine = connect(url)
    with transaction(engine) as connection:
        connection.exec_driver_sql("LOCK TABLE txbatch.topology, txbatch.batch IN ACCESS EXCLUSIVE MODE")
        yield
    engine.dispose()


def test_what_takes_too_long_is_ended_and_told(
    site_of: Callable[[str], Site], copied: Callable[[], tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "SECONDS_MAX", 1)
    owner, as_reader = copied()
    site = site_of(as_reader)
    with locked(owner):
        for path in (
            "/api/topologies",
            "/api/topologies/flights",
            "/api/topologies/flights/states/flights/why?key=a&key=b",
        ):
            answer = site.get(path)
            assert (answer.status_code, answer.json()) == (503, {"detail": app.SLOW}), path
    assert site.get("/api/topologies").status_code == 200


def test_what_is_dropped_or_forbidden_meanwhile_is_told(
    site_of: Callable[[str], Site], copied: Callable[[], tuple[str, str]]
) -> None:
    owner, as_reader = copied()
    site, engine = site_of(as_reader), connect(owner)
    keys, why = (f"/api/topologies/flights/states/flights/{asked}" for asked in ("keys", "why?key=B6&key=JFK"))
    assert site.get(keys).status_code == 200
    with transaction(engine) as connection:
        connection.exec_driver_sql(f"REVOKE SELECT ON report.flights FROM {READER}")
    assert (site.get(keys).status_code, site.get(keys).json()) == (503, {"detail": app.NO_RIGHT})
    with transaction(engine) as connection:
        connection.exec_driver_sql("DROP VIEW report.flights CASCADE")
    assert site.get(keys).status_code == 404
    assert site.get(why).status_code in (404, 410)
    with transaction(engine) as connection:
        state_tables.drop(connection, "flights")
    for path in routes("flights"):
        assert site.get(path).status_code == 404, path
    assert [each["topology"] for each in site.told("/api/topologies")["topologies"]] == ["clicks", "orders"]
    engine.dispose()


def test_a_state_that_was_folded_says_from_which_txid_on(
    site_of: Callable[[str], Site], copied: Callable[[], tuple[str, str]]
) -> None:
    owner, as_reader = copied()
    site, engine = site_of(as_reader), connect(owner)
    with transaction(engine) as connection:
        connection.exec_driver_sql("UPDATE txbatch.state SET horizon = 4 WHERE state = 'flights'")
    state = "/api/topologies/flights/states/flights"
    for path in (f"{state}/as-of?txid=3&key=B6&key=JFK", f"{state}/changes?from=3&to=9"):
        answer = site.get(path)
        assert answer.status_code == 410
        assert "retention has folded what it was before txid 4" in answer.json()["detail"]
    told = site.told(f"{state}/as-of?txid=4&key=B6&key=JFK")
    assert (told["first"], told["last"]) == (4, 31)
    engine.dispose()


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ("SET database = 'warehouse', contributions = false", 410, "another database"),
        ("SET contributions = false", 410, "without contributions"),
    ],
)
def test_a_state_without_a_past_says_so(
    site_of: Callable[[str], Site], copied: Callable[[], tuple[str, str]], change: str, status: int, text: str
) -> None:
    owner, as_reader = copied()
    site, engine = site_of(as_reader), connect(owner)
    with transaction(engine) as connection:
        connection.exec_driver_sql(f"UPDATE txbatch.state {change} WHERE state = 'flights'")
    answer = site.get("/api/topologies/flights/states/flights/as-of?txid=3&key=B6&key=JFK")
    assert (answer.status_code, text in answer.json()["detail"]) == (status, True), answer.text
    (state,) = [each for each in site.told("/api/topologies/flights")["states"] if each["state"] == "flights"]
    assert state["past_kept"] is False
    engine.dispose()


def test_values_merged_by_a_job_are_told_without_a_past(
    site_of: Callable[[str], Site], copied: Callable[[], tuple[str, str]]
) -> None:
    owner, as_reader = copied()
    site, engine = site_of(as_reader), connect(owner)
    with transaction(engine) as connection:
        connection.exec_driver_sql(
            "UPDATE txbatch.state SET columns = replace(columns::text, '\"add\"', '\"Own.combine\"')::json"
            " WHERE state = 'flights'"
        )
    state = "/api/topologies/flights/states/flights"
    answer = site.get(f"{state}/as-of?txid=3&key=B6&key=JFK")
    assert (answer.status_code, "Python of its job" in answer.json()["detail"]) == (410, True)
    why: Any = site.told(f"{state}/why?key=B6&key=JFK")
    assert why["equal"] is None
    assert why["versions"]
    engine.dispose()


def test_the_reader_of_pages_can_change_nothing(ledgers: Callable[[str], str]) -> None:
    """Whatever role the connection names: sessions of pages are read-only."""
    as_owner = in_database(ledgers("seeded"), str(make_url(ledgers("seeded")).database))
    url = make_url(as_owner).set(username=make_url(as_owner).username).render_as_string(hide_password=False)
    asked = reader.Reader(lambda: (url, "a test"))
    with asked.snapshot() as connection:
        settings = connection.exec_driver_sql(
            "SELECT current_setting('transaction_read_only'), current_setting('statement_timeout'),"
            " current_setting('application_name'), current_setting('transaction_isolation')"
        ).one()
    assert tuple(settings) == ("on", "5s", "txbatch ui", "repeatable read")
