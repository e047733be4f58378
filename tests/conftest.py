"""What all tiers share: one embedded PostgreSQL per session, a fresh migrated database per test, markers for tiers and rules."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import pytest_timeout
from budget import Budget, tier_of
from databases import Pool, admin, copy, in_database, server_home
from lanes import LANE
from leftovers import sweep
from sizes import EVERYTHING
from slowness import Patience
from sqlalchemy import Engine

from txbatch.embedded import postgres
from txbatch.local import airflow_config, metadata
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.migrate import migrate
from txbatch.spark.process.parent import die_with_parent

TESTS = Path(__file__).parent
TEMPLATE = "migrated"
AIRFLOW_TEMPLATE = "migrated_airflow"
# Cheapest first; what is not named here comes in between.
FIRST = ("tidy", "unit", "docs", "wheel", "golden", "contract", "spouts", "postgres", "model", "soak")
LAST = ("spark", "cli", "local", "flights", "airflow")


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background jobs ignore Ctrl-C, and so would every program that is tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get(LANE):
        die_with_parent()
    sweep()
    for tier in sorted(each.name for each in TESTS.iterdir() if each.is_dir() and not each.name.startswith(("_", "."))):
        config.addinivalue_line("markers", f"{tier}: tests in tests/{tier}/")
    config.addinivalue_line(
        "markers", "rule(*names): proves rules of the protocol with real processes; see test_rules.py"
    )
    config.addinivalue_line("markers", "whole: tried by `make test-all` alone; proves no rule by itself")
    config.pluginmanager.register(Budget(config), "budget")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every test has its tier's name as a marker, `pytest -m "unit or contract"`; cheap tiers run first."""
    for item in items:
        item.add_marker(tier_of(item))
    items.sort(key=lambda item: _rank(tier_of(item)))
    if not EVERYTHING and (left_out := [item for item in items if item.get_closest_marker("whole")]):
        items[:] = [item for item in items if not item.get_closest_marker("whole")]
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """End a test that hangs by what it could have done, not by seconds: see slowness.py. Else as pytest-timeout does."""
    if settings.method != "signal" or threading.current_thread() is not threading.main_thread():
        return None
    patience = Patience(settings.timeout)

    def at_alarm(*_: object) -> None:
        __tracebackhide__ = True
        if patience.lasts():
            signal.setitimer(signal.ITIMER_REAL, max(1.0, patience.left))
        else:
            pytest_timeout.timeout_sigalrm(item, settings)

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    item.cancel_timeout = cancel  # type: ignore[attr-defined]
    signal.signal(signal.SIGALRM, at_alarm)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    return True


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
    yield from _fresh(pools(TEMPLATE))


@pytest.fixture(scope="module")
def module_url(pools: Callable[[str], Pool]) -> Iterator[str]:
    """The same for all tests of a module."""
    yield from _fresh(pools(TEMPLATE))


def _fresh(pool: Pool) -> Iterator[str]:
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
