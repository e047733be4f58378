"""The upsert of a batch into a state, made from the definition: R9 again, in SQL.

In each statement, `e` is a staged row, and `s` the state's row of the same key. Every name is quoted by `pg_name`; the only
values are txids, which are integers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from txbatch.core.aggregates.merger import grouped
from txbatch.core.state.state import StateKind
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.postgres.database.expressions import listed, pg_name
from txbatch.postgres.database.generations import CURRENT, Generation
from txbatch.postgres.state.staged_statements import StagedStatements
from txbatch.postgres.state.take_back import RESTORED_MARKS, take_back

# Left to itself the planner may join by scanning the whole state; so a commit costs by the batch alone.
_NO_SCAN = (
    "SET LOCAL enable_hashjoin = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_material = off; "
    "SET LOCAL enable_bitmapscan = off; "
)
# Of two ways, the first: one search of the state's index a row.
INDEX_PROBES = _NO_SCAN + "SET LOCAL enable_mergejoin = off; SET LOCAL enable_nestloop = on"
# The second: one search for all rows, which from PostgreSQL 17 on goes from key to key; they must fit into an array.
INDEX_WALK = _NO_SCAN + "SET LOCAL enable_mergejoin = on; SET LOCAL enable_nestloop = off"
INDEX_WALK_VERSION_MIN = 170000
INDEX_WALK_BYTES_MAX = 64 << 20


class StateStatements(StagedStatements):
    """The statements of a persistent aggregate: the upsert of staged rows, and the way back."""

    _prev_txid = "s.txid"

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
        """Return a value of the state's row `s`, to merge with the staged value; null if the batch removed the key."""
        return f"s.{value}"

    def upsert(self, txid: int, *, walk: bool = False, merged: str | None = None) -> str:
        """Return the upsert of every staged row, in key order (R9). A row that may not change is left alone and not counted.

        Run the upsert under `INDEX_WALK` if there is one key column, or under `INDEX_PROBES`. `merged` is a table of the
        staged rows after Python merged values with values of the state's rows, with the txid of the state's row that was read:
        a row that was changed since is left alone.
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
        return take_back(self.aggregate.state.name, values, txid, RESTORED_MARKS if self.aggregate.removable else ())

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
        state, staged = ([f"{row}.{value}" for value in self.values] for row in ("s", "e"))
        groups = grouped(self.aggregate.merges)
        return [sql for merge, at in groups for sql in merge.merge_sql(state[at], staged[at])]

    def _condition(self, txid: int) -> str:
        return "" if self.kind is StateKind.NON_TRANSACTIONAL else f" AND s.txid < {txid:d}"


class RemovableStatements(StateStatements):
    """The statements of a state with removable keys: rows have marks, and a row that does not count is a tombstone."""

    # After a tombstone there was no such key.
    _prev_txid = "CASE WHEN s.counted THEN s.txid END"

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
