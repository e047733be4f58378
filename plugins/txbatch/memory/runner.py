"""A whole topology in memory, without Spark: for learning, and for testing a job's Python functions.

>>> from txbatch import Count, FixedBatchSpout, OpaqueState, Topology
>>> topology = Topology("sentences")
>>> sentences = topology.new_stream("sentences", FixedBatchSpout("sentence string", 1, "how are you", "are you there"))
>>> words = sentences.flat_map(lambda record: record["sentence"].split(), "word string").group_by("word")
>>> aggregate = words.persistent_aggregate(OpaqueState("sentences"), count=Count())
>>> run(topology).rows("sentences")["are",]
OpaqueValue(txid=2, value=(2,), prev=(1,), prev_txid=1)
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from txbatch.core.coordinator import initialize_transaction
from txbatch.core.errors import BadRecord, DefinitionError
from txbatch.core.fields import parse_fields
from txbatch.core.manifest import Manifest, ReadPartition, StagedState
from txbatch.core.merge import Partial, merger
from txbatch.core.persistent_aggregate import PersistentAggregate
from txbatch.core.protocol import check_gone
from txbatch.core.stream import Stream
from txbatch.core.topology import Topology
from txbatch.core.transaction import Assignment, Batch, Run, digest
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.operations import Record, called, records


def run(topology: Topology, ledger: MemoryLedger | None = None) -> MemoryLedger:
    """Batch after batch until nothing is new. Spouts must be FixedBatchSpouts, operations Python functions."""
    ledger = ledger or MemoryLedger()
    ledger.register(topology.check(), "in memory")
    for number in count(1):
        mine = Run(f"memory:{number}")
        batch = initialize_transaction(ledger, topology, mine)
        if not isinstance(batch, Batch):
            break
        if not batch.status.final:
            assignment = ledger.start_attempt(batch, mine, "in memory")
            manifest, partials = emit_batch(topology, assignment)
            ledger.commit(topology, ledger.record_manifest(assignment, manifest), partials)
            ledger.success(topology.name, batch.txid)
    return ledger


def emit_batch(topology: Topology, assignment: Assignment) -> tuple[Manifest, dict[str, list[tuple[Any, Partial]]]]:
    """What Spark does: read what the metadata names, run the operations, aggregate to partials."""
    check_gone(assignment)
    plans = assignment.plan.streams
    read = {name: _read(topology.streams[name], planned.plan) for name, planned in plans.items()}
    kept = {each.state.name: list(records(each.stream, read)) for each in topology.aggregates}
    partials = {each.state.name: _partials(each, kept[each.state.name]) for each in topology.aggregates}
    streams = {name: {"": ReadPartition(len(records), digest(str(records)))} for name, records in read.items()}
    states = {name: StagedState((), len(rows), {}, len(kept[name])) for name, rows in partials.items()}
    identity = (assignment.topology, assignment.attempt, assignment.token, assignment.code, assignment.digest)
    return Manifest(*identity, streams=streams, states=states), partials


def _read(stream: Stream, plan: Any) -> list[Record]:
    if not hasattr(stream.spout, "batch"):
        raise DefinitionError(
            f"stream {stream.name!r}: {type(stream.spout).__name__} needs Spark, a FixedBatchSpout does not"
        )
    names = [field.name for field in parse_fields(stream.spout.fields)]
    return [dict(zip(names, record, strict=True)) for record in stream.spout.batch(plan)]


def _partials(aggregate: PersistentAggregate, kept: Iterable[Record]) -> list[tuple[Any, Partial]]:
    """What the records that reach a state contribute, by key; a global value has the key ()."""
    found: dict[Any, Partial] = {} if aggregate.keys else {(): _zero(aggregate)}
    combine = merger(aggregate.partial_merges)
    for record in kept:
        key = tuple(record[field.name] for field in aggregate.keys)
        if None in key:
            raise BadRecord(
                f"state {aggregate.state.name!r}: a key is null in {record}; filter such records out in the job"
            )
        partial = _partial(aggregate, record)
        found[key] = combine(found[key], partial) if key in found else partial
    return list(found.items())


def _partial(aggregate: PersistentAggregate, record: Record) -> Partial:
    """What one record contributes, with its marks where keys may be removed."""
    if aggregate.removable and called("remove", aggregate.remove)(record):
        return (*(None for _ in aggregate.columns), True, False)
    inits = (each.init(record[each.input] if each.input else None) for each in aggregate.aggregates.values())
    values = tuple(part for init in inits for part in init)
    return (*values, False, True) if aggregate.removable else values


def _zero(aggregate: PersistentAggregate) -> Partial:
    return tuple(part for each in aggregate.aggregates.values() for part in each.zero())
