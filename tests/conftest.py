"""What all tiers share: one embedded PostgreSQL per session, a fresh migrated database per test, markers for tiers and rules."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import psycopg2
import pytest
from budget import Budget, tier_of
from sqlalchemy import Engine, make_url

from txbatch.embedded import postgres
from txbatch.local import airflow_config, metadata
from txbatch.postgres.engine import connect
from txbatch.postgres.migrate import migrate

TESTS = Path(__file__).parent
TEMPLATE = "migrated"
AIRFLOW_TEMPLATE = "migrated_airflow"
# Cheapest first; what is not named here comes in between.
FIRST = ("tidy", "unit", "docs", "wheel", "golden", "contract", "spouts", "postgres", "model", "soak")
LAST = ("spark", "cli", "local", "local_airflow", "flights", "airflow", "demo")
_numbers = count(1)


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background jobs ignore Ctrl-C, and so would every program that is tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for tier in sorted(each.name for each in TESTS.iterdir() if each.is_dir() and not each.name.startswith(("_", "."))):
        config.addinivalue_line("markers", f"{tier}: tests in tests/{tier}/")
    config.addinivalue_line(
        "markers", "rule(*names): proves rules of the protocol with real processes; see test_rules.py"
    )
    config.pluginmanager.register(Budget(config), "budget")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test has its tier's name as a marker, `pytest -m "unit or contract"`; cheap tiers run first."""
    for item in items:
        item.add_marker(tier_of(item))
    items.sort(key=lambda item: _rank(tier_of(item)))


def _rank(tier: str) -> int:
    return FIRST.index(tier) if tier in FIRST else len(FIRST) + (1 + LAST.index(tier) if tier in LAST else 0)


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an embedded server of this session alone, with the database `migrated` to make others from."""
    home = tmp_path_factory.mktemp("server")
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


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of a fresh migrated database."""
    name = f"test_{next(_numbers)}"
    admin(postgres_server, f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY file_copy")
    yield in_database(postgres_server, name)
    admin(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def databases(postgres_server: str) -> Iterator[Callable[[str], str]]:
    """The URL of another, empty database by name: the same one for the same name, created when it is first asked for."""
    made: dict[str, str] = {}

    def url_of(name: str) -> str:
        if name not in made:
            made[name] = f"{name}_{next(_numbers)}"
            admin(postgres_server, f"CREATE DATABASE {made[name]}")
        return in_database(postgres_server, made[name])

    yield url_of
    for name in made.values():
        admin(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


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

    def copy(template: str) -> str:
        name = f"copy_{next(_numbers)}"
        admin(postgres_server, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return in_database(postgres_server, name)

    return copy


def in_database(url: str, database: str) -> str:
    """The same URL for another database of the server."""
    return make_url(url).set(database=database).render_as_string(hide_password=False)


def admin(url: str, statement: str) -> None:
    """Run one statement outside of a transaction."""
    parsed = make_url(url)
    connection = psycopg2.connect(
        host=parsed.query["host"], port=parsed.query["port"], user=parsed.username, dbname=parsed.database
    )
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(statement)
    connection.close()
