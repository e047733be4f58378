"""What a state's functions on its past read: the versions that `report` shows of it, and which of them a restate replaced."""

from __future__ import annotations

from dataclasses import dataclass

from txbatch.core.state.state import versions_name
from txbatch.core.topology.persistent_aggregate import GLOBAL_KEY, PersistentAggregate
from txbatch.postgres.database.expressions import pg_name, pg_text

REPLACED = "IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Versions:
    """The names of one state's versions. `when` is which txids count as replaced: those whose `replaced_by` is so."""

    aggregate: PersistentAggregate

    @property
    def keys(self) -> list[str]:
        """The key columns; of a global value, the one that is always true."""
        return [pg_name(key.name) for key in self.aggregate.keys or (GLOBAL_KEY,)]

    @property
    def view(self) -> str:
        """The view that has them, as partials."""
        return f"report.{pg_name(versions_name(self.aggregate.state.name))}"

    @property
    def topology(self) -> str:
        """The topology's name, as a text of SQL."""
        return pg_text(self.aggregate.topology)

    def replaced(self, when: str = REPLACED) -> str:
        """Return the query of the txids that a restate has replaced."""
        return f"SELECT b.txid FROM report.batches b WHERE b.topology = {self.topology} AND b.replaced_by {when}"
