"""Rows of the ledger as values of the core. Functions take a connection and never commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, RowMapping

from txbatch.core.batch.manifest import Manifest, ReadPartition
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Assignment, Batch, BatchKind, BatchStatus, Metadata, Run
from txbatch.core.errors import UnknownName
from txbatch.core.protocol.decisions import consumed
from txbatch.core.protocol.ledger import Head, Order
from txbatch.core.protocol.restate import PositionVersion, ReadBy
from txbatch.core.topology.kept_windows import KeptWindows, Left
from txbatch.postgres.database.queries import query
from txbatch.postgres.tables import batch_lock


def one(connection: Connection, name: str, **parameters: Any) -> RowMapping:
    """Return the single row of a named statement."""
    return connection.execute(query(name), parameters).mappings().one()


def batch_ids(of: Batch) -> dict[str, Any]:
    """Return the parameters that name a batch in a statement."""
    return {"topology": of.topology, "txid": of.txid}


def attempt_ids(of: Assignment) -> dict[str, Any]:
    """Return the parameters that name an attempt in a statement."""
    return {"topology": of.topology, "txid": of.attempt.txid, "attempt_id": of.attempt.attempt_id}


def batch_from(row: RowMapping) -> Batch:
    """Return a batch by its row."""
    return Batch(
        topology=row["topology"],
        txid=row["txid"],
        status=BatchStatus(row["status"]),
        metadata=row["metadata"],
        key=row["key"],
        prev_txid=row["prev_txid"],
        fence=row["fence"],
        token=row["token"],
        lease_run=row["lease_run"],
        lease_live=row["lease_live"],
        succeeded=row["succeeded_at"] is not None,
        created_at=row["created_at"],
        kind=BatchKind(row["kind"]),
        position=row["position"],
        replaced_by=row["replaced_by"],
        reason=row["reason"],
        requested_by=row["requested_by"],
        records=row["records"],
        replanned=row["abandoned"],
        found_by=row["found_by"],
    )


def batch(connection: Connection, topology: str, txid: int) -> Batch:
    """Return one batch. Raise UnknownName if the ledger has no such batch."""
    row = connection.execute(query("batch"), {"topology": topology, "txid": txid}).mappings().first()
    return _known(connection, row, topology, txid)


def lock_batch(connection: Connection, topology: str, txid: int, run: Run | None = None) -> Batch:
    """Return one batch, locked for a run. Raise the errors of `batch_lock.locked_row`, and UnknownName if there is none."""
    return _known(connection, batch_lock.locked_row(connection, topology, txid, run), topology, txid)


def _known(connection: Connection, row: RowMapping | None, topology: str, txid: int) -> Batch:
    if row is None:
        topology_row(connection, topology)
        raise UnknownName(f"topology {topology!r} has no txid {txid}; see `txbatch batches {topology}`")
    return batch_from(row)


def topology_row(connection: Connection, topology: str) -> RowMapping:
    """Return a topology's row, without a lock. Raise UnknownName if the topology is unknown."""
    row = connection.execute(query("topology"), {"topology": topology}).mappings().first()
    if row is None:
        raise unknown_topology(topology)
    return row


def unknown_topology(topology: str) -> UnknownName:
    """Return the error for an unknown topology."""
    return UnknownName(f"no topology {topology!r} is known; `txbatch status` lists them")


def lock_topology(connection: Connection, topology: str) -> RowMapping:
    """Return a topology's row, locked. Raise UnknownName if the topology is unknown."""
    row = connection.execute(query("lock_topology"), {"topology": topology}).mappings().first()
    if row is None:
        raise unknown_topology(topology)
    return row


def batches(connection: Connection, name: str, **parameters: Any) -> tuple[Batch, ...]:
    """Return the batches found by a named statement."""
    return tuple(batch_from(row) for row in connection.execute(query(name), parameters).mappings())


def heads(connection: Connection, topology: str, runs: Sequence[Run]) -> list[Head]:
    """Return the topology's head for each run."""
    pending = batches(connection, "open_batches", topology=topology)
    keys = [run.key for run in runs]
    of_keys = {"topology": topology, "keys": keys}
    own = {row["asked"]: batch_from(row) for row in connection.execute(query("batches_of_keys"), of_keys).mappings()}
    prev = batches(connection, "newest_ordinary", topology=topology)
    committed = offsets(connection, "consumed", topology=topology)
    found = Head(
        topology=topology,
        next_txid=last_txid(connection, topology) + 1,
        own=None,
        pending=pending,
        prev=prev[0] if prev else None,
        offsets=consumed(committed, pending),
    )
    return [replace(found, own=own[key]) if key in own else found for key in keys]


def offsets(connection: Connection, name: str, **parameters: Any) -> dict[str, dict[str, Metadata]]:
    """Return the last ranges by stream and partition."""
    found: dict[str, dict[str, Metadata]] = {}
    for row in connection.execute(query(name), parameters).mappings():
        found.setdefault(row["stream"], {})[row["partition"]] = row["metadata"]
    return found


def order(connection: Connection, planned: Batch) -> tuple[Order, str | None]:
    """Return a batch's place among the others (R6), with the digest of the topology's definition, both read at once."""
    found = one(connection, "neighbours", topology=planned.topology, txid=planned.txid)
    return Order(found["open_before"], found["last_committed"], offsets_of(connection, planned)), found["digest"]


