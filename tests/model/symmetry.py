"""When two states are the same: the names of runs and tokens, and the time, do not matter, only what they can lead to.

Left out is what no decision reads: whether success was noted, and the status that attempts have for people.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from model.story import Story, Work

from txbatch.core.transaction import Batch, Metadata, canonical_json
from txbatch.memory.tables import StoredState, Tables


def runs_apart(story: Story, knowing: int | None = None) -> list[str]:
    """One run of each kind: runs that know the same and hold the same are alike. With `knowing` only who knows that txid."""
    kinds: dict[Any, str] = {}
    for name in run_names(story):
        kind = role(story, name)
        if knowing is None or knowing in kind[0]:
            kinds.setdefault(kind, name)
    return list(kinds.values())


def run_names(story: Story) -> list[str]:
    """The runs of the exploration."""
    return [f"r{number}" for number in range(story.size.runs)]


def role(story: Story, name: str) -> tuple[Any, ...]:
    """All that tells one run from another: the batches it finds, those it looks after, and what it has seen."""
    tables: Tables = story.ledger.tables
    finds = tables.batch_keys.get((story.name, f"run:{name}"), ())
    batches = tables.batches.items()
    holds = tuple(sorted(at[1] for at, batch in batches if batch.lease_run == name and not batch.status.final))
    return finds, holds, story.slow is not None and story.slow.run == name


def known(works: tuple[Work, ...], batch: Batch) -> Any:
    """What the attempts of a batch may lead to: which older ones have a manifest, and what the newest one read.

    Nothing, once the batch is final: see Explorer.latecomers.
    """
    if batch.status.final:
        return None
    newest = works[-1].read
    return [work.read is not None for work in works[:-1]], None if newest is None else sorted(newest)


class Symmetry:
    """Tells the states of one story apart."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self._numbers: dict[int, int] = {}
        self._texts: dict[str, int] = {}
        self._kept: list[Metadata] = []

    def digest(self) -> bytes:
        """The same for states that are the same, and for no others."""
        return blake2b(repr(self.canonical()).encode(), digest_size=12).digest()

    def canonical(self) -> tuple[Any, ...]:
        """Where the story stands, without names and times."""
        story, tables = self.story, self.story.ledger.tables
        works = sorted(story.works.items())
        tokens = {work.assignment.token: number for _, each in works for number, work in enumerate(each)}
        return (
            [self._batch(batch, tokens, tables.leases) for _, batch in sorted(tables.batches.items())],
            sorted(role(story, name) for name in run_names(story)),
            self._slow(),
            [known(each, tables.batches[story.name, txid]) for txid, each in works],
            sorted((at[2], range_["end"]) for at, range_ in tables.consumed.items()),
            sorted((at[3], at[2], read is None) for at, read in tables.partitions.items()),
            sorted((key, row.txid, row.value, getattr(row, "prev", None)) for key, row in self._state().rows.items()),
            sorted(self._state().contributions.items()),
            len(story.source.lengths),
            self._there(tokens),
        )

    def _there(self, tokens: dict[str, int]) -> Any:
        """A state apart, with who wrote it last, and the commit that is on its way there."""
        found = []
        for stored in self.story.ledger.warehouses.states.values():
            fence, rows = stored.fence, sorted(stored.rows.items())
            found.append((fence.attempt, tokens.get(str(fence.token)), fence.status.value, rows))
        if self.story.astray is None:
            return found
        txid, number = self.story.astray
        return found, txid, number, sorted(self.story.works[txid][number].read or ())

    def _state(self) -> StoredState:
        return self.story.ledger.tables.states[self.story.name]

    def _batch(self, batch: Batch, tokens: dict[str, int], leases: Any) -> tuple[Any, ...]:
        live = leases[batch.topology, batch.txid] > self.story.view.now
        number = tokens.get(str(batch.token))
        return batch.txid, batch.status.value, self._number(batch.metadata), batch.prev_txid, batch.fence, number, live

    def _slow(self) -> Any:
        slow = self.story.slow
        if slow is None or isinstance(slow.at, Batch):
            return slow and slow.at.txid
        return canonical_json([slow.at.next_txid, slow.at.prev_txid, slow.at.offsets, slow.metadata])

    def _number(self, metadata: Metadata) -> int:
        """A number for a plan; that of the same object is known."""
        if id(metadata) not in self._numbers:
            self._kept.append(metadata)
            self._numbers[id(metadata)] = self._texts.setdefault(canonical_json(metadata), len(self._texts))
        return self._numbers[id(metadata)]
