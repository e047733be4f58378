"""When two states are the same: the names of runs and tokens, and the time, do not matter, only what they can lead to.

Left out is what no decision reads: whether success was noted, and the status that attempts have for people. Of a batch
that is final also its attempts and its lease: nobody asks for them again, but for a state apart. Of a run also what it
found before: once its batch is committed it gets that one, whatever else it had; and an aborted one matters only while it
may be skipped. test_states.py sees that whoever leaves this out comes to the same states.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from model.story import Story, Work

from txbatch.core.batch.transaction import Batch, BatchStatus, Metadata
from txbatch.core.stored_json import canonical_json
from txbatch.memory.stored import StoredState
from txbatch.memory.tables import Tables

# Of a story the runs to choose from: all, or those that know a txid.
Runs = Callable[[Story, int | None], list[str]]


def every_run(story: Story, knowing: int | None) -> list[str]:
    """All of them."""
    found = story.ledger.tables.batch_keys
    names = run_names(story)
    return [name for name in names if knowing is None or knowing in found.get((story.name, f"run:{name}"), ())]


def runs_apart(story: Story, knowing: int | None) -> list[str]:
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
    """All that tells one run from another: the open batches it finds, whether it is done, those it looks after, and what
    it has seen.
    """
    tables: Tables = story.ledger.tables
    all_found = tables.batch_keys.get((story.name, f"run:{name}"), ())
    status = {txid: tables.batches[story.name, txid].status for txid in all_found}
    alive = [txid for txid in all_found if status[txid] is not BatchStatus.ABORTED]
    done = bool(alive) and status[alive[-1]] is BatchStatus.COMMITTED
    forgotten = done or len(tables.batches) == story.size.txids  # then no skip makes a difference
    finds = tuple(
        txid for txid in all_found if not (status[txid].final and (forgotten or status[txid] is BatchStatus.COMMITTED))
    )
    batches = tables.batches.items()
    holds = tuple(sorted(at[1] for at, batch in batches if batch.lease_run == name and not batch.status.final))
    return finds, done, holds, story.slow is not None and story.slow.run == name


def known(works: tuple[Work, ...], batch: Batch) -> Any:
    """What the attempts of a batch may lead to: which older ones have a manifest, and what the newest one read.

    Nothing, once the batch is final: see Explorer.latecomers.
    """
    if batch.status.final:
        return None
    newest = works[-1].read
    return sorted(work.read is not None for work in works[:-1]), None if newest is None else sorted(newest)


class Symmetry:
    """Tells the states of one story apart."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self._numbers: dict[int, int] = {}
        self._texts: dict[str, int] = {}
        self._kept: list[Metadata] = []

    def digest(self, *, exact: bool = False) -> bytes:
        """The same for states that are the same, and for no others. `exact`: only without names and times."""
        return blake2b(repr(self.canonical(exact=exact)).encode(), digest_size=12).digest()

    def canonical(self, *, exact: bool) -> tuple[Any, ...]:
        """Where the story stands."""
        story, tables = self.story, self.story.ledger.tables
        works = sorted(story.works.items())
        tokens = {work.assignment.token: number for _, each in works for number, work in enumerate(each)}
        return (
            [self._batch(batch, tokens, tables.leases, exact) for _, batch in sorted(tables.batches.items())],
            self._names() if exact else sorted(role(story, name) for name in run_names(story)),
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
            last, rows = stored.last, sorted(stored.rows.items())
            found.append((last.attempt, tokens.get(str(last.token)), last.status.value, rows))
        if self.story.astray is None:
            return found
        txid, number = self.story.astray
        return found, txid, number, sorted(self.story.works[txid][number].read or ())

    def _state(self) -> StoredState:
        return self.story.ledger.tables.states[self.story.name]

    def _names(self) -> Any:
        """Who is who."""
        tables, slow = self.story.ledger.tables, self.story.slow
        holders = sorted((at, batch.lease_run) for at, batch in tables.batches.items())
        return sorted(tables.batch_keys.items()), holders, slow and slow.run

    def _batch(self, batch: Batch, tokens: dict[str, int], leases: Any, exact: bool) -> tuple[Any, ...]:
        if batch.status.final and not (exact or self.story.size.apart):
            return batch.txid, batch.status.value, self._number(batch.metadata), batch.fence > 0
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
