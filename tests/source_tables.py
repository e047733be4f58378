"""Tables as sources, for tests: a prepared table in a database of its own, its spout, and rows read without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import psycopg2
from databases import Ask, session
from sqlalchemy import make_url

from txbatch import PostgresSpout
from txbatch.core.batch.transaction import Metadata
from txbatch.settings import source_url
from txbatch.spouts.postgres_table import rows_of
from txbatch.spouts.tables import prepare, stretches
from txbatch.spouts.tables.connection import run_all
from txbatch.spouts.tables.copy_text import Copy, Stretch
from txbatch.spouts.tables.description import describe
from txbatch.spouts.tables.stretches import Part
from txbatch.spouts.tables.windows import any_of, conditions

FIELDS = "id bigint, shop string, amount decimal(12,2)"
TABLE = "CREATE SCHEMA shop; CREATE TABLE shop.sale (id bigint PRIMARY KEY, shop text, amount numeric(12,2))"
VARIABLE = "TXBATCH_SOURCE_SHOP"
# What a role of a source needs.
READ = ("GRANT USAGE ON SCHEMA shop TO {role}", "GRANT SELECT ON shop.sale TO {role}")
_numbers = count(1)


@dataclass
class Shop:
    """A database with the table shop.sale, known as the source `shop`."""

    url: str
    fields: str = FIELDS
    offsets: dict[str, Metadata] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    of: type[PostgresSpout] = PostgresSpout

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement in a transaction of its own."""
        with self.open() as ask:
            return ask(statement)

    @contextmanager
    def open(self) -> Iterator[Ask]:
        """Context manager: a session."""
        with session(self.url) as ask:
            yield ask

    def insert(self, *ids: int, ask: Ask | None = None) -> None:
        """Insert rows in one transaction; the shop is the rest by three."""
        values = ", ".join(f"({number}, 's{number % 3}', {number}.50)" for number in ids)
        (ask or self.ask)(f"INSERT INTO shop.sale (id, shop, amount) VALUES {values}")

    def prepare(self, table: str = "shop.sale") -> None:
        """Make the table a source, as `txbatch source prepare --apply` does."""
        with PostgresSpout(table, "id bigint", source="shop").session() as asked:
            statements = prepare.statements(describe(asked, table, changing=self.of.changing))
        run_all("shop", source_url("shop"), statements, table)

    def spout(self, **options: Any) -> PostgresSpout:
        """The spout of the table."""
        return self.of("shop.sale", self.fields, **{"source": "shop", **self.options, **options})

    def plan(self, **options: Any) -> dict[str, Metadata] | None:
        """Plan the next batch, and take it for committed; None for nothing new."""
        coordinator = self.spout(**options).coordinator()
        coordinator.offsets = self.offsets
        plan = coordinator.initialize_transaction(1, None, None)
        coordinator.close()
        ranges: dict[str, Metadata] | None = plan and plan["partitions"]
        self.offsets = {**self.offsets, **(ranges or {})}
        return ranges

    def read(self, ranges: Mapping[str, Metadata] | None, cores: int = 2, **options: Any) -> list[dict[str, Any]]:
        """Read what was planned, without Spark; as many rows as were planned."""
        spout, cut = self.spout(**options), self.cut(ranges, cores, **options)
        copy = Copy("shop", source_url("shop"), "shop.sale", spout._fields, ["id"])
        rows = [row for each in cut for batch in copy.read(each) for row in batch.to_pylist()]
        assert self.of.changing or len(rows) == sum(of["records"] for of in (ranges or {}).values())
        return rows

    def cut(self, ranges: Mapping[str, Metadata] | None, cores: int = 2, **options: Any) -> list[Stretch]:
        """Cut what was planned into what tasks read."""
        spout, planned = self.spout(**options), ranges or {}
        parts = [Part(name, any_of(conditions(of)), rows_of(of)) for name, of in planned.items()]
        with spout.session() as asked:
            table = spout._checked(asked, planned.values())
            return stretches.cut(asked, table, spout._fields, spout.timezone, parts, cores)

    def take(self, **options: Any) -> list[int] | None:
        """Plan the next batch and read it: the ids, in order."""
        ranges = self.plan(**options)
        return None if ranges is None else sorted(row["id"] for row in self.read(ranges))

    def drain(self, **options: Any) -> Iterator[list[int]]:
        """Take batches until there is nothing new."""
        while (ids := self.take(**options)) is not None:
            yield ids


@contextmanager
def known(url: str) -> Iterator[None]:
    """Context manager: the source `shop` is this database."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = url
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


@contextmanager
def shop_in(
    url: str, table: str = TABLE, before: Sequence[int] = (), of: type[PostgresSpout] = PostgresSpout
) -> Iterator[Shop]:
    """Context manager: the table, with rows from before, prepared."""
    with known(url):
        shop = Shop(url, of=of)
        shop.ask(table)
        if before:
            shop.insert(*before)
        shop.prepare()
        yield shop


@contextmanager
def role(url: str, *grants: str, options: str = "LOGIN") -> Iterator[str]:
    """Context manager: the URL of a new role with these rights, for a format with `{role}`."""
    name = f"role_{os.getpid()}_{next(_numbers)}"
    with session(url) as ask:
        ask(f"CREATE ROLE {name} {options}")
        for grant in grants:
            ask(grant.format(role=name))
        try:
            yield make_url(url).set(username=name).render_as_string(hide_password=False)
        finally:
            ask(f"DROP OWNED BY {name}")
            ask(f"DROP ROLE {name}")


def transaction(url: str) -> Any:
    """A connection whose transaction is open until its commit."""
    parsed = make_url(url)
    return psycopg2.connect(
        host=parsed.query["host"], port=parsed.query["port"], user=parsed.username, dbname=parsed.database
    )
