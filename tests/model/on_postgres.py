"""A topology of the testing kit on a PostgreSQL: what runs and dies is the same, what is stored is in tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Engine, text
from support import record_batch, staged

from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.transaction import Assignment, Batch
from txbatch.core.topology.topology import Topology
from txbatch.memory.staging import MemoryFolder, MemoryStaging
from txbatch.memory.stored import Partials
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.database.expressions import pg_name
from txbatch.postgres.ledger import PostgresLedger
from txbatch.testing import LocalTopology, submit_topology


def on_postgres(engine: Engine, databases: Callable[[str], str], topology: Topology) -> LocalTopology:
    """`submit_topology` on the ledger of an engine; `databases` has the URLs of others, for states apart."""
    fed = submit_topology(topology).topology
    return _OnPostgres(fed, PostgresLedger(engine, warehouses=Warehouses(databases)), _Staging(fed))


@dataclass(frozen=True, slots=True)
class _OnPostgres(LocalTopology):
    def rows(self, state: str) -> list[dict[str, Any]]:
        """What the report of the state shows."""
        aggregate = next(each for each in self.topology.aggregates if each.state.name == state)
        ledger, database = self._ledger, aggregate.state.database
        engine = ledger.engine if database is None else ledger.warehouses.engine(database)
        with engine.connect() as connection:
            return [dict(row) for row in connection.execute(text(f"SELECT * FROM report.{pg_name(state)}")).mappings()]

    def batches(self) -> list[Batch]:
        """In the order of their txids."""
        name = self.topology.name
        with self._ledger.engine.connect() as connection:
            found = connection.execute(
                text("SELECT txid FROM txbatch.batch WHERE topology = :t ORDER BY 1"), {"t": name}
            )
            txids = list(found.scalars())
        return [self._ledger.batch(name, txid) for txid in txids]


class _Staging(MemoryStaging):
    """Stages what Spark would: record batches, whose totals are in the manifest."""

    def __init__(self, topology: Topology) -> None:
        super().__init__()
        self.topology = topology

    def attempt(self, assignment: Assignment) -> MemoryFolder:
        folder = super().attempt(assignment)
        return _Folder(self, folder.at)


class _Folder(MemoryFolder):
    def write_result(self, manifest: Manifest, partials: Partials) -> None:
        """In the form that PostgreSQL loads."""
        aggregates = {each.state.name: each for each in self.staging.topology.aggregates}
        states = {
            name: replace(each, totals=staged(aggregates[name], partials[name]).totals)
            for name, each in manifest.states.items()
        }
        loaded = {name: [record_batch(aggregates[name], rows)] for name, rows in partials.items()}
        super().write_result(replace(manifest, states=states), loaded)
