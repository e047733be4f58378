"""Which actions a state offers. Only what cannot matter is left out: what is beyond the size, and runs that are alike."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from model.source import STREAM, Size
from model.story import Action, Story
from model.symmetry import Runs, runs_apart

from txbatch import SpoutKind
from txbatch.core.batch.transaction import Batch


def choices(story: Story, batches: list[Batch], runs: Runs = runs_apart) -> Iterator[Action]:
    """Every action of the explorer in this state, by one of each kind of runs."""
    size, txids = story.size, [batch.txid for batch in batches]
    pending = [batch for batch in batches if not batch.status.final]
    if len(txids) < size.txids:
        yield from _initialize(story, size, runs(story, None))
    elif len(pending) >= size.max_pending or any(not batch.lease_live for batch in pending):
        yield from (("initialize", (name,)) for name in runs(story, None))  # it waits or adopts, and plans nothing
    if len(pending) > 1 and not pending[0].lease_live:
        yield from (("turn", (name,)) for name in runs(story, None))
    if story.slow:
        yield from (("wake", ()), ("crash", ()))
    yield from _works(story, size)
    if story.astray:
        yield from (("arrive", ()), ("forget", ()))
    for txid in txids:
        yield "success", (txid,)
        yield "abort", (txid,)
        if size.apart:
            yield "cut", (txid,)
        if len(txids) < size.txids:
            yield "skip", (txid,)
    for txid in (batch.txid for batch in pending):
        yield "expire", (txid,)
        if len(story.works.get(txid, ())) < size.attempts:
            yield from (("attempt", (name, txid)) for name in runs(story, txid))
    yield from (("appear", (partition,)) for partition in story.source.late if partition not in story.source.lengths)


def _initialize(story: Story, size: Size, runs: list[str]) -> Iterator[Action]:
    for name in runs:
        for away in _outages(tuple(story.source.lengths), size):
            yield "initialize", (name, away)
            if story.slow is None:
                yield "look", (name, away)


def _works(story: Story, size: Size) -> Iterator[Action]:
    for txid, works in story.works.items():
        for number, work in enumerate(works):
            planned = tuple(work.assignment.metadata["streams"][STREAM]["partitions"])
            if work.read is None:
                yield from (("emit", (txid, number, away)) for away in _outages(planned, size))
            else:
                yield "commit", (txid, number)
                if size.apart and story.astray is None:
                    yield "stray", (txid, number)
            yield "renew", (txid, number)


def _outages(partitions: tuple[str, ...], size: Size) -> Iterator[tuple[str, ...]]:
    """Who can be away: nobody, or, of an opaque spout, some; where all are, nothing happens, and once is enough to see it."""
    most = len(partitions) if size.kind is SpoutKind.OPAQUE else min(1, len(partitions))
    for number in range(most + 1):
        yield from combinations(partitions, number)
