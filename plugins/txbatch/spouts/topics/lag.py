"""How far what is counted of a topic is behind the topic, and whether the topic still keeps what is not counted."""

from __future__ import annotations

from collections.abc import Mapping

from txbatch.core.batch.transaction import Metadata
from txbatch.core.errors import PartitionUnreadable, RecordsGone, SourceCutBack
from txbatch.core.text import how_many
from txbatch.spouts.topics.look import Bounds, Look, name_of


def described(topic: str, found: Look, offsets: Mapping[str, Metadata]) -> str:
    """Return a topic's partitions, what the topic keeps, its lag by the offsets of a stream, and what is away, in words.

    Raise RecordsGone if offsets that are not counted are no longer kept, SourceCutBack if counted offsets are no longer there.
    """
    bounds = {number: each for number, each in found.ends.items() if not isinstance(each, PartitionUnreadable)}
    kept = sum(each.end - each.first for each in bounds.values())
    told = [f"{found.of} has {how_many(len(found.ends), 'partition')} and keeps {kept:,} offsets"]
    if offsets:
        told.append(_lag(topic, found, bounds, offsets))
    if away := sorted(set(found.ends) - set(bounds)):
        told.append(f"away: {', '.join(map(str, away))}")
    return "; ".join(told)


def _lag(topic: str, found: Look, bounds: Mapping[int, Bounds], offsets: Mapping[str, Metadata]) -> str:
    behind = dict[int, int]()
    for number, each in bounds.items():
        last = offsets.get(name_of(topic, number, found.topic_id))
        counted = each.first if last is None else last["end"]
        if counted < each.first:
            raise RecordsGone(
                f"{found.of}, partition {number}: offsets {counted} to {each.first} are not counted and no longer kept; the "
                "next run names the txid that gives them up"
            )
        if counted > each.end:
            raise SourceCutBack(
                f"{found.of}, partition {number}: is counted up to {counted} and ends at {each.end}: it was cut off; restore it, "
                "or read it with a new topology"
            )
        behind[number] = each.end - counted
    lag = sum(behind.values())
    if not lag:
        return "lag 0"
    most = max(behind, key=lambda number: behind[number])
    return f"lag {lag:,}, most in partition {most}: {behind[most]:,}"
