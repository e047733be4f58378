"""Databases for tests: each is what it was at first for the next test, under another name, or is thrown away."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import psycopg2
from leftovers import IN_MEMORY
from sqlalchemy import make_url

ROOM_BYTES = 8 << 30
_numbers = count(1)
# Definitions, by the transactions that wrote them: DDL that is not undone leaves another sum. Tables, sequences and views
# are compared by name, owner and grants, as TRUNCATE writes them too.
CATALOGS = (
    *("attribute", "attrdef", "constraint", "namespace", "proc", "rewrite", "trigger", "type", "enum", "policy"),
    *("extension", "default_acl", "collation", "cast", "operator", "event_trigger", "publication"),
)
# The schemas of temporary tables stay, empty, once a session had one.
LASTING = {"namespace": "WHERE nspname !~ '^pg_(toast_)?temp_'"}
DEFINED = " UNION ALL ".join(
    f"SELECT '{each}', count(*), sum(xmin::text::numeric) FROM pg_{each} {LASTING.get(each, '')}" for each in CATALOGS
)
RELATIONS = """
SELECT format('%I.%I', nspname, relname), relkind::text, pg_get_userbyid(relowner), relacl::text, reloptions::text
  FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
 WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema' ORDER BY 1
"""
SETTINGS = """
SELECT datacl::text, datconnlimit, setrole::int, setconfig::text FROM pg_database
  LEFT JOIN pg_db_role_setting ON setdatabase = pg_database.oid WHERE datname = current_database() ORDER BY 3
"""
# Those of states and those of migrations: both are in SQL.
FUNCTIONS = "SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = to_regnamespace('report') AND prolang = 14"
SCHEMAS = "SELECT format('%I', nspname) FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%'"
KINDS = {"v": "VIEW", "m": "MATERIALIZED VIEW", "r": "TABLE", "p": "TABLE", "S": "SEQUENCE"}
Rows = list[tuple[Any, ...]]
Ask = Callable[[str], Rows]


@contextmanager
def server_home(on_disk: Path) -> Iterator[Path]:
    """Context manager: a new folder in memory, which is removed in the end; the one on disk where memory is scarce."""
    home = on_disk
    with suppress(OSError):
        if min(psutil.virtual_memory().available, shutil.disk_usage(IN_MEMORY.parent).free) >= ROOM_BYTES:
            IN_MEMORY.mkdir(mode=0o700)
            home = IN_MEMORY
    try:
        yield home
    finally:
        if home is IN_MEMORY:
            shutil.rmtree(home, ignore_errors=True)


def in_database(url: str, database: str) -> str:
    """Return the same URL for another database of the server."""
    return make_url(url).set(database=database).render_as_string(hide_password=False)


@contextmanager
def session(url: str) -> Iterator[Ask]:
    """Context manager: a connection without transactions, as a function from a statement to its rows."""
    parsed = make_url(url)
    connection = psycopg2.connect(
        host=parsed.query["host"], port=parsed.query["port"], user=parsed.username, dbname=parsed.database
    )
    connection.autocommit = True

    def ask(statement: str) -> Rows:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    try:
        yield ask
    finally:
        connection.close()


def admin(url: str, statement: str) -> None:
    """Run one statement outside of a transaction."""
    with session(url) as ask:
        ask(statement)


def copy(server: str, template: str, name: str = "copy") -> str:
    """Make a database from a template, and return its name."""
    name = f"{name}_{next(_numbers)}"
    admin(server, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    return name


@dataclass(frozen=True)
class Content:
    """What is compared: schemas, functions, relations, definitions, settings, and the rows of tables that are not empty."""

    schemas: frozenset[str]
    functions: frozenset[str]
    relations: tuple[tuple[Any, ...], ...]
    rest: tuple[tuple[Any, ...], ...]
    rows: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, ask: Ask) -> Content:
        """Read all of it."""
        relations = ask(RELATIONS)
        tables = [name for name, kind, *_ in relations if kind == "r"]
        digests = " UNION ALL ".join(
            f"SELECT '{each}', md5(string_agg(t::text, ',' ORDER BY t::text)) FROM {each} t" for each in tables
        )
        schemas, functions = (frozenset(name for (name,) in ask(each)) for each in (SCHEMAS, FUNCTIONS))
        return cls(
            schemas, functions, tuple(relations), (*ask(DEFINED), *ask(SETTINGS)), tuple(ask(digests) if tables else [])
        )


@dataclass
class Pool:
    """Databases made from one template."""

    server: str
    template: str
    idle: list[tuple[str, Content]] = field(default_factory=list)
    taken: dict[str, Content] = field(default_factory=dict)

    def take(self) -> str:
        """Return the name of a database as the template is; nobody has had it by this name."""
        name, content = self.idle.pop() if self.idle else self._made()
        self.taken[name] = content
        return name

    def give_back(self, name: str) -> None:
        """Undo what a test did to the database, or drop it where that cannot be undone."""
        content, renamed = self.taken.pop(name), f"test_{next(_numbers)}"
        with session(self.server) as ask:
            try:
                close(ask, name)
                ask(f"ALTER DATABASE {name} RENAME TO {renamed}")  # whoever comes back late finds none
                name = renamed
                with session(in_database(self.server, name)) as inside:
                    undo(inside, content)
                    same = Content.of(inside) == content
            except psycopg2.Error:
                same = False
            if same:
                self.idle.append((name, content))
            else:
                ask(f"DROP DATABASE {name} WITH (FORCE)")

    def _made(self) -> tuple[str, Content]:
        name = copy(self.server, self.template, "test")
        with session(in_database(self.server, name)) as ask:
            return name, Content.of(ask)


def close(ask: Ask, database: str) -> None:
    """End every session of a database: PostgreSQL itself would look again for each only after a tenth of a second."""
    sessions = f"FROM pg_stat_activity WHERE datname = '{database}'"
    ask(f"SELECT pg_terminate_backend(pid) {sessions}")
    deadline = time.monotonic() + 5
    while ask(f"SELECT 1 {sessions}") and time.monotonic() < deadline:
        time.sleep(0.002)


def undo(ask: Ask, first: Content) -> None:
    """Delete the schemas, functions, relations and rows that were not there at first."""
    for (schema,) in ask(SCHEMAS):
        if schema not in first.schemas:
            ask(f"DROP SCHEMA {schema} CASCADE")
    for (function,) in ask(FUNCTIONS):
        if function not in first.functions:
            ask(f"DROP FUNCTION IF EXISTS {function} CASCADE")
    there = {name for name, *_ in first.relations}
    for name, kind, *_ in ask(RELATIONS):
        if name not in there and kind in KINDS:
            ask(f"DROP {KINDS[kind]} IF EXISTS {name} CASCADE")
    filled = [table for table, rows in first.rows if rows is None and ask(f"SELECT 1 FROM {table} LIMIT 1")]
    if filled:
        ask(f"TRUNCATE {', '.join(filled)} RESTART IDENTITY CASCADE")
