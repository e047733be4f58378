"""A state's past in the database, written by hand, and what `core.state.fold` says of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from txbatch.core.aggregates.merge import Partial
from txbatch.core.aggregates.merger import Merger
from txbatch.core.state.fold import Contribution, fold, last_changed
from txbatch.core.state.update import Change
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.postgres.state.folds import Folds

KEYS = ["a", "b"]
# By a search for each key that changed since, and in one pass over all contributions: what `txbatch.far_back` forces.
WAYS = ["off", "on"]
# Per txid: the position that it counts again, as an index into those before it (None: its own), and what it does to each key.
CHANGE = st.none() | st.tuples(st.integers(-9, 9), st.booleans(), st.booleans()).filter(lambda each: each[1] or each[2])
HISTORY = st.lists(st.tuples(st.none() | st.integers(0, 9), st.tuples(CHANGE, CHANGE)), min_size=1, max_size=6)
BASE = st.none() | st.tuples(*[st.none() | st.integers(-9, 9)] * len(KEYS))
few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass
class Model:
    """All that a state ever got, by key, and the same in the database, written by hand."""

    connection: Connection
    aggregate: PersistentAggregate
    base: dict[Any, Partial] = field(default_factory=dict)
    horizon: int = 0
    given: dict[Any, list[Contribution]] = field(default_factory=dict)
    newest: int = 0

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return [tuple(map(rounded, row)) for row in self.connection.exec_driver_sql(statement)]

    def fold(self, key: Any, at: int | None = None, *, corrected: int | None = None) -> Partial | None:
        given = [each for each in self.given.get(key, []) if corrected is None or each.position <= corrected]
        return fold(self.base.get(key), given, Merger(self.aggregate.merges), at)

    def txid(self, key: Any, at: int | None = None, *, corrected: int | None = None) -> int:
        given = [each for each in self.given.get(key, []) if corrected is None or each.position <= corrected]
        return max(last_changed(given, at) or 0, self.horizon if key in self.base else 0)

    def report(self, at: int | None = None, *, corrected: int | None = None) -> dict[Any, tuple[Any, ...]]:
        found = {}
        for key in {*self.base, *self.given}:
            if (partial := self.fold(key, at, corrected=corrected)) is not None:
                found[key] = (*self.finished(partial), self.txid(key, at, corrected=corrected))
        return found

    def finished(self, partial: Partial) -> tuple[Any, ...]:
        parts = dict(zip([column.name for column in self.aggregate.columns], partial, strict=True))
        of = {name: [c.name for c in self.aggregate.columns if c.value == name] for name in self.aggregate.aggregates}
        return tuple(
            rounded(each.finish(tuple(parts[column] for column in of[name])))
            for name, each in self.aggregate.aggregates.items()
        )

    def fill(self, base: dict[Any, Partial], history: list[tuple[int, dict[Any, Change]]]) -> None:
        """Write a history of positions with what each does to each key, and the state that it comes to."""
        self.base, self.horizon = base, 1 if base else 0
        folds, topology = Folds.of(self.aggregate), self.aggregate.topology
        for key, partial in base.items():
            self.insert(folds.base, [*folds.keys, *folds.values, "txid"], [*key, *partial, self.horizon])
        of = {txid: position for txid, (position, _) in enumerate(history, 1 + self.horizon)}
        replaced = {v: next((r for r in of if r > v and of[r] == of[v]), None) for v in of}
        self.connection.exec_driver_sql(
            f"UPDATE txbatch.state SET horizon = {self.horizon} WHERE topology = '{topology}'"
        )
        for txid in [*range(1, 1 + self.horizon), *of]:
            position = of.get(txid, txid)
            kind = "ordinary" if position == txid else "restate"
            row = [topology, txid, position, kind, "committed", str(txid), "{}", 1, "t", 1, replaced.get(txid)]
            names = ["topology", "txid", "position", "kind", "status", "key", "metadata", "fence", "token"]
            self.insert("txbatch.batch", [*names, "committed_fence", "replaced_by"], row, "committed_at, lease_until")
            self.newest = txid
        marks = ["removed", "counted"] if self.aggregate.removable else []
        for txid, (position, changes) in enumerate(history, 1 + self.horizon):
            for key, change in changes.items():
                self.given.setdefault(key, []).append(Contribution(position, txid, change, replaced[txid]))
                told = [change.removed, change.counted] if marks else []
                names = [*folds.keys, "position", "txid", *folds.values, *marks]
                self.insert(folds.contribution, names, [*key, position, txid, *change.partial, *told])
        for key in {*base, *self.given}:
            if (partial := self.fold(key)) is not None:
                names = [*folds.keys, *folds.values, "txid", *marks]
                told = [False, True] if marks else []
                name = f"state.{folds.contribution.partition('.')[2]}"
                self.insert(name, names, [*key, *partial, self.txid(key), *told])

    def insert(self, table: str, names: list[str], row: list[Any], now: str = "") -> None:
        more, times = (f", {now}", ", now(), now()") if now else ("", "")
        marks = ", ".join(["%s"] * len(row))
        self.connection.exec_driver_sql(
            f"INSERT INTO {table.replace('%', '%%')} ({', '.join(names)}{more}) VALUES ({marks}{times})", tuple(row)
        )


def rounded(value: Any) -> Any:
    """Means have other digits in PostgreSQL."""
    return round(value, 9) if isinstance(value, Decimal) and int(value.as_tuple().exponent) < -10 else value


def positions(again: list[int | None]) -> list[int]:
    """The position of each txid from 1 on."""
    found: list[int] = []
    for txid, each in enumerate(again, 1):
        ordinary = [n for n, position in enumerate(found, 1) if n == position]
        found.append(txid if each is None or not ordinary else ordinary[each % len(ordinary)])
    return found
