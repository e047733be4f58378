"""The SQL of one state, made from the definition: the tables, and the upsert of a batch, a second statement of R9.

Every name is quoted by `pg_name`; the only values are txids, which are integers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence

from txbatch.core.aggregates.merger import folded_columns, grouped
from txbatch.core.state.state import StateKind
from txbatch.core.topology.persistent_aggregate import GLOBAL_KEY, PREVIOUS_PREFIX, PersistentAggregate
from txbatch.postgres.database.expressions import (
    column_type,
    listed,
    pg_name,
    sql_type,
    total_sql,
)
from txbatch.postgres.database.generations import CURRENT, Generation

# Left to itself the planner may join by scanning the whole state; so a commit costs by the batch alone. Two ways:
_NO_SCAN = (
    "SET LOCAL enable_hashjoin = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_material = off; "
    "SET LOCAL enable_bitmapscan = off; "
)
# One search of the state's index a row.
INDEX_PROBES = _NO_SCAN + "SET LOCAL enable_mergejoin = off; SET LOCAL enable_nestloop = on"
# One search for all rows, which from PostgreSQL 17 on goes from key to key; they must fit into an array.
INDEX_WALK = _NO_SCAN + "SET LOCAL enable_mergejoin = on; SET LOCAL enable_nestloop = off"
INDEX_WALK_VERSION_MIN = 170000
INDEX_WALK_BYTES_MAX = 64 << 20


# What a tombstone needs to be a row again.
RESTORED_MARKS = ("removed = false", "counted = true")


class StateStatements:
    """The statements of one persistent aggregate. `staged` begins the name of the temporary table of partials.

    The name ends with a digest of the table's columns: tables of different shapes have different names.
    """

    _prev_txid = "s.txid"
    _restored: Sequence[str] = ()

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
        return f"CREATE TABLE {self.state} ({listed(columns)}) WITH ({options})"

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

    def copy(self) -> str:
        """Return the COPY into the staged table, from CSV in which only null is unquoted and empty."""
        keys = self.keys if self.aggregate.keys else []
        return f"COPY {self.staged} ({listed([*keys, *self.partials])}) FROM STDIN (FORMAT csv)"

    def totals(self) -> str:
        """Return the query of row count and totals over the rows that the upsert reads (R7), in the order of the columns."""
        totals = ["count(*)::text", *(total_sql(column) for column in self.partial_columns)]
        return f"SELECT {listed(totals)} FROM {self.staged}"

    def longest_key(self) -> str:
        """Return the query of the largest staged key: the key's beginning, and its bytes."""
        text = f"concat_ws(', ', {', '.join(f'{key}::text' for key in self.keys)})"
        size = " + ".join(f"pg_column_size({key})" for key in self.keys)
        return f"SELECT left({text}, 40), octet_length({text}) FROM {self.staged} ORDER BY {size} DESC LIMIT 1"

    def once(self) -> str:
        """Return the query of the staged rows, with several rows of one key merged."""
        merges = folded_columns(self.aggregate.partial_merges, self.partials)
        merged = [
            f"CAST({merge} AS {sql_type(column.partial.type)}) AS {name}"
            for column, merge, name in zip(self.partial_columns, merges, self.partials, strict=True)
        ]
        return f"SELECT {listed([*self.keys, *merged])} FROM {self.staged} GROUP BY {listed(self.keys)}"

    def collapse(self, once: str) -> Sequence[str]:
        """Return the statements that replace the staged rows by the rows of the query `once`: one row for each key."""
        return (
            f"CREATE TEMP TABLE collapsed ON COMMIT DROP AS {once}",
            f"TRUNCATE {self.staged}",
            f"INSERT INTO {self.staged} SELECT * FROM pg_temp.collapsed",
            "DROP TABLE pg_temp.collapsed",
        )

    def contribute(self, txid: int, position: int, uncounted: Collection[str] = ()) -> str:
        """Return the statement that appends the batch's contributions, in the order of loading: by key, or nearly so.

        The columns `uncounted` are null.
        """
        columns = listed([*self.keys, "position", "txid", *self.partials])
        null = {pg_name(name) for name in uncounted}
        values = ["NULL" if name in null else name for name in self.partials]
        selected = listed([*self.keys, f"{position:d}", f"{txid:d}", *values])
        return f"INSERT INTO {self.contribution} ({columns}) SELECT {selected} FROM {self.staged}"

    def staged_with_state(self, *, walk: bool) -> str:
        """Return the staged rows `e` in key order, each with the state's row `s` or nulls; to be read as `upsert` is run."""
        ordered = f"(SELECT * FROM {self.staged} ORDER BY {listed(self.keys)} OFFSET 0)"
        return f"{ordered} e LEFT JOIN {self.state} s ON {self._of_staged(self.staged, walk=walk)}"

    def unless_removed(self, value: str) -> str:
        """Return a value of the state's row, to merge with the staged value."""
        return f"s.{value}"

    def upsert(self, txid: int, *, walk: bool = False, merged: str | None = None) -> str:
        """Return the upsert of every staged row, in key order (R9). A row that may not change is left alone and not counted.

        Run the upsert under `INDEX_WALK` if there is one key column, or under `INDEX_PROBES`. `merged` is a table of the
        staged rows after Python merged values with values of the state's rows; its txid is the txid of the state's row.
        """
        staged = merged or self.staged
        same = self._of_staged(staged, walk=walk)
        columns, read_at = listed([*self.keys, *self.partials]), ", txid" if merged else ""
        may = self._condition(txid) + (" AND s.txid = e.txid" if merged else "")
        inserted = listed([*(f"e.{name}" for name in (*self.keys, *self.partials)), f"{txid:d}"])
        return (
            f"MERGE INTO {self.state} s "
            f"USING (SELECT {columns}{read_at} FROM {staged} ORDER BY {listed(self.keys)} OFFSET 0) e ON {same} "
            f"WHEN MATCHED{may} THEN UPDATE SET {listed(self._assignments(txid))} "
            f"WHEN NOT MATCHED THEN INSERT ({columns}, txid) VALUES ({inserted})"
        )

    def remove(self, txid: int) -> Sequence[str]:
        """Return the statements to run after the upsert: delete removed keys."""
        return ()

    def remove_apart(self, txid: int) -> Sequence[str]:
        """Return the statements to run after the upsert in a state apart (R21): a removed value may have to be given back."""
        return ()

    def ahead(self, txid: int) -> str:
        """Return the query for a staged key whose row is at the txid or a later txid."""
        return (
            f"SELECT {listed(['s.txid', *(f's.{key}::text' for key in self.keys)])} FROM {self.state} s "
            f"JOIN {self.staged} e ON {self._same} WHERE s.txid >= {txid:d} LIMIT 1"
        )

    def take_back(self, txid: int) -> Sequence[str]:
        """Apart (R21), opaque: return the statements that restore the keys written by an earlier attempt of the txid."""
        values = [column.name for column in self.columns]
        return take_back(self.aggregate.state.name, values, txid, self._restored)

    def digest(self) -> str:
        """Apart (R21), transactional: return the query of a digest of an attempt's staged rows, in whatever order they came.

        The digest is null if there are no rows. Sums of doubles are left out, as their last digits differ from attempt to
        attempt; values merged by Python are left out, too.
        """
        in_sql = [column for column in self.partial_columns if column.partial.merge.in_sql]
        names = [pg_name(column.name) for column in in_sql]
        merges = folded_columns([column.partial.merge for column in in_sql], names)
        merged = [
            merge if column.partial.exact else f"count({name})"
            for column, merge, name in zip(in_sql, merges, names, strict=True)
        ]
        merged += [f"count({name})" for name in self.partials if name not in names]
        by_key = f"SELECT {listed([*self.keys, *merged])} FROM {self.staged} GROUP BY {listed(self.keys)}"
        hashed = "left(encode(sha256(convert_to(to_jsonb(e)::text, 'UTF8')), 'hex'), 15)"
        return f"SELECT count(*) || ':' || sum(('x' || {hashed})::bit(60)::bigint) FROM ({by_key}) e"

    def _of_staged(self, staged: str, *, walk: bool) -> str:
        """Return the condition that a row `s` of the state has the key of a staged row `e`."""
        if not walk:
            return self._same
        (key,) = self.keys
        return f"{self._same} AND s.{key} = ANY (ARRAY(SELECT {key} FROM {staged}))"

    @property
    def _same(self) -> str:
        return " AND ".join(f"s.{key} = e.{key}" for key in self.keys)

    def _assignments(self, txid: int) -> list[str]:
        assigned = [f"{value} = {after}" for value, after in zip(self.values, self._after(), strict=True)]
        assigned += [f"{mark} = e.{mark}" for mark in self.marks]
        if self.kind is StateKind.OPAQUE:
            kept = zip(self.previous, self.values, strict=True)
            assigned += [f"{previous} = s.{value}" for previous, value in kept]
            assigned.append(f"prev_txid = {self._prev_txid}")
        return [*assigned, f"txid = {txid:d}"]

    def _after(self) -> list[str]:
        """Return the values after the batch, from the state's row `s` and the staged row `e`."""
        state, staged = ([f"{row}.{value}" for value in self.values] for row in "se")
        groups = grouped(self.aggregate.merges)
        return [sql for merge, at in groups for sql in merge.merge_sql(state[at], staged[at])]

    def _condition(self, txid: int) -> str:
        return "" if self.kind is StateKind.NON_TRANSACTIONAL else f" AND s.txid < {txid:d}"

    def _typed_keys(self) -> list[str]:
        if not self.aggregate.keys:
            (only,) = self.keys
            return [f"{only} boolean NOT NULL DEFAULT true CHECK ({only})"]
        return [f"{pg_name(key.name)} {column_type(key.type)} NOT NULL" for key in self.aggregate.keys]

    def _typed_marks(self) -> list[str]:
        return [f"{mark} boolean NOT NULL" for mark in self.marks]

    def _typed_values(self, names: Iterable[str]) -> list[str]:
        return [f"{name} {column_type(column.partial.type)}" for name, column in zip(names, self.columns, strict=True)]


