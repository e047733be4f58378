"""The SQL of a state's contributions: what they amount to now, and at an earlier txid (R17, R19, R22). `core.state.fold`
says the same.

Made from what the ledger keeps of a state, so that no job is needed. Every name is pg_name.
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
    """The folds of one state. `stored` is its definition's columns, as `txbatch.state` keeps them."""

    topology: str
    state: str
    stored: Mapping[str, Any]
    own: Mapping[str, RowMerge] = field(default_factory=dict)
    generation: Generation = CURRENT

    @classmethod
    def of(cls, aggregate: PersistentAggregate, generation: Generation = CURRENT) -> Folds:
        """Return those of a state as it is defined."""
        own = {str(column.partial.merge): column.partial.merge for column in aggregate.columns}
        return cls(aggregate.topology, aggregate.state.name, columns(aggregate), own, generation)

    @property
    def keys(self) -> list[str]:
        """The key columns; of a global value, the one that is always true."""
        return [pg_name(name) for name, _ in self.stored["keys"]] or [pg_name(GLOBAL_KEY.name)]

    @property
    def values(self) -> list[str]:
        """The value columns, which hold partials."""
        return [pg_name(name) for name, *_ in self.stored["values"]]

    @property
    def removable(self) -> bool:
        """True if contributions may remove keys."""
        return "remove" in self.stored

    @property
    def prunes(self) -> bool:
        """True if rows go with the contributions that retention folds."""
        return "prune" in self.stored

    @property
    def contribution(self) -> str:
        """The table of the contributions."""
        return self.generation.contribution(self.state)

    @property
    def base(self) -> str:
        """The table of what retention folded: keys, values, and the txid that changed them last."""
        return self.generation.base(self.state)

    def create_base(self) -> str:
        """The table of what retention folds."""
        keys = [f"{pg_name(name)} {column_type(type_)} NOT NULL" for name, type_ in self.stored["keys"]]
        only = f"{pg_name(GLOBAL_KEY.name)} boolean NOT NULL DEFAULT true CHECK ({pg_name(GLOBAL_KEY.name)})"
        values = [f"{pg_name(name)} {column_type(type_)}" for name, type_, _ in self.stored["values"]]
        made = [*(keys or [only]), *values, "txid bigint NOT NULL", f"PRIMARY KEY ({listed(self.keys)})"]
        return f"CREATE TABLE {self.base} ({listed(made)})"

    def create_index(self) -> str:
        """What finds all contributions of a txid, which stand together; next to nothing for a commit."""
        name = pg_name(f"{self.state}@txid")
        options = "pages_per_range = 16, autosummarize = on"
        return f"CREATE INDEX {name} ON {self.contribution} USING brin (txid) WITH ({options})"

    def create_ends(self, end: str) -> dict[str, str]:
        """What finds the sessions that a commit closes, by the column of their last times: by the name of each index (R26)."""
        name = pg_name(f"{self.state}@ended")
        tables = (self.contribution, self.base)
        return {
            f"{table.partition('.')[0]}.{name}": f"CREATE INDEX {name} ON {table} ({pg_name(end)})" for table in tables
        }

    def create_versions(self) -> str:
        """The view of what every version contributed, as partials, and of what was folded of them, which is at position 0."""
        columns, marks = listed([*self.keys, *self.values]), self.removable
        base = f"SELECT {columns}{', false AS removed, true AS counted' * marks}, 0::bigint AS position, txid FROM {self.base}"
        contributions = f"SELECT {columns}{', removed, counted' * marks}, position, txid FROM {self.contribution}"
        return f"CREATE OR REPLACE VIEW report.{pg_name(versions_name(self.state))} AS {base} UNION ALL {contributions}"

    def copy_state(self) -> str:
        """What makes the rows of the state the base of contributions that begin after them."""
        columns = listed([*self.keys, *self.values, "txid"])
        return f"INSERT INTO {self.base} ({columns}) SELECT {columns} FROM {self.generation.state(self.state)}"

    def now(self, keys: str | None = None) -> str:
        """Keys and values as they count now, of the keys that `keys` has, a table or a query of FROM; absent ones are absent.

        None: of all keys, in one pass.
        """
        return self._folded(f"r.txid <> ALL ({self._replaced()})", keys)

    def counting(self, keys: str | None = None) -> str:
        """The rows that count now, several of one key, of the keys that `keys` has."""
        own = [f"r.{key}" for key in self.keys]
        read = self._counting(f"r.txid <> ALL ({self._replaced()})", keys)
        return f"SELECT {listed([*own, *(f'r.{value}' for value in self.values)])} FROM {read}"

    def dated(self, now: str) -> str:
        """All keys and values as they count now, with the txid that changed each last, if only by taking something away.

        `now` is a query of those keys and values.
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
        """Give the rows that have this txid the one that changed them last: of versions that lay between, none is there."""
        table, same = self.generation.state(self.state), " AND ".join(f"s.{key} = d.{key}" for key in self.keys)
        there = f"SELECT DISTINCT {listed(self.keys)} FROM ({self.counting()}) r"
        which = f"{same} AND s.txid = {txid:d} AND d.txid < s.txid"
        return f"UPDATE {table} s SET txid = d.txid FROM ({self.dated(there)}) d WHERE {which}"

    def at(self, txid: str, keys: str) -> str:
        """The same as it counted when `txid`, an expression, was the newest final one, which is not below the horizon."""
        return self._folded(f"r.txid <= {txid} AND r.txid <> ALL ({self._replaced(f'<= {txid}')})", keys)

    def of_txids(self, txids: Sequence[int]) -> str:
        """Keys and values as these versions alone come to, whether they count or not."""
        return self._folded(f"r.txid = ANY (ARRAY[{listed(str(int(txid)) for txid in txids)}]::bigint[])", None)

    def _folded(self, counts: str, keys: str | None) -> str:
        own = [f"r.{key}" for key in self.keys]
        return f"SELECT {listed([*own, *self.merged()])} FROM {self._counting(counts, keys)} GROUP BY {listed(own)}"

    def _counting(self, counts: str, keys: str | None) -> str:
        """The rows `r` for which `counts` holds, with what limits them."""
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
        """The values of the rows `r` of a key as one."""
        values = self.stored["values"]
        named = [self.own.get(name) or merge_named(name) for *_, name in values]
        merges = folded_columns([merge for merge in named if merge], [f"r.{name}" for name in self.values])
        typed = zip(merges, values, self.values, strict=True)
        return [f"CAST({merge} AS {sql_type(type_)}) AS {name}" for merge, (_, type_, _), name in typed]

    def _replaced(self, when: str = "IS NOT NULL") -> str:
        """The txids that a restate has replaced."""
        return f"ARRAY(SELECT b.txid FROM txbatch.batch b WHERE b.topology = {pg_text(self.topology)} AND b.replaced_by {when})"
