"""The records given up by a skip: all records of the batch, or one partition's records (R16).

>>> from txbatch.core.batch.transaction import BatchStatus
>>> ranges = {"partitions": {name: {"start": 0, "end": 9} for name in ("north", "south")}, "continues": ["north"]}
>>> batch = Batch("hosts", 1, BatchStatus.PLANNED, {"format": 2, "streams": {"log": ranges}}, "run:1")
>>> given_up(batch, "south").metadata["streams"]
{'log': {'partitions': {'south': {'start': 0, 'end': 9}}}}
"""

from __future__ import annotations

from dataclasses import replace

from txbatch.core.batch.plan import Ranges
from txbatch.core.batch.transaction import Batch
from txbatch.core.errors import CannotSkip, UnknownName
from txbatch.core.text import list_first


def given_up(batch: Batch, partition: str | None) -> Batch:
    """Return the batch with only the given up partition; if `partition` is None, the batch unchanged.

    If several streams have the partition, name the stream too: `log:south`. Raise UnknownName if the batch reads no such
    partition. Raise TerminalError if streams without partitions would be given up, too: their plans follow on each other.
    """
    if partition is None:
        return batch
    of, plans = f"{batch.topology}: txid {batch.txid}", batch.plan.partitioned
    whole = [name for name in batch.plan.streams if name not in plans]
    if whole or batch.by_interval:
        raise CannotSkip(
            f"{of} reads stream {', '.join(map(repr, whole or plans))} by no offsets of partitions: its records are given up "
            "together; leave out --partition"
        )
    named = [(stream, name) for stream, ranges in plans.items() for name in ranges.partitions]
    found = [each for each in named if partition in (each[1], f"{each[0]}:{each[1]}")]
    if not found:
        raise UnknownName(
            f"{of} reads no partition {partition!r}; it reads {list_first([repr(name) for _, name in named])}"
        )
    if len(found) > 1:
        ways = ", ".join(repr(f"{stream}:{name}") for stream, name in found)
        raise CannotSkip(f"{of} reads partition {partition!r} of several streams; name one of {ways}")
    ((stream, name),) = found
    ranges = _only(plans[stream], name)
    return replace(batch, metadata=replace(batch.plan, streams={stream: ranges}).to_json())


def _only(ranges: Ranges, partition: str) -> Ranges:
    """Return the plan of one partition, without unreadable partitions: unreadable partitions are not given up."""
    continues = tuple(name for name in ranges.continues if name == partition)
    return replace(ranges.only([partition]), continues=continues, unreadable={})