class RemovableStatements(StateStatements):
    """The statements of a state with removable keys: rows have marks, and a row that does not count is a tombstone."""

    # After a tombstone there was no such key.
    _prev_txid = "CASE WHEN s.counted THEN s.txid END"
    _restored = RESTORED_MARKS

    def create_state(self) -> str:
        # By a column that rarely changes, so that updates stay HOT.
        return f"{super().create_state()}; CREATE INDEX ON {self.state} (counted) WHERE NOT counted"

    def remove(self, txid: int) -> Sequence[str]:
        return (f"DELETE FROM {self.state} WHERE NOT counted",)

    def remove_apart(self, txid: int) -> Sequence[str]:
        """Return the statements to run after the upsert. An opaque state keeps tombstones until a later txid.

        A tombstone can give the value back.
        """
        if self.kind is not StateKind.OPAQUE:
            return self.remove(txid)
        return (f"DELETE FROM {self.state} WHERE NOT counted AND (txid < {txid:d} OR prev_txid IS NULL)",)

    def unless_removed(self, value: str) -> str:
        return f"CASE WHEN NOT e.removed THEN s.{value} END"

    def _after(self) -> list[str]:
        merged = zip(self.values, super()._after(), strict=True)
        return [f"CASE WHEN e.removed THEN e.{value} ELSE {after} END" for value, after in merged]


def statements_of(
    aggregate: PersistentAggregate, staged: str = "staged", generation: Generation = CURRENT
) -> StateStatements:
    """Return the statements of a persistent aggregate; `staged` begins the name of the temporary table."""
    return (RemovableStatements if aggregate.removable else StateStatements)(aggregate, staged, generation)


def take_back(state: str, values: Sequence[str], txid: int, also: Sequence[str] = ()) -> Sequence[str]:
    """Return the statements that undo all writes of a txid to an opaque state.

    `values` are the names of the value columns, `also` more assignments for rows that existed before: see `RESTORED_MARKS`.
    """
    table = f"state.{pg_name(state)}"
    restored = [f"{pg_name(value)} = {pg_name(PREVIOUS_PREFIX + value)}" for value in values]
    return (
        f"DELETE FROM {table} WHERE txid = {txid:d} AND prev_txid IS NULL",
        f"UPDATE {table} SET {listed([*restored, *also, 'txid = prev_txid'])} WHERE txid = {txid:d}",
    )
