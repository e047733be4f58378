"""The SQL of a state's contributions: their total now, and at an earlier txid (R17, R19, R22). See also `core.state.fold`.

The SQL is made from the ledger's row of a state: no job is needed. Every name is quoted by `pg_name`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from txbatch.core.aggregates.merge import RowMerge, merge_named
from txbatch.core.aggregates.merger import folded_columns
from txbatch.core.definition.stored import columns
from txbatch.core.state.state import versions_name
from txbatch.core.topology.persistent_aggregate import GLOBAL_KEY, PersistentAggregate
from txbatch.postgres.database.expressions import column_type, listed, pg_name, pg_text, sql_type
from txbatch.postgres.database.generations import CURRENT, Generation


@dataclass(frozen=True, slots=True)
class Folds:
    """The folds of one state. `stored` are the columns of the state's definition in `txbatch.state`."""

    topology: str
    state: str
    stored: Mapping[str, Any]
    own: Mapping[str, RowMerge] = field(default_factory=dict)
    generation: Generation = CURRENT

    @classmethod
    def of(cls, aggregate: PersistentAggregate, generation: Generation = CURRENT) -> Folds:
        """Return the folds of a state by the job's definition."""
        own = {str(column.partial.merge): column.partial.merge for column in aggregate.columns}
        return cls(aggregate.topology, aggregate.state.name, columns(aggregate), own, generation)

    @property
    def keys(self) -> list[str]:
        """The key columns; for a global value, the column that is always true."""
        return [pg_name(name) for name, _ in self.stored["keys"]] or [pg_name(GLOBAL_KEY.name)]

    @property
    def values(self) -> list[str]:
        """The value columns, with partials."""
        return [pg_name(name) for name, *_ in self.stored["values"]]

    @property
    def removable(self) -> bool:
        """True if contributions may remove keys."""
        return "remove" in self.stored

    @property
    def prunes(self) -> bool:
        """True if retention removes rows together with their contributions."""
        return "prune" in self.stored

    @property
    def contribution(self) -> str:
        """The table of the contributions."""
        return self.generation.contribution(self.state)

    @property
    def base(self) -> str:
        """The table of contributions folded by retention: keys, values, and the txid that changed the key last."""
        return self.generation.base(self.state)

    def create_base(self) -> str:
        """Return the statement that creates the base."""
        keys = [f"{pg_name(name)} {column_type(type_)} NOT NULL" for name, type_ in self.stored["keys"]]
        only = f"{pg_name(GLOBAL_KEY.name)} boolean NOT NULL DEFAULT true CHECK ({pg_name(GLOBAL_KEY.name)})"
        values = [f"{pg_name(name)} {column_type(type_)}" for name, type_, _ in self.stored["values"]]
        made = [*(keys or [only]), *values, "txid bigint NOT NULL", f"PRIMARY KEY ({listed(self.keys)})"]
        return f"CREATE TABLE {self.base} ({listed(made)})"

    def create_index(self) -> str:
        """Return the index to find all contributions of a txid, stored side by side; the index costs a commit next to nothing."""
        name = pg_name(f"{self.state}@txid")
        options = "pages_per_range = 16, autosummarize = on"
        return f"CREATE INDEX {name} ON {self.contribution} USING brin (txid) WITH ({options})"

    def create_ends(self, end: str) -> dict[str, str]:
        """Return the indexes, by name, to find sessions closed by a commit, by the column of the sessions' last times (R26)."""
        name = pg_name(f"{self.state}@ended")
        tables = (self.contribution, self.base)
        return {
            f"{table.partition('.')[0]}.{name}": f"CREATE INDEX {name} ON {table} ({pg_name(end)})" for table in tables
        }

    def create_versions(self) -> str:
        """Return the view of every version's contributions, as partials, and of the base, at position 0."""
        columns, marks = listed([*self.keys, *self.values]), self.removable
        base = f"SELECT {columns}{', false AS removed, true AS counted' * marks}, 0::bigint AS position, txid FROM {self.base}"
        contributions = f"SELECT {columns}{', removed, counted' * marks}, position, txid FROM {self.contribution}"
        return f"CREATE OR REPLACE VIEW report.{pg_name(versions_name(self.state))} AS {base} UNION ALL {contributions}"

    def copy_state(self) -> str:
        """Return the statement that copies the state's rows into the base, for contributions that begin later."""
        columns = listed([*self.keys, *self.values, "txid"])
        return f"INSERT INTO {self.base} ({columns}) SELECT {columns} FROM {self.generation.state(self.state)}"

    def now(self, keys: str | None = None) -> str:
        """Return the query of the present keys and values, of the keys in `keys`; absent keys are left out.

        `keys` is a table or a query of FROM; None: all keys, in one pass.
        """
        return self._folded(f"r.txid <> ALL ({self._replaced()})", keys)

    def counting(self, keys: str | None = None) -> str:
        """Return the query of the counting rows, maybe several per key, of the keys in `keys`."""
        own = [f"r.{key}" for key in self.keys]
        read = self._counting(f"r.txid <> ALL ({self._replaced()})", keys)
        return f"SELECT {listed([*own, *(f'r.{value}' for value in self.values)])} FROM {read}"

    def dated(self, now: str) -> str:
        """Return the query of all present keys and values, with the txid that last changed the key, or removed a part of it.

        `now` is a query of the keys and values.
        """
        keys, same = listed(self.keys), " AND ".join(f"n.{key} = c.{key}" for key in self.keys)
        later = f"SELECT b.txid, b.replaced_by FROM txbatch.batch b WHERE b.topology = {pg_text(self.topology)}"
        contributed = (
            f"SELECT {listed(f'r.{key}' for key in self.keys)}, GREATEST(r.txid, b.replaced_by) AS txid "
            f"FROM {self.contribution} r LEFT JOIN ({later}) b ON b.txid = r.txid"
        )
        changed = f"SELECT {keys}, txid FROM {self.base} UNION ALL {contributed}"
        newest = f"SELECT {keys}, max(txid) AS txid FROM ({changed}) u GROUP BY {keys}"
        return f"SELECT n.*, c.txid FROM ({now}) n JOIN ({newest}) c ON {same}"

    def redate(self, txid: int) -> str:
        """Return the statement that corrects the txid of rows at `txid` to the last change: no version between has rows here."""
        table, same = self.generation.state(self.state), " AND ".join(f"s.{key} = d.{key}" for key in self.keys)
        there = f"SELECT DISTINCT {listed(self.keys)} FROM ({self.counting()}) r"
        which = f"{same} AND s.txid = {txid:d} AND d.txid < s.txid"
        return f"UPDATE {table} s SET txid = d.txid FROM ({self.dated(there)}) d WHERE {which}"

    def at(self, txid: str, keys: str) -> str:
        """Return the query of keys and values when `txid`, an expression at or above the horizon, was the newest final txid."""
        return self._folded(f"r.txid <= {txid} AND r.txid <> ALL ({self._replaced(f'<= {txid}')})", keys)

    def of_txids(self, txids: Sequence[int]) -> str:
        """Return the query of keys and values of the given versions alone, whether the versions count or not."""
        return self._folded(f"r.txid = ANY (ARRAY[{listed(str(int(txid)) for txid in txids)}]::bigint[])", None)

    def _folded(self, counts: str, keys: str | None) -> str:
        own = [f"r.{key}" for key in self.keys]
        return f"SELECT {listed([*own, *self.merged()])} FROM {self._counting(counts, keys)} GROUP BY {listed(own)}"

    def _counting(self, counts: str, keys: str | None) -> str:
        """Return the rows `r` for which `counts` holds, as FROM and WHERE."""
        # Two plain tables of the same types, filtered outside: so a join searches the indexes of both for each key.
        columns, marks = listed([*self.keys, *self.values]), self.removable
        of_base = "0::bigint AS txid" + ", false AS removed, true AS counted, 0::bigint AS position" * marks
        contributed = f"SELECT {columns}, txid{', removed, counted, position' * marks} FROM {self.contribution}"
        rows = f"SELECT {columns}, {of_base} FROM {self.base} UNION ALL {contributed}"
        same = " AND ".join(f"r.{key} = k.{key}" for key in self.keys)
        own = [f"r.{key}" for key in self.keys]
        of_keys = "" if keys is None else f"(SELECT {listed(self.keys)} FROM {keys}) k JOIN "
        read = f"{of_keys}({rows}) r{f' ON {same}' if of_keys else ''} WHERE {counts}"
        if self.removable:  # `prev_txid` is a name that no value has: here the position of the last removal
            last = f"max(r.position) FILTER (WHERE r.removed) OVER (PARTITION BY {listed(own)}) AS prev_txid"
            read = f"(SELECT r.*, {last} FROM {read}) r WHERE r.counted AND r.position >= COALESCE(r.prev_txid, 0)"
        return read

    def merged(self) -> Sequence[str]:
        """Return the merged values of the rows `r` of a key."""
        values = self.stored["values"]
        named = [self.own.get(name) or merge_named(name) for *_, name in values]
        merges = folded_columns([merge for merge in named if merge], [f"r.{name}" for name in self.values])
        typed = zip(merges, values, self.values, strict=True)
        return [f"CAST({merge} AS {sql_type(type_)}) AS {name}" for merge, (_, type_, _), name in typed]

    def _replaced(self, when: str = "IS NOT NULL") -> str:
        """Return the SQL of the txids replaced by a restate."""
        return f"ARRAY(SELECT b.txid FROM txbatch.batch b WHERE b.topology = {pg_text(self.topology)} AND b.replaced_by {when})"
