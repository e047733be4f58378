"""The SQL by which a restate changes a state: fold the keys again from the counting contributions (R17).

`core.state.update` defines the same in Python. Made for a state in the ledger's own database, after the old version has been
replaced and the new version has contributed. Every name is quoted by `pg_name`; the only values are txids, which are
integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txbatch.core.state.state import StateKind
from txbatch.postgres.database.expressions import listed
from txbatch.postgres.state.folds import Folds
from txbatch.postgres.state.statements import INDEX_PROBES, StateStatements

CHANGED, FOLDED = "pg_temp.changed", "pg_temp.folded"
# The contributions of a txid stand together: an index of few pages says where.
BY_TXID = "SET LOCAL enable_bitmapscan = on; SET LOCAL enable_seqscan = on; SET LOCAL jit = off"


@dataclass(frozen=True, slots=True)
class Refold:
    """The statements that write the fold of some keys into their state: the keys of two versions of a position."""

    statements: StateStatements
    txid: int
    replaced: int

    @property
    def keys(self) -> str:
        """The key columns."""
        return listed(self.statements.keys)

    def find(self) -> Sequence[str]:
        """Return the statements that find the keys of both versions."""
        both = f"c.txid IN ({self.replaced:d}, {self.txid:d})"
        # In key order, as the indexes that are searched for them are.
        found = f"SELECT DISTINCT {self.keys} FROM {self.statements.contribution} c WHERE {both} ORDER BY {self.keys}"
        return (
            BY_TXID,
            f"CREATE TEMP TABLE changed ON COMMIT DROP AS {found}",
            f"ANALYZE {CHANGED}",
            INDEX_PROBES,
        )

    @property
    def folds(self) -> Folds:
        """The folds of the state."""
        return Folds.of(self.statements.aggregate, self.statements.generation)

    def store_folded(self, folded: str) -> str:
        """Return the statement that stores the rows of a query of the folds in a temporary table."""
        return f"CREATE TEMP TABLE folded ON COMMIT DROP AS {folded}"

    def ahead(self, keys: str = CHANGED) -> str:
        """Return the statement to find a key whose row is at the batch's txid or a later txid."""
        columns = listed(["s.txid", *(f"s.{key}::text" for key in self.statements.keys)])
        joined = f"{self.statements.state} s JOIN {keys} e ON {self._same}"
        return f"SELECT {columns} FROM {joined} WHERE s.txid >= {self.txid:d} LIMIT 1"

    @property
    def gone(self) -> str:
        """The keys without a version."""
        return f"(SELECT {self.keys} FROM {CHANGED} EXCEPT SELECT {self.keys} FROM {FOLDED})"

    def vanish(self) -> str:
        """Return the statement that deletes the keys without a version."""
        return f"DELETE FROM {self.statements.state} s USING {self.gone} e WHERE {self._same}"

    def put(self) -> str:
        """Return the statement that writes folded keys, in key order. A row that may not change is left alone and not counted."""
        may = "" if self.statements.kind is StateKind.NON_TRANSACTIONAL else f" AND s.txid < {self.txid:d}"
        columns = [*self.statements.keys, *self.statements.values]
        inserted = [*(f"e.{name}" for name in columns), *self._marks.values(), f"{self.txid:d}"]
        return (
            f"MERGE INTO {self.statements.state} s "
            f"USING (SELECT {listed(columns)} FROM {FOLDED} ORDER BY {self.keys} OFFSET 0) e ON {self._same} "
            f"WHEN MATCHED{may} THEN UPDATE SET {listed(self._assigned())} "
            f"WHEN NOT MATCHED THEN INSERT ({listed([*columns, *self._marks, 'txid'])}) VALUES ({listed(inserted)})"
        )

    def forget(self) -> str:
        """Return the statement that drops the temporary tables, for the next state."""
        return f"DROP TABLE {CHANGED}, {FOLDED}"

    @property
    def _same(self) -> str:
        return " AND ".join(f"s.{key} = e.{key}" for key in self.statements.keys)

    @property
    def _marks(self) -> dict[str, str]:
        return {"removed": "false", "counted": "true"} if self.statements.marks else {}

    def _assigned(self) -> list[str]:
        values = self.statements.values
        assigned = [f"{value} = e.{value}" for value in values]
        if self.statements.kind is StateKind.OPAQUE:
            kept = zip(self.statements.previous, values, strict=True)
            assigned += [*(f"{previous} = s.{value}" for previous, value in kept), "prev_txid = s.txid"]
        return [*assigned, *(f"{name} = {value}" for name, value in self._marks.items()), f"txid = {self.txid:d}"]
