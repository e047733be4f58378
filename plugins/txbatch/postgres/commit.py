"""The commit: state rows, contributions, offsets and the batch's record change in one transaction, or not at all (R10).

`core.protocol.decisions.check_commit` decides whether a batch may be committed; `commit` carries the decision out.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from txbatch import failpoints
from txbatch.core.batch.manifest import Manifest, check_manifest, check_states
from txbatch.core.batch.transaction import Assignment, Batch, BatchKind, canonical_json
from txbatch.core.definition.stored import StoredTopology
from txbatch.core.protocol.decisions import check_commit
from txbatch.core.protocol.ledger import Committed
from txbatch.core.protocol.record_numbers import check_base, check_same_number
from txbatch.core.protocol.restate import check_not_folded
from txbatch.core.topology.quarantine import check_joined
from txbatch.core.topology.topology import Topology
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.database.queries import query
from txbatch.postgres.state.statements import StateStatements, statements_of
from txbatch.postgres.state.writer import LedgerWriter, RestateWriter, StateWriter
from txbatch.postgres.tables import batches, definitions, event_time, offsets, record_numbers

Partials = Mapping[str, Any]


def commit_batch(
    connection: Connection, warehouses: Warehouses, topology: Topology, batch: Batch, attempt: Batch, partials: Partials
) -> Committed:
    """Apply the newest attempt of a batch whose row is locked; the caller commits.

    `attempt` names the attempt whose partials were read: by now a newer attempt may have begun (R5). States in other
    databases are written last, and are committed there before `commit_batch` returns (R21).
    """
    assignment, manifest = batches.newest_attempt(connection, batch)
    ids: dict[str, Any] = {"topology": batch.topology, "txid": batch.txid}
    if not check_commit(batch, attempt, *batches.order(connection, batch)) or manifest is None:
        return Committed(batch, applied=False)
    known = definitions.check(connection, topology)
    check_manifest(manifest, assignment)
    check_states(manifest, [aggregate.state.name for aggregate in topology.aggregates])
    check_joined(batch, manifest, topology.aggregates, lambda state: known.states[state].joined)
    here = [aggregate for aggregate in topology.aggregates if aggregate.state.database is None]
    statements = [statements_of(aggregate, f"staged_{n}") for n, aggregate in enumerate(here)]
    replaced = _replaced(connection, topology, batch, manifest)
    writers = [_writer(connection, each, assignment, batch, replaced, known) for each in statements]
    staged_rows = [writer.load(partials[writer.name], manifest.states[writer.name]) for writer in writers]
    failpoints.hit("commit.loaded")
    if replaced is not None:
        connection.execute(query("replace"), {**ids, "replaced": replaced})
    keys = {name: each.rows for name, each in manifest.states.items()}
    for writer, staged in zip(writers, staged_rows, strict=True):
        keys[writer.name] = writer.apply(staged)
    planned_at = batch.created_at or datetime.now(UTC)  # a batch of the ledger has one
    ended = offsets.record(connection, batch, offsets.read(manifest, planned_at))
    kept = {name: each.kept for name, each in manifest.states.items() if each.kept is not None}
    told = {"records": manifest.records, "keys": canonical_json(keys), "kept": canonical_json(kept) if kept else None}
    connection.execute(query("batch_committed"), {**ids, "attempt_id": batch.fence, **told})
    event_time.commit(connection, topology, batch, manifest, ended)
    warehouses.commit(connection, topology, assignment, manifest, partials)
    failpoints.hit("commit.before_commit")
    # asked last: that the connection is gone before COMMIT is found out here, and is no unknown outcome
    return Committed(batches.batch(connection, **ids), applied=True)


def _replaced(connection: Connection, topology: Topology, batch: Batch, manifest: Manifest) -> int | None:
    """Return the version that a restate replaces: the current version (R17). Return None if the batch is no restate."""
    streams = topology.numbered
    if batch.kind is not BatchKind.RESTATE:
        check_base(batch, streams, lambda: record_numbers.bases(connection, batch.topology, streams))
        return None
    version = batches.version(connection, batch.topology, batch.position)
    check_not_folded(version)
    check_same_number(version, streams, manifest)
    return version.current.txid


def _writer(
    connection: Connection,
    statements: StateStatements,
    assignment: Assignment,
    batch: Batch,
    replaced: int | None,
    known: StoredTopology,
) -> StateWriter:
    if replaced is None:
        return LedgerWriter(connection, statements, assignment)
    stored, aggregate = known.states[statements.aggregate.state.name], statements.aggregate
    uncounted = stored.uncounted(aggregate, batch.position)
    return RestateWriter(
        connection, statements, assignment, batch.position, replaced, uncounted, batch.position >= stored.joined
    )
