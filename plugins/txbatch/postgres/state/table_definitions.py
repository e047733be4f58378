"""The tables of a state in SQL, made from the definition: names, columns, and the statements for creating the tables."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from txbatch.core.state.state import StateKind
from txbatch.core.topology.persistent_aggregate import GLOBAL_KEY, PREVIOUS_PREFIX, PersistentAggregate
from txbatch.postgres.database.expressions import column_type, listed, pg_name
from txbatch.postgres.database.generations import CURRENT, Generation


class StateTables:
    """The tables of one persistent aggregate. `staged` begins the name of the temporary table of partials.

    The name ends with a digest of the table's columns: tables of different shapes have different names.
    """

    def __init__(
        self, aggregate: PersistentAggregate, staged: str = "staged", generation: Generation = CURRENT
    ) -> None:
        self.aggregate, self.generation = aggregate, generation
        self.kind = aggregate.state.kind
        self.columns, self.partial_columns = aggregate.columns, aggregate.partial_columns
        self.keys = [pg_name(key.name) for key in aggregate.keys or (GLOBAL_KEY,)]
        self.values = [pg_name(column.name) for column in self.columns]
        self.partials = [pg_name(column.name) for column in self.partial_columns]
        self.marks = self.partials[len(self.values) :]
        self.previous = [pg_name(PREVIOUS_PREFIX + column.name) for column in self.columns]
        name = aggregate.state.name
        self.state, self.contribution = generation.state(name), generation.contribution(name)
        shape = hashlib.sha256(listed(self._columns()).encode()).hexdigest()[:12]
        self.staged_name = f"{staged}_{shape}"
        self.staged = f"pg_temp.{pg_name(self.staged_name)}"

    def create_state(self) -> str:
        """Return the statement that creates the state's table: fillfactor leaves room for HOT updates, vacuum comes early."""
        columns = [*self._typed_keys(), *self._typed_values(self.values)]
        if self.kind is StateKind.OPAQUE:
            columns += [*self._typed_values(self.previous), "prev_txid bigint"]
        columns += [*self._typed_marks(), "txid bigint NOT NULL", f"PRIMARY KEY ({listed(self.keys)})"]
        options = "fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05"
        created = f"CREATE TABLE {self.state} ({listed(columns)}) WITH ({options})"
        if not self.aggregate.removable:
            return created
        # By a column that rarely changes, so that updates stay HOT.
        return f"{created}; CREATE INDEX ON {self.state} (counted) WHERE NOT counted"

    def create_contribution(self) -> str:
        """Return the statement that creates the table of each batch's contributions, partitioned by txid."""
        columns = [
            *self._typed_keys(),
            "position bigint NOT NULL",
            "txid bigint NOT NULL",
            *self._typed_values(self.values),
            *self._typed_marks(),
        ]
        primary_key = f"PRIMARY KEY ({listed([*self.keys, 'position', 'txid'])})"
        return f"CREATE TABLE {self.contribution} ({listed([*columns, primary_key])}) PARTITION BY RANGE (txid)"

    def create_staged(self) -> str:
        """Return the statement that creates a temporary table for COPY: kept for the session, and emptied after each commit."""
        name = self.staged.removeprefix("pg_temp.")
        return f"CREATE TEMP TABLE IF NOT EXISTS {name} ({listed(self._columns())}) ON COMMIT DELETE ROWS"

    def beside_staged(self, what: str) -> str:
        """Return the name of another temporary table, for rows made from the staged rows."""
        return f"pg_temp.{pg_name(f'{self.staged_name}_{what}')}"

    def create_like_staged(self, table: str, *more: str, marks: bool = True) -> str:
        """Return the statement that creates a table of the staged shape for the transaction.

        The table has `more` columns at the end; without `marks`, the table has no marks.
        """
        columns = listed([*self._columns(marks=marks), *more])
        return f"CREATE TEMP TABLE {table.removeprefix('pg_temp.')} ({columns}) ON COMMIT DROP"

    def _columns(self, *, marks: bool = True) -> list[str]:
        return [*self._typed_keys(), *self._typed_values(self.values), *(self._typed_marks() if marks else ())]

    def _typed_keys(self) -> list[str]:
        if not self.aggregate.keys:
            (only,) = self.keys
            return [f"{only} boolean NOT NULL DEFAULT true CHECK ({only})"]
        return [f"{pg_name(key.name)} {column_type(key.type)} NOT NULL" for key in self.aggregate.keys]

    def _typed_marks(self) -> list[str]:
        return [f"{mark} boolean NOT NULL" for mark in self.marks]

    def _typed_values(self, names: Iterable[str]) -> list[str]:
        return [f"{name} {column_type(column.partial.type)}" for name, column in zip(names, self.columns, strict=True)]
