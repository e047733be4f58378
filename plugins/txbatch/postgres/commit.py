"""The commit: state rows, contributions, offsets and the batch's record change in one transaction, or not at all (R10).

`core.protocol.commit` decides whether and how a batch is committed; `commit_batch` reads the facts, and carries the plan out.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from txbatch import failpoints
from txbatch.core.batch.transaction import Batch, BatchKind, BatchStatus, canonical_json
from txbatch.core.protocol.commit import CommitFacts, CommitPlan, StatePlan, asks_definition, decide_commit
from txbatch.core.protocol.ledger import Committed
from txbatch.core.topology.topology import Topology
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.database.queries import query
from txbatch.postgres.state.statements import StateStatements, statements_of
from txbatch.postgres.state.writer import LedgerWriter, RestateWriter, StateWriter
from txbatch.postgres.tables import batches, definitions, event_time, offsets, record_numbers

Partials = Mapping[str, Any]


def commit_batch(
    connection: Connection, warehouses: Warehouses, topology: Topology, batch: Batch, named: Batch, partials: Partials
) -> Committed:
    """Apply the newest attempt of a batch whose row is locked; the caller commits.

    `named` names the attempt whose partials were read: by now a newer attempt may have begun (R5). States in other
    databases are written last, and are committed there before `commit_batch` returns (R21).
    """
    facts = _facts(connection, topology, batch)
    with definitions.rebuild_told(connection, batch.topology):
        plan = decide_commit(topology, named, facts)
    if isinstance(plan, Committed):
        return plan
    writers = [_writer(connection, plan, each, number) for number, each in enumerate(plan.here)]
    staged_rows = [writer.load(partials[writer.name], plan.manifest.states[writer.name]) for writer in writers]
    failpoints.hit("commit.loaded")
    ids: dict[str, Any] = {"topology": batch.topology, "txid": batch.txid}
    if plan.replaced is not None:
        connection.execute(query("replace"), {**ids, "replaced": plan.replaced})
    written = {writer.name: writer.apply(staged) for writer, staged in zip(writers, staged_rows, strict=True)}
    planned_at = batch.created_at or datetime.now(UTC)  # a batch of the ledger has one
    ended = offsets.record(connection, batch, offsets.read(plan.manifest, planned_at))
    keys = canonical_json({each.name: each.staged.rows for each in plan.states} | written)
    told = {"records": plan.manifest.records, "keys": keys, "kept": canonical_json(plan.kept) if plan.kept else None}
    connection.execute(query("batch_committed"), {**ids, "attempt_id": batch.fence, **told})
    event_time.commit(connection, plan, ended)
    warehouses.commit(connection, plan.assignment, plan.apart, partials)
    failpoints.hit("commit.before_commit")
    # asked last: that the connection is gone before COMMIT is found out here, and is no unknown outcome
    return Committed(batches.batch(connection, **ids), applied=True)


def _facts(connection: Connection, topology: Topology, batch: Batch) -> CommitFacts:
    """Return the facts of a batch whose row is locked; of a batch that is not emitted, only its place among the others."""
    newest = batches.newest_attempt(connection, batch)
    found = batches.one(connection, "neighbours", topology=batch.topology, txid=batch.txid)
    order = *newest, found["open_before"], found["last_committed"], batches.offsets_of(connection, batch)
    if batch.status is not BatchStatus.EMITTED:
        return CommitFacts(batch, *order)
    asked = asks_definition(topology, batch, found["digest"])
    definition = definitions.known(connection, topology) if asked else None
    if batch.kind is BatchKind.RESTATE:
        version = batches.version(connection, batch.topology, batch.position)
        return CommitFacts(batch, *order, definition, version)
    numbered = batch.plan.base.keys() & topology.numbered
    bases = record_numbers.bases(connection, batch.topology, numbered) if numbered else {}
    return CommitFacts(batch, *order, definition, bases=bases)


def _writer(connection: Connection, plan: CommitPlan, state: StatePlan, number: int) -> StateWriter:
    statements: StateStatements = statements_of(state.aggregate, f"staged_{number}")
    if plan.replaced is None:
        return LedgerWriter(connection, statements, plan.assignment)
    of = plan.assignment, plan.batch.position, plan.replaced, state.uncounted, state.counts
    return RestateWriter(connection, statements, *of)
