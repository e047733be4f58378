"""What all tiers share: one embedded PostgreSQL per session, a fresh migrated database per test, markers for tiers and rules."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from budget import Budget, tier_of
from databases import Pool, admin, copy, in_database, server_home
from sizes import EVERYTHING
from slowness import slowness
from sqlalchemy import Engine

from txbatch.embedded import postgres
from txbatch.local import airflow_config, metadata
from txbatch.postgres.engine import connect
from txbatch.postgres.migrate import migrate

TESTS = Path(__file__).parent
TEMPLATE = "migrated"
AIRFLOW_TEMPLATE = "migrated_airflow"
# Cheapest first; what is not named here comes in between.
FIRST = ("tidy", "unit", "docs", "wheel", "golden", "contract", "spouts", "postgres", "model", "soak")
LAST = ("spark", "cli", "local", "flights", "airflow")


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background jobs ignore Ctrl-C, and so would every program that is tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for tier in sorted(each.name for each in TESTS.iterdir() if each.is_dir() and not each.name.startswith(("_", "."))):
        config.addinivalue_line("markers", f"{tier}: tests in tests/{tier}/")
    config.addinivalue_line(
        "markers", "rule(*names): proves rules of the protocol with real processes; see test_rules.py"
    )
    config.addinivalue_line("markers", "whole: tried by `make test-all` alone; proves no rule by itself")
    config.pluginmanager.register(Budget(config), "budget")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every test has its tier's name as a marker, `pytest -m "unit or contract"`; cheap tiers run first.

    What hangs is ended by a timeout, later on a machine that is slow.
    """
    for item in items:
        item.add_marker(tier_of(item))
        if seconds := _timeout(item):
            item.add_marker(pytest.mark.timeout(seconds * slowness()), append=False)
    items.sort(key=lambda item: _rank(tier_of(item)))
    if not EVERYTHING and (left_out := [item for item in items if item.get_closest_marker("whole")]):
        items[:] = [item for item in items if not item.get_closest_marker("whole")]
        config.hook.pytest_deselected(items=left_out)


def _timeout(item: pytest.Item) -> float:
    """The seconds that a test may take by its own mark, or else by the configuration; 0: as long as it likes."""
    mark = item.get_closest_marker("timeout")
    given = item.config.getoption("timeout")
    usual = item.config.getini("timeout") if given is None else given
    return float(mark.args[0] if mark and mark.args else usual or 0)


def _rank(tier: str) -> int:
    return FIRST.index(tier) if tier in FIRST else len(FIRST) + (1 + LAST.index(tier) if tier in LAST else 0)


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an embedded server of this session alone, with the database `migrated` to make others from."""
    with server_home(tmp_path_factory.mktemp("server")) as home:
        url = postgres.start(home)
        try:
            admin(url, "ALTER SYSTEM SET fsync = off")  # nothing here outlives the session
            admin(url, "SELECT pg_reload_conf()")
            admin(url, f"CREATE DATABASE {TEMPLATE}")
            template = connect(in_database(url, TEMPLATE))
            migrate(template)
            template.dispose()
            yield url
        finally:
            postgres.stop(home)


@pytest.fixture(scope="session")
def pools(postgres_server: str) -> Callable[[str], Pool]:
    """The pool of databases made from this template."""
    return cache(lambda template: Pool(postgres_server, template))


@pytest.fixture
def postgres_url(pools: Callable[[str], Pool]) -> Iterator[str]:
    """The URL of a migrated database, as if it were fresh."""
    pool = pools(TEMPLATE)
    name = pool.take()
    yield in_database(pool.server, name)
    pool.give_back(name)


@pytest.fixture
def databases(pools: Callable[[str], Pool]) -> Iterator[Callable[[str], str]]:
    """The URL of another, empty database by name: the same one for the same name."""
    pool, made = pools("template1"), dict[str, str]()

    def url_of(name: str) -> str:
        if name not in made:
            made[name] = pool.take()
        return in_database(pool.server, made[name])

    yield url_of
    for name in made.values():
        pool.give_back(name)


@pytest.fixture
def engine(postgres_url: str) -> Engine:
    """An engine on a fresh migrated database."""
    return connect(postgres_url, application_name="txbatch test")


@pytest.fixture(scope="session")
def airflow_template(postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with Airflow's own tables, to make others from: making them takes Airflow a quarter of a minute."""
    home, url = tmp_path_factory.mktemp("template"), in_database(postgres_server, AIRFLOW_TEMPLATE)
    admin(postgres_server, f"CREATE DATABASE {AIRFLOW_TEMPLATE}")
    airflow_config.write_config(home, "http://127.0.0.1:8080", home, home, unpaused=True, database_url=url)
    metadata.migrate(url, os.environ | {"AIRFLOW_HOME": str(home)}, home / "log", timeout=300)
    return AIRFLOW_TEMPLATE


@pytest.fixture(scope="session")
def new_database(postgres_server: str) -> Callable[[str], str]:
    """Makes a copy of this database, and returns its URL; it stays as long as the server does."""
    return lambda template: in_database(postgres_server, copy(postgres_server, template))
