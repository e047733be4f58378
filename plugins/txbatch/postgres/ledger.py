"""The ledger in PostgreSQL: its questions and small notes. `ledger.transactions` has the transactions that decide."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from sqlalchemy import Engine, RowMapping

from txbatch.core.batch.transaction import Assignment, Batch, Run
from txbatch.core.definition.changes import redefinitions
from txbatch.core.definition.job_rules import Jobs, no_jobs
from txbatch.core.definition.redefinition import Redefinition
from txbatch.core.errors import Unavailable
from txbatch.core.protocol.questions import Unfinished, unfinished
from txbatch.core.text import one_line
from txbatch.core.topology.topology import Topology
from txbatch.ledger.transactions import Transactions
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.corrections import definition_changes as changes
from txbatch.postgres.database.engine import check_server
from txbatch.postgres.database.on_connection import in_transaction
from txbatch.postgres.database.queries import query
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.rows import PostgresRows
from txbatch.postgres.schema import state_tables
from txbatch.postgres.tables import batches, definitions, event_time
from txbatch.postgres.upstream.upstream import PostgresUpstream

log = logging.getLogger(__name__)
CLI_LEASE_SECONDS = 120


class PostgresLedger(Transactions):
    """`core.protocol.ledger.Ledger` on a migrated database; states apart live in `warehouses`.

    Each method is one transaction of the ledger, by `Transactions` where the protocol decides.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        lease_seconds: int = CLI_LEASE_SECONDS,
        warehouses: Warehouses | None = None,
        jobs: Jobs = no_jobs,
    ) -> None:
        self.engine, self.warehouses, self.jobs = engine, warehouses or Warehouses(), jobs
        self.lease_seconds = lease_seconds

    @contextmanager
    def store(self, *, snapshot: bool = False) -> Iterator[PostgresRows]:
        """Context manager. Yield the rows of a transaction; a snapshot is REPEATABLE READ."""
        engine = self.engine.execution_options(isolation_level="REPEATABLE READ") if snapshot else self.engine
        with transaction(engine) as connection:
            yield PostgresRows(connection, self.warehouses, self.lease_seconds)

    @property
    def upstream(self) -> PostgresUpstream:
        """The ledger's view of states, for topologies that read them."""
        return PostgresUpstream(self.engine, self.jobs)

    def register(self, topology: Topology, job: str, zone: str | None = None) -> None:
        """Store the topology and create the tables of its states. `zone` is the zone of the schedule, if there is one.

        Raise SchemaMismatch if the topology has history and another definition, NameTaken if another topology has the state
        (R2, R23).
        """
        with transaction(self.engine) as connection:
            check_server(connection)
            known = definitions.known(connection, topology)
            connection.execute(query("insert_topology"), definitions.row(topology, job, known))
            batches.lock_topology(connection, topology.name)
            definitions.store(connection, topology, job)
            if zone is not None:
                connection.execute(query("note_zone"), {"topology": topology.name, "zone": zone})
            txids = batches.next_txids(connection, topology.name)
            for aggregate in topology.aggregates:
                new = state_tables.ensure(connection, topology.name, aggregate, txids)
                if aggregate.state.database is not None:
                    self.warehouses.ensure(connection, topology.name, aggregate, new=new)
            try:
                self.warehouses.clear(connection, topology.name)
            except Unavailable as error:  # what counts for nothing keeps no run up
                log.warning("%s", one_line(error))

    def check_definition(self, topology: Topology, job: str) -> None:
        """Raise SchemaMismatch if `register` would refuse the definition by the ledger's rows. Changes nothing, takes no lock."""
        with transaction(self.engine) as connection:
            definitions.check(connection, topology, job)

    def redefinitions(self, topology: Topology) -> list[Redefinition]:
        """Return the differences between the topology and its stored definition, with the effect of each; empty if there are
        none.
        """
        with transaction(self.engine) as connection:
            return redefinitions(topology, definitions.known(connection, topology))

    def check_change(self, topology: Topology, job: str) -> None:
        """Raise the error that `change` would raise now; change nothing."""
        with transaction(self.engine) as connection:
            changes.check(connection, topology, job, definitions.known(connection, topology))

    def change(self, topology: Topology, job: str, why: str, by: str | None = None) -> list[Redefinition]:
        """Apply a changed definition to the counted states, all of the definition or nothing; return the changes.

        Raise SchemaMismatch if a part needs a rebuild, ChangeTooEarly if a batch is open.
        """
        with transaction(self.engine) as connection:
            name = definitions.name_of(connection, topology)
            batches.lock_topology(connection, name)
            self.warehouses.clear(connection, name)
            return changes.change(connection, topology, job, why, by)

    last_txid = in_transaction(batches.last_txid)
    closed_to = in_transaction(event_time.closed_to)
    newest_attempt = in_transaction(batches.newest_attempt)

    def note_wait(self, batch: Batch, run: Run) -> None:
        """Show to others that a run without a batch waits for the end of the given batch."""
        self._ask("note_wait", **batches.batch_ids(batch), run=run.name)

    def renew_lease(self, assignment: Assignment) -> bool:
        """Renew the lease of the attempt's run. Return False if the attempt is no longer the newest attempt of an open batch."""
        return bool(self._ask("renew_lease", **batches.attempt_ids(assignment), token=assignment.token))

    def renew_waiting_lease(self, batch: Batch, run: Run) -> bool:
        """Renew the lease of a waiting run. Return False if the run no longer looks after the open batch (R6)."""
        return bool(self._ask("renew_waiting_lease", **batches.batch_ids(batch), run=run.name))

    def renew_leases_of_run(self, topology: str, run: str, of_call: str) -> None:
        """Renew the leases of all open batches of a run, and of runs named after the run, `of_call` and a number (R6)."""
        self._ask("renew_leases_of_run", topology=topology, run=run, parts=f"{run}{of_call}")

    def fail_attempt(self, assignment: Assignment, error: str) -> None:
        """Record the error of a failed attempt."""
        self._ask("fail_attempt", **batches.attempt_ids(assignment), error=one_line(error))

    def committed_by(self, topology: str, run: Run) -> Batch | None:
        """Return the last batch that a run committed, its own or an adopted batch."""
        return next(map(batches.batch_from, self._ask("committed_by", topology=topology, run=run.name)), None)

    def committed_by_each(self, topology: str, prefix: str) -> list[int]:
        """Return, in order, the txids committed by runs named `prefix` and a number: their own batches and adopted batches."""
        return [row["txid"] for row in self._ask("committed_by_each", topology=topology, prefix=prefix)]

    def oldest_unfinished(self, topology: str, prefix: str, above: int) -> Unfinished | None:
        """Return the lowest unfinished txid above `above`, of a run with `prefix` in front of the name; None without one."""
        found = self._ask("oldest_unfinished", topology=topology, prefix=prefix, above=above)
        return unfinished(batches.batch_from(found[0])) if found else None

    def turn_of(self, topology: str, txid: int) -> int | None:
        """Return the lowest txid below the given txid that is not final: the given txid waits for the end of that txid (R6)."""
        (found,) = self._ask("neighbours", topology=topology, txid=txid)
        return cast("int | None", found["open_before"])

    def _ask(self, name: str, **given: Any) -> Sequence[RowMapping]:
        """Run a statement in a transaction of its own, and return the rows."""
        with transaction(self.engine) as connection:
            found = connection.execute(query(name), {"lease_seconds": self.lease_seconds, **given})
            return found.mappings().all() if found.returns_rows else ()
