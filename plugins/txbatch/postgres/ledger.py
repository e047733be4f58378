"""The ledger in PostgreSQL: read rows under locks, ask `core.protocol.decisions`, write the decision.

Locks are always taken in the order topology, batch, state keys (R1).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from sqlalchemy import Connection, Engine, RowMapping

from txbatch import failpoints
from txbatch.core.batch.manifest import Manifest, check_manifest, check_same_records
from txbatch.core.batch.transaction import (
    STORED_BYTES_MAX,
    Assignment,
    Batch,
    Interval,
    Metadata,
    Run,
    TransactionAttempt,
    canonical_json,
)
from txbatch.core.definition.changes import redefinitions
from txbatch.core.definition.digest import definition_digest
from txbatch.core.definition.job_rules import Jobs, no_jobs
from txbatch.core.definition.redefinition import Redefinition
from txbatch.core.errors import LeaseHeld, Unavailable
from txbatch.core.protocol import decisions
from txbatch.core.protocol.fence import check_attempt, check_fence
from txbatch.core.protocol.ledger import Committed, Head, PositionVersion, RunPlan, Unfinished
from txbatch.core.text import one_line
from txbatch.core.topology.topology import Topology
from txbatch.postgres import aborts
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.commit import commit_batch
from txbatch.postgres.corrections import definition_changes as changes
from txbatch.postgres.database.engine import check_server, transaction
from txbatch.postgres.database.queries import query
from txbatch.postgres.plans import check_interval
from txbatch.postgres.plans import store as store_plans
from txbatch.postgres.schema import state_tables
from txbatch.postgres.tables import batch_lock, batches, definitions, event_time, record_numbers
from txbatch.postgres.upstream.upstream import PostgresUpstream

log = logging.getLogger(__name__)
CLI_LEASE_SECONDS = 120


class PostgresLedger:
    """`core.protocol.ledger.Ledger` on a migrated database. Each method is one transaction; states apart live in `warehouses`."""

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

    @property
    def upstream(self) -> PostgresUpstream:
        """The ledger's view of states, for topologies that read them."""
        return PostgresUpstream(self.engine, self.jobs)

    def register(self, topology: Topology, job: str) -> None:
        """Store the topology and create the tables of its states.

        Raise SchemaMismatch if the topology has history and another definition, or if another topology has the state (R2,
        R23).
        """
        with transaction(self.engine) as connection:
            check_server(connection)
            known = definitions.known(connection, topology)
            connection.execute(query("insert_topology"), definitions.row(topology, job, known))
            batches.lock_topology(connection, topology.name)
            definitions.store(connection, topology, job)
            txids = _next_txids(connection, topology.name)
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

    def check_interval(self, topology: str, interval: Interval) -> None:
        """Raise IntervalNotOver if the interval is not over by the database's clock, IntervalTaken if a batch has a part of
        it.
        """
        with transaction(self.engine) as connection:
            check_interval(connection, topology, interval)

    def head(self, topology: str, run: Run) -> Head:
        """Return the topology's head for a run, in one snapshot and without a lock."""
        return self.heads(topology, [run])[0]

    def heads(self, topology: str, runs: Sequence[Run]) -> list[Head]:
        """Return the topology's head for each of several runs, in one snapshot."""
        with transaction(self.engine.execution_options(isolation_level="REPEATABLE READ")) as connection:
            return batches.heads(connection, topology, runs)

    def last_txid(self, topology: str) -> int:
        """Return the highest txid ever used; 0 before the first."""
        with transaction(self.engine) as connection:
            return batches.last_txid(connection, topology)

    def closed_to(self, topology: str) -> Mapping[str, int]:
        """Return, by state, the time up to which windows are closed (R26)."""
        with transaction(self.engine) as connection:
            return event_time.closed_to(connection, topology)

    def plan(self, head: Head, run: Run, metadata: Metadata, topology: Topology | None = None) -> Batch | None:
        """Store the next txid with its metadata (R1). Return None if the head has moved since the caller read the head."""
        found = self.plan_many(head, [(run, metadata)], topology)
        return None if found is None else found[0]

    def plan_many(self, head: Head, plans: Sequence[RunPlan], topology: Topology | None = None) -> list[Batch] | None:
        """Store the next txids, each planned after the txid before (R1). Return None if the head has moved since the caller
        read it.

        Storing ends at the first refused plan; if the very first plan is refused, the error is raised.
        """
        failpoints.hit("initialize.before_lock")
        with transaction(self.engine) as connection:
            stored = batches.lock_topology(connection, head.topology)
            if decisions.moved(head, *batches.heads(connection, head.topology, [run for run, _ in plans])):
                return None
            if topology is not None and definition_digest(topology) != stored["digest"]:
                definitions.store(connection, topology, stored["job"])  # another may have been registered meanwhile
            if topology is not None and topology.watermarks:
                plans = event_time.pin(connection, topology, plans)
            if topology is not None and topology.numbered:
                plans = record_numbers.pin(connection, topology.name, topology.numbered, plans)
            last = store_plans(connection, head, plans, self.lease_seconds)
            between = {"topology": head.topology, "first": head.next_txid, "last": last}
            return list(batches.batches(connection, "batches_between", **between))

    def adopt(self, batch: Batch, run: Run) -> Batch | None:
        """Take over an abandoned batch, or abort the batch if it has an interval or other parameters (R6).

        Return None if the batch was aborted, is final, is looked after again, or is being committed: then the caller reads
        the head again. If a warehouse has rows of a batch and the batch cannot be aborted, the batch is taken over as well.
        """
        ids: dict[str, Any] = {"topology": batch.topology, "txid": batch.txid}
        with suppress(LeaseHeld), transaction(self.engine) as connection:
            batches.lock_topology(connection, batch.topology)
            now = batches.lock_batch(connection, **ids)
            if not decisions.unattended(now, run):
                return None
            if not decisions.may_adopt(now, run) and aborts.abandon(connection, self.warehouses, now, run):
                return None
            connection.execute(query("take_lease"), {**ids, **self._lease(run)})
            connection.execute(query("forget_waits"), {"topology": batch.topology, "runs": [run.name]})
            return batches.batch(connection, **ids)
        return None

    def note_wait(self, batch: Batch, run: Run) -> None:
        """Show to others that a run without a batch waits for the end of the given batch."""
        with transaction(self.engine) as connection:
            ids = {"topology": batch.topology, "txid": batch.txid, "run": run.name}
            connection.execute(query("note_wait"), ids)

    def start_attempt(self, batch: Batch, run: Run, code: str) -> Assignment:
        """Issue the next attempt (R5). Raise LeaseHeld if another live run works on the batch, TerminalError if the batch is
        final.
        """
        ids: dict[str, Any] = {"topology": batch.topology, "txid": batch.txid}
        failpoints.hit("attempt.before_lock")
        with transaction(self.engine) as connection:
            now = batches.lock_batch(connection, **ids, run=run)
            check_attempt(now, run)
            connection.execute(query("supersede_attempts"), ids)
            raised = batches.one(connection, "raise_fence", **ids, **self._lease(run))
            attempt = TransactionAttempt(batch.txid, raised["fence"])
            of = now.position, now.planned_at
            assignment = Assignment(batch.topology, attempt, raised["token"], now.metadata, code, *of)
            row = {"token": assignment.token, "run": run.name, "code": code}
            connection.execute(query("insert_attempt"), {**_ids(assignment), **row})
            return assignment

    def renew_lease(self, assignment: Assignment) -> bool:
        """Renew the lease of the attempt's run. Return False if the attempt is no longer the newest attempt of an open batch."""
        with transaction(self.engine) as connection:
            parameters = {**_ids(assignment), "token": assignment.token, "lease_seconds": self.lease_seconds}
            return connection.execute(query("renew_lease"), parameters).first() is not None

    def renew_waiting_lease(self, batch: Batch, run: Run) -> bool:
        """Renew the lease of a waiting run. Return False if the run no longer looks after the open batch (R6)."""
        with transaction(self.engine) as connection:
            ids = {"topology": batch.topology, "txid": batch.txid}
            return connection.execute(query("renew_waiting_lease"), {**ids, **self._lease(run)}).first() is not None

    def fail_attempt(self, assignment: Assignment, error: str) -> None:
        """Record the error of a failed attempt."""
        with transaction(self.engine) as connection:
            connection.execute(query("fail_attempt"), {**_ids(assignment), "error": one_line(error)})

    def record_manifests(self, recorded: Sequence[tuple[Assignment, Manifest]]) -> list[Batch]:
        """Store the manifests of attempts, by ascending txids: all of them, or none.

        Raise the error of the first refused attempt: StaleAttempt (R5), Incomplete (R7).
        """
        with transaction(self.engine) as connection:
            return [self._recorded(connection, assignment, manifest) for assignment, manifest in recorded]

    def _recorded(self, connection: Connection, assignment: Assignment, manifest: Manifest) -> Batch:
        now = batches.lock_batch(connection, assignment.topology, assignment.attempt.txid)
        check_fence(now, assignment.attempt, assignment.token)
        check_manifest(manifest, assignment)
        earlier = _earlier_manifests(connection, assignment)
        if earlier or manifest.unreadable:
            source = batches.one(connection, "topology", topology=assignment.topology)["source"]
            missing = now.restate is not None and now.restate.accept_missing
            check_same_records(manifest, earlier, source, accept_missing=missing)
        row = {**_ids(assignment), "manifest": canonical_json(manifest.to_json(), STORED_BYTES_MAX)}
        connection.execute(query("attempt_emitted"), row)
        lease = {"lease_seconds": self.lease_seconds}
        return batches.batch_from(batches.one(connection, "batch_emitted", **_ids(assignment), **lease))

    def batch(self, topology: str, txid: int) -> Batch:
        """Return one batch. Raise UnknownName if the ledger has no such batch."""
        with transaction(self.engine) as connection:
            return batches.batch(connection, topology, txid)

    def version(self, topology: str, txid: int) -> PositionVersion:
        """Return the current version of a txid's position. Raise UnknownName if the txid is unknown."""
        with transaction(self.engine.execution_options(isolation_level="REPEATABLE READ")) as connection:
            return batches.version(connection, topology, txid)

    def newest_attempt(self, batch: Batch) -> tuple[Assignment, Manifest | None]:
        """Return the newest attempt of a batch, and the attempt's manifest or None."""
        with transaction(self.engine) as connection:
            return batches.newest_attempt(connection, batch)

    def committed_by(self, topology: str, run: Run) -> Batch | None:
        """Return the last batch that a run committed, its own or an adopted batch."""
        with transaction(self.engine) as connection:
            found = batches.batches(connection, "committed_by", topology=topology, run=run.name)
            return found[0] if found else None

    def committed_by_each(self, topology: str, prefix: str) -> list[int]:
        """Return, in order, the txids committed by runs named `prefix` and a number: their own batches and adopted batches."""
        with transaction(self.engine) as connection:
            given = {"topology": topology, "prefix": prefix}
            return list(connection.execute(query("committed_by_each"), given).scalars())

    def oldest_unfinished(self, topology: str, prefix: str, above: int) -> Unfinished | None:
        """Return the lowest txid above `above` that is not aborted and had no success, of a run whose name begins with
        `prefix`.

        Return None if there is no such txid.
        """
        with transaction(self.engine) as connection:
            given = {"topology": topology, "prefix": prefix, "above": above}
            found = connection.execute(query("oldest_unfinished"), given).mappings().first()
            if found is None:
                return None
            batch = batches.batch(connection, topology, found["txid"])
        return Unfinished(batch.txid, _run_of(batch, found))

    def turn_of(self, topology: str, txid: int) -> int | None:
        """Return the lowest txid below the given txid that is not final: the given txid waits for the end of that txid (R6)."""
        with transaction(self.engine) as connection:
            return cast(
                "int | None", batches.one(connection, "neighbours", topology=topology, txid=txid)["open_before"]
            )

    def commit(
        self, topology: Topology, batch: Batch, partials: Mapping[str, Any], run: Run | None = None
    ) -> Committed:
        """Apply the partials of the attempt that `batch` names, in one transaction (R10).

        `partials` maps each state to Arrow record batches. `run` may end a stalled older commit of its own. Raise
        StaleAttempt, NotItsTurn, BrokenChain, Incomplete, StateAhead; OutcomeUnknown if the answer to COMMIT is lost.
        """
        failpoints.hit("commit.before_lock")
        with transaction(self.engine) as connection:
            batch_lock.begin_commit(connection, batch)
            now = batches.lock_batch(connection, batch.topology, batch.txid, run)
            if run is not None and now.lease_run != run.name and not now.status.final:
                ids = {"topology": now.topology, "txid": now.txid}
                connection.execute(query("take_lease"), {**ids, **self._lease(run)})
            return commit_batch(connection, self.warehouses, topology, now, batch, partials)

    def success(self, topology: str, txid: int) -> bool:
        """Note that success ran; return True the first time. Raise TerminalError if the txid is not committed (R8)."""
        ids: dict[str, Any] = {"topology": topology, "txid": txid}
        with transaction(self.engine) as connection:
            if connection.execute(query("succeed"), ids).first() is not None:
                return True
            decisions.check_success(batches.lock_batch(connection, **ids))
            return False

    def abort(self, topology: str, txid: int, why: str) -> Batch:
        """Free the records of an uncommitted batch (R16). Raise TerminalError if the batch is committed."""
        failpoints.hit("abort.before_lock")
        with transaction(self.engine) as connection:
            return aborts.abort(connection, self.warehouses, topology, txid, why)

    def skip(self, topology: str, txid: int, why: str, partition: str | None = None) -> Batch:
        """Abort a batch and count the batch's records as read, by a new txid (R16).

        If `partition` is given, the records of all other partitions are free, and the batch's run plans them again. Raise the
        same errors as `given_up`, TerminalError if the batch is committed, NotItsTurn if a lower txid is open, BrokenChain or
        IntervalTaken if another batch has the records by now.
        """
        with transaction(self.engine) as connection:
            return aborts.skip(connection, self.warehouses, topology, txid, why, partition)

    def _lease(self, run: Run) -> dict[str, Any]:
        return {"run": run.name, "lease_seconds": self.lease_seconds}


def _ids(assignment: Assignment) -> dict[str, Any]:
    attempt = assignment.attempt
    return {"topology": assignment.topology, "txid": attempt.txid, "attempt_id": attempt.attempt_id}


def _run_of(batch: Batch, found: RowMapping) -> Run:
    """Return the run that looked after a batch."""
    if batch.restate is not None:
        return Run(found["run"], restate=batch.restate)
    interval = Interval(found["interval_start"], found["interval_end"]) if found["interval_start"] else None
    return Run(found["run"], interval=interval, parameters=found["parameters"] or {})


def _earlier_manifests(connection: Connection, assignment: Assignment) -> list[Manifest]:
    if assignment.attempt.attempt_id == 1:
        return []
    return [
        Manifest.from_json(row) for row in connection.execute(query("earlier_manifests"), _ids(assignment)).scalars()
    ]


def _next_txids(connection: Connection, topology: str) -> list[int]:
    """Return the txids at which a new state may be committed first: the oldest txid in flight, and the next txid."""
    in_flight = [batch.txid for batch in batches.batches(connection, "open_batches", topology=topology)]
    return [*in_flight[:1], batches.last_txid(connection, topology) + 1]
