"""The versions read by the functions on a state's past: the view in `report`, and the txids replaced by a restate."""

from __future__ import annotations

from dataclasses import dataclass

from txbatch.core.state.state import versions_name
from txbatch.core.topology.persistent_aggregate import GLOBAL_KEY, PersistentAggregate
from txbatch.postgres.database.expressions import pg_name, pg_text

REPLACED = "IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Versions:
    """The names of one state's versions. `when` is the condition on `replaced_by` under which a txid counts as replaced."""

    aggregate: PersistentAggregate

    @property
    def keys(self) -> list[str]:
        """The key columns; for a global value, the column that is always true."""
        return [pg_name(key.name) for key in self.aggregate.keys or (GLOBAL_KEY,)]

    @property
    def view(self) -> str:
        """The view of the versions, as partials."""
        return f"report.{pg_name(versions_name(self.aggregate.state.name))}"

    @property
    def topology(self) -> str:
        """The topology's name, as a text of SQL."""
        return pg_text(self.aggregate.topology)

    def replaced(self, when: str = REPLACED) -> str:
        """Return the query of the txids replaced by a restate."""
        return f"SELECT b.txid FROM report.batches b WHERE b.topology = {self.topology} AND b.replaced_by {when}"
