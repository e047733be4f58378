"""Tables that are read by time, for tests: sales with a moment, their spout, plans and rows read without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from source_tables import Shop, shop_in

from txbatch import Interval, PostgresIntervalSpout
from txbatch.core.batch.transaction import Metadata
from txbatch.settings import source_url
from txbatch.spouts.tables import stretches
from txbatch.spouts.tables.copy_text import Copy
from txbatch.spouts.tables.intervals import TimeColumn, parts_of, rows_of
from txbatch.spouts.tables.stretches import Part

FIELDS = "id bigint, shop string, amount decimal(12,2), sold_at timestamp"
TABLE = (
    "CREATE SCHEMA shop; CREATE TABLE shop.sale (id bigint PRIMARY KEY, shop text, amount numeric(12,2), sold_at {} NOT NULL); "
    "CREATE INDEX ON shop.sale (sold_at)"
)
DAY = datetime(2026, 1, 1, tzinfo=UTC)


def day(number: int, days: int = 1) -> Interval:
    """The interval of a day, or of several."""
    return Interval(DAY + timedelta(days=number), DAY + timedelta(days=number + days))


class Sales:
    """The table shop.sale, read by the time of a sale."""

    def __init__(self, shop: Shop, fields: str = FIELDS, **options: Any) -> None:
        self.shop, self.fields, self.options = shop, fields, options

    def sell(self, sold_at: datetime | str, *ids: int, ask: Any = None) -> None:
        """Add sales in one transaction."""
        rows = ", ".join(f"({id_}, 's{id_ % 3}', {id_}.50, '{sold_at}')" for id_ in ids)
        (ask or self.shop.ask)(f"INSERT INTO shop.sale (id, shop, amount, sold_at) VALUES {rows}")

    def spout(self, **options: Any) -> PostgresIntervalSpout:
        """The spout of the table."""
        asked = {"time": "sold_at", "source": "shop", **self.options, **options}
        return PostgresIntervalSpout("shop.sale", self.fields, **asked)

    def plan(self, *intervals: Interval, last: Metadata | None = None, **options: Any) -> list[Any]:
        """Plan intervals by one look."""
        coordinator = self.spout(**options).coordinator()
        with coordinator.one_look():
            found = [
                coordinator.initialize_transaction(1, last, {"interval": [of.start.isoformat(), of.end.isoformat()]})
                for of in intervals
            ]
        coordinator.close()
        return found

    def read(self, plan: Metadata, cores: int = 2) -> list[dict[str, Any]]:
        """Read what was planned, without Spark, by id; as many rows as were planned."""
        rows = read(self.spout(), plan, cores)
        assert len(rows) == plan["records"]
        return sorted(rows, key=lambda row: int(row["id"]))

    def ids(self, plan: Metadata) -> list[int]:
        """The ids of what was planned."""
        return [row["id"] for row in self.read(plan)]


def read(spout: PostgresIntervalSpout, plan: Metadata, cores: int = 2) -> list[dict[str, Any]]:
    """The rows of a plan, read without Spark."""
    with spout.session() as asked:
        table = spout._checked(asked, parts_of(plan))
        at = TimeColumn.of(asked, table, spout.time, spout.timezone)
        parts = [Part("", rows_of(at, each), each["records"]) for each in parts_of(plan)]
        cut = stretches.cut(asked, table, spout._fields, spout.timezone, parts, cores)
    copy = Copy("shop", source_url("shop"), "shop.sale", spout._fields, ["id"])
    return [row for each in cut for batch in copy.read(each) for row in batch.to_pylist()]


@contextmanager
def sales_in(url: str, type_: str = "timestamptz", fields: str = FIELDS, **options: Any) -> Iterator[Sales]:
    """Context manager: the table in a database, prepared; the time has this type."""
    with shop_in(url, TABLE.format(type_)) as shop:
        yield Sales(shop, fields, **options)


def hours(start: datetime, number: int) -> Sequence[Interval]:
    """Hours, one after the other."""
    return [Interval(start + timedelta(hours=each), start + timedelta(hours=each + 1)) for each in range(number)]