def version(connection: Connection, topology: str, txid: int) -> PositionVersion:
    """Return the current version of a txid's position. Raise UnknownName if the txid is unknown."""
    return versions(connection, topology, [batch(connection, topology, txid)])[0]


def versions(connection: Connection, topology: str, asked: Sequence[Batch]) -> list[PositionVersion]:
    """Return the current version of each batch's position, in the order of the batches."""
    positions = [each.position for each in asked]
    found = batches(connection, "versions_of_positions", topology=topology, positions=positions)
    first = {each.txid: each for each in found}
    committed = (each for each in found if each.status is BatchStatus.COMMITTED and each.replaced_by is None)
    counting = {each.position: each for each in committed}
    horizon = connection.execute(query("horizon"), {"topology": topology}).scalar_one()
    again = _counted_again(connection, topology, [each.txid for each in counting.values()])
    left = windows_left(connection, topology)
    read = _read_by(connection, topology, (*asked, *found))

    def version_of(batch: Batch) -> PositionVersion:
        current = counting.get(batch.position, batch)
        plan, last_read = again.get(current.txid, (None, read[current.txid]))
        return PositionVersion(
            batch, first[batch.position], current, last_read, read[batch.position], horizon, plan, left
        )

    return [version_of(each) for each in asked]


def windows_left(connection: Connection, topology: str) -> dict[str, Left]:
    """Return, by state, the windows that have left the state (R30)."""
    found = connection.execute(query("windows_left"), {"topology": topology})
    return {
        row.state: Left(KeptWindows.from_json(row.kept), row.left_before, row.txid, row.windows, row.records)
        for row in found
    }


def rebuilt(topology: str, row: RowMapping) -> tuple[BatchPlan, dict[str, dict[str, ReadPartition]]] | None:
    """Return the plan and the read partitions by which the newest swapped rebuild counted a version. Return None if none did."""
    if row["metadata"] is None:
        return None
    read = {
        stream: {name: ReadPartition(**part) for name, part in parts.items()}
        for stream, parts in row["streams"].items()
    }
    return BatchPlan.from_json(row["metadata"], f"{topology}: what was rebuilt of txid {row['txid']}"), read


def _counted_again(connection: Connection, topology: str, txids: Sequence[int]) -> dict[int, tuple[BatchPlan, ReadBy]]:
    """Return the plan and the read partitions of each version counted by the newest swapped rebuild."""
    rows = connection.execute(query("counted_versions"), {"topology": topology, "txids": list(txids)}).mappings()
    return {row["txid"]: again for row in rows if (again := rebuilt(topology, row)) is not None}


def _read_by(connection: Connection, topology: str, final: Sequence[Batch]) -> Mapping[int, ReadBy]:
    """Return the part each final batch read of each planned partition; None: nothing."""
    of = {each.txid: {name: planned.ranges for name, planned in each.plan.streams.items()} for each in final}
    found: dict[int, dict[str, dict[str, ReadPartition | None]]]
    found = {txid: {stream: {} for stream in streams} for txid, streams in of.items()}
    for row in connection.execute(query("read_by"), {"topology": topology, "txids": list(of)}):
        if row.partition in of[row.txid].get(row.stream, ()):
            found[row.txid][row.stream][row.partition] = _read(row)
    return found


def _read(row: Any) -> ReadPartition | None:
    return ReadPartition(row.records, str(row.fingerprint)) if row.status == "read" else None


def last_txid(connection: Connection, topology: str) -> int:
    """Return the highest txid ever given; 0 before the first."""
    return int(connection.execute(query("last_txid"), {"topology": topology}).scalar_one())


def next_txids(connection: Connection, topology: str) -> list[int]:
    """Return the txids at which a new state may be committed first: the oldest txid in flight, and the next txid."""
    in_flight = [batch.txid for batch in batches(connection, "open_batches", topology=topology)]
    return [*in_flight[:1], last_txid(connection, topology) + 1]


def offsets_of(connection: Connection, planned: Batch) -> dict[str, dict[str, Metadata]]:
    """Return the last ranges of a batch's partitions."""
    found: dict[str, dict[str, Metadata]] = {}
    for stream, plan in planned.plan.partitioned.items():
        if plan.partitions:
            parameters = {"topology": planned.topology, "stream": stream, "partitions": list(plan.partitions)}
            found.update(offsets(connection, "consumed_of", **parameters))
    return found


def newest_attempt(connection: Connection, batch: Batch) -> tuple[Assignment, Manifest | None]:
    """Return the newest attempt of a batch, and its manifest or None. Raise UnknownName before the first attempt."""
    row = connection.execute(query("attempt"), {**batch_ids(batch), "attempt_id": batch.fence}).mappings().first()
    if row is None:
        raise UnknownName(f"{batch.topology}: txid {batch.txid} has no attempt yet; run emit_batch first")
    told = batch.metadata, row["code"], batch.position, batch.planned_at
    assignment = Assignment(batch.topology, batch.attempt, row["token"], *told)
    return assignment, Manifest.from_json(row["manifest"]) if row["manifest"] else None
