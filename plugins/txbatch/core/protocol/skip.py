"""Which records a skip gives up: all that the batch reads, or those of one partition (R16).

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

_SHOWN = 5


def given_up(batch: Batch, partition: str | None) -> Batch:
    """Return the batch as far as its records are given up; without a partition as it is.

    A partition that several streams have is named with its stream, `log:south`. UnknownName where the batch reads no such one,
    TerminalError where streams without partitions would have to be given up with it: their plans follow on each other.
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
        more = f" and {len(named) - _SHOWN:,} more" if len(named) > _SHOWN else ""
        raise UnknownName(
            f"{of} reads no partition {partition!r}; it reads {', '.join(repr(name) for _, name in named[:_SHOWN])}{more}"
        )
    if len(found) > 1:
        ways = ", ".join(repr(f"{stream}:{name}") for stream, name in found)
        raise CannotSkip(f"{of} reads partition {partition!r} of several streams; name one of {ways}")
    ((stream, name),) = found
    ranges = _only(plans[stream], name)
    return replace(batch, metadata=replace(batch.plan, streams={stream: ranges}).to_json())


def _only(ranges: Ranges, partition: str) -> Ranges:
    """Return the plan of one partition; what could not be asked is nobody's to give up."""
    continues = tuple(name for name in ranges.continues if name == partition)
    return replace(ranges.only([partition]), continues=continues, unreadable={})
