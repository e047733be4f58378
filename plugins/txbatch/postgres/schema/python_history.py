"""The past of a state whose values are merged by the job's Python: folded here, as PostgreSQL has no functions on it (R19)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from sqlalchemy import Connection

from txbatch.core.state.state import changes_columns, versions_name
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.postgres.database.expressions import listed, pg_name
from txbatch.postgres.database.generations import CURRENT, Generation
from txbatch.postgres.database.queries import query
from txbatch.postgres.schema import report_views
from txbatch.postgres.schema.history import StateHistory
from txbatch.postgres.schema.one_pass import Moment
from txbatch.postgres.schema.versions import REPLACED
from txbatch.postgres.state import python_merge
from txbatch.postgres.state.statements import statements_of


@dataclass(frozen=True, slots=True)
class PythonHistory:
    """The past of a state, as queries over temporary tables of the transaction.

    `columns` are the columns of the state's report, in order.
    """

    connection: Connection
    aggregate: PersistentAggregate
    columns: Sequence[str]
    generation: Generation = CURRENT

    @classmethod
    def of(cls, connection: Connection, aggregate: PersistentAggregate, generation: Generation = CURRENT) -> Self:
        """Return the past of a state in a generation, with the columns of the generation's report."""
        report = {"name": f"{generation.reports}.{pg_name(aggregate.state.name)}"}
        columns = [row.name for row in connection.execute(query("columns_of"), report)]
        return cls(connection, aggregate, columns, generation)

    def as_of(self, txid: int, keys: str | None = None) -> str:
        """Return the query of the report when a txid was the newest final txid, of the keys in the query `keys`."""
        return self._shown(self._amounts(_at(txid), keys, f"as_of_{txid:d}"))

    def corrected(self, txid: int, keys: str | None = None) -> str:
        """Return the query of the total of all positions up to a txid, in the current versions."""
        return self._shown(self._amounts(Moment(f"v.position <= {txid:d}", REPLACED), keys, f"corrected_{txid:d}"))

    def changes(self, low: int, high: int) -> str:
        """Return the query of the keys changed after a txid, up to another txid, with both values."""
        touched = self._past.touched(str(low), str(high))
        before, after = (self._amounts(_at(txid), touched, f"as_of_{txid:d}") for txid in (low, high))
        keys, values = [key.name for key in self.aggregate.keys], list(self.aggregate.aggregates)
        pairs = [f"{side}.{pg_name(value)}" for value in values for side in ("b", "a")]
        change = "CASE WHEN b.txid IS NULL THEN 'added' WHEN a.txid IS NULL THEN 'removed' ELSE 'changed' END"
        made = [*(f"d.{pg_name(key)}" for key in keys), change, *pairs, "d.txid"]
        named = zip(made, changes_columns(keys, values), strict=True)
        same = " AND ".join(f"{{0}}.{pg_name(key)} = d.{pg_name(key)}" for key in keys) or "true"
        joined = " ".join(
            f"LEFT JOIN ({self._shown(rows)}) {side} ON {same.format(side)}"
            for side, rows in (("b", before), ("a", after))
        )
        differ = f"(b.txid IS NULL, {listed(pairs[::2])}) IS DISTINCT FROM (a.txid IS NULL, {listed(pairs[1::2])})"
        return (
            f"SELECT {listed(f'{sql} AS {pg_name(name)}' for sql, name in named)} "
            f"FROM ({after}) d {joined} WHERE {differ}"
        )

    @property
    def _past(self) -> StateHistory:
        return StateHistory(self.aggregate, {})

    def _amounts(self, moment: Moment, keys: str | None, suffix: str) -> str:
        """Return the query of all keys at a moment; `stands` is false for keys without a standing version."""
        view = pg_name(versions_name(self.aggregate.state.name))
        versions = self._past.versions(moment, keys).replace(f"report.{view}", f"{self.generation.reports}.{view}")
        return python_merge.amounts(self.connection, statements_of(self.aggregate, "past"), versions, suffix)

    def _shown(self, amounts: str) -> str:
        return report_views.shown_query(self.aggregate, self.columns, f"SELECT * FROM ({amounts}) m WHERE m.stands")


def _at(txid: int) -> Moment:
    return Moment(f"v.txid <= {txid:d}", f"<= {txid:d}")
