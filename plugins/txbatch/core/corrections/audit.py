"""Audit: all entries of the ledger about a committed batch must agree, or somebody changed the ledger by hand (R24).

`core` decides; `postgres.corrections.audit` reads. A change to one column contradicts another. The batch's records are the
sum of the partitions' records. The partitions are as in the attempt's manifest, and the manifest belongs to the batch's plan.

>>> first, second = Standing(1, 1, BatchKind.ORDINARY, 2), Standing(2, 1, BatchKind.RESTATE)
>>> list(check_standings([first, second])), list(check_standings([first]))
([], ['txbatch.batch.replaced_by of txid 1 is 2, the next version of position 1 is none'])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise, zip_longest
from typing import Any

from txbatch.core.batch.manifest import Manifest, ReadPartition
from txbatch.core.batch.plan import BatchPlan, OfInterval
from txbatch.core.batch.transaction import BatchKind, Interval, Metadata
from txbatch.core.protocol.event_time import ahead_of
from txbatch.core.stored_json import digest

# How far the server's clock may have been set back during a batch.
CLOCK_SLACK = timedelta(minutes=1)
READ, UNREADABLE, SKIPPED = "read", "unreadable", "skipped"
Counts = Mapping[str, int]
# Stream and partition.
Where = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Standing:
    """The place of a committed txid among the versions of a position, and the time of the commit."""

    txid: int
    position: int
    kind: BatchKind
    replaced_by: int | None = None
    committed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """The ledger's row of a planned partition; if the partition was not read, `read` is None."""

    status: str
    metadata: Any
    read: ReadPartition | None = None


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A version as counted by the current rebuild: keys by state, records kept by state, and records read."""

    keys: Counts
    kept: Counts | None
    records: int
    streams: Mapping[str, Mapping[str, ReadPartition]] | None


# The ledger's entry for records ahead, if a batch has none.
_NONE = (None, None)


@dataclass(frozen=True, slots=True)
class Entry:
    """All entries of the ledger about a committed txid; `manifest` and `emitted_at` are of the counting attempt.

    After a rebuild, the manifest has no states, and `rebuilt` has the rebuild's result; None if the rebuild did not count the
    txid.
    """

    standing: Standing
    metadata: Metadata
    partitions: Mapping[Where, PartitionRow]
    interval: Interval | None = None
    records: int | None = None
    keys: Counts = field(default_factory=dict)
    kept: Counts = field(default_factory=dict)
    late: Counts = field(default_factory=dict)
    ahead: tuple[int | None, int | None] = _NONE
    manifest: Manifest | None = None
    emitted_at: datetime | None = None
    succeeded_at: datetime | None = None
    rebuilt: Rebuilt | None = None

    @property
    def plan(self) -> BatchPlan:
        """The plan of the txid."""
        return BatchPlan.from_json(self.metadata)

    @property
    def replaced_in_rebuild(self) -> bool:
        """True if the rebuild's numbers may be of the txid or of the txid's restate."""
        return self.rebuilt is not None and self.standing.replaced_by is not None


@dataclass(frozen=True, slots=True)
class Audit:
    """The contradictions in the ledger: about the counting `versions`, about each txid in `of`, and all `others`.

    `contributed` has by txid the contradictions about contributions, of which a comparison may find more.
    """

    versions: tuple[str, ...] = ()
    of: Mapping[int, Sequence[str]] = field(default_factory=dict)
    contributed: Mapping[int, Sequence[str]] = field(default_factory=dict)
    others: tuple[str, ...] = ()


def check_standings(standings: Iterable[Standing]) -> Iterator[str]:
    """Yield a text for each position without an ordinary version, and for each version not replaced by the next version."""
    positions: dict[int, list[Standing]] = {}
    for each in sorted(standings, key=lambda each: each.txid):
        positions.setdefault(each.position, []).append(each)
    for position, versions in positions.items():
        if versions[0].txid != position or versions[0].kind is BatchKind.RESTATE:
            yield f"txbatch.batch says that txid {versions[0].txid} restates {position}, and {position} is no batch of its own"
        for each, after in zip_longest(versions, versions[1:]):
            if each.replaced_by != (replaced_by := after.txid if after else None):
                yield (
                    f"txbatch.batch.replaced_by of txid {each.txid} is {each.replaced_by or 'none'}, the next version of "
                    f"position {position} is {replaced_by or 'none'}"
                )


def check_order(standings: Iterable[Standing]) -> Iterator[str]:
    """Yield a text for each batch committed before a batch with a lower txid (R6)."""
    counted = [each for each in standings if each.kind is not BatchKind.SKIP]
    moments = [
        (each.txid, each.committed_at) for each in sorted(counted, key=lambda each: each.txid) if each.committed_at
    ]
    for (txid, before), (later, after) in pairwise(moments):
        if after < before - CLOCK_SLACK:
            yield (
                f"txbatch.batch.committed_at of txid {txid} is {before:%Y-%m-%d %H:%M:%S%z}, after that of txid {later}, which "
                "was committed later"
            )


def check_entry(entry: Entry) -> Iterator[str]:
    """Yield a text for each contradiction between two entries of the ledger about a committed txid."""
    yield from _plan(entry)
    yield from _partitions(entry)
    yield from _counts(entry)
    yield from _times(entry)


def _plan(entry: Entry) -> Iterator[str]:
    if entry.manifest is not None and entry.manifest.metadata_digest != digest(entry.metadata):
        yield "txbatch.batch.metadata is not the plan that its attempt read"
    intervals = [each.interval for each in entry.plan.streams.values() if isinstance(each, OfInterval)]
    planned = Interval(*map(datetime.fromisoformat, intervals[0])) if intervals else None
    if planned != entry.interval:
        yield f"txbatch.batch.data_interval is {entry.interval or 'null'}, its plan is of {planned or 'none'}"


def _partitions(entry: Entry) -> Iterator[str]:
    expected = dict(_planned(entry))
    for where in sorted(expected.keys() | entry.partitions.keys()):
        name = f"txbatch.partition: of stream {where[0]!r}, partition {where[1]!r},"
        stored, planned = entry.partitions.get(where), expected.get(where)
        if stored is None or planned is None:
            yield f"{name} {'nothing is told, and it was planned' if stored is None else 'is told, and it was not planned'}"
        elif stored.metadata != planned.metadata:
            yield f"{name} metadata is not what the batch planned"
        elif stored != planned and (entry.manifest is not None or entry.standing.kind is BatchKind.SKIP):
            yield f"{name} it says {_told(stored)}, and what was told at the time is {_told(planned)}"


def _planned(entry: Entry) -> Iterator[tuple[Where, PartitionRow]]:
    """Yield the expected rows of partitions, by plan and manifest."""
    for stream, plan in entry.plan.streams.items():
        for partition in plan.unreadable:
            yield (stream, partition), PartitionRow(UNREADABLE, {})
        for partition, range_ in plan.ranges.items():
            if entry.standing.kind is BatchKind.SKIP:
                yield (stream, partition), PartitionRow(SKIPPED, range_)
                continue
            read = entry.manifest.streams.get(stream, {}).get(partition) if entry.manifest else None
            yield (stream, partition), PartitionRow(READ if read else UNREADABLE, range_, read)


def _told(row: PartitionRow) -> str:
    return f"{row.status}, {row.read.records:,} records, fingerprint {row.read.fingerprint}" if row.read else row.status


def _counts(entry: Entry) -> Iterator[str]:
    if entry.standing.kind is BatchKind.SKIP:
        return
    if entry.manifest is not None and entry.ahead != (ahead := ahead_of(entry.manifest) or _NONE):
        of, says = (f"{records or 'none'} up to {to}" for records, to in (entry.ahead, ahead))
        yield f"txbatch.batch.ahead is {of}, its attempt's manifest says {says}"
    if entry.rebuilt is not None:
        yield from _as_rebuilt(entry, entry.rebuilt)
        return
    read = sum(each.read.records for each in entry.partitions.values() if each.read)
    if entry.records != read:
        yield f"txbatch.batch.records is {entry.records}, its partitions have {read} records"
    if entry.manifest is not None:
        staged = entry.manifest.states
        kept = {state: of.kept for state, of in staged.items() if of.kept is not None}
        yield from _otherwise("txbatch.batch.kept", entry.kept, kept, "its attempt's manifest")
        late = {state: of.late for state, of in staged.items()}
        yield from _otherwise("txbatch.batch.late", entry.late, late, "its attempt's manifest")


def _as_rebuilt(entry: Entry, rebuilt: Rebuilt) -> Iterator[str]:
    if not entry.replaced_in_rebuild:
        yield from _otherwise("txbatch.batch.keys", entry.keys, rebuilt.keys, "txbatch.rebuilt")
        yield from _otherwise("txbatch.batch.kept", entry.kept, rebuilt.kept or {}, "txbatch.rebuilt")
    if entry.records != rebuilt.records:
        yield f"txbatch.batch.records is {entry.records}, txbatch.rebuilt says {rebuilt.records}"
    if rebuilt.streams is not None:
        read = sum(each.records for parts in rebuilt.streams.values() for each in parts.values())
        if read != rebuilt.records:
            yield f"txbatch.rebuilt.records is {rebuilt.records}, its streams have {read} records"


def _otherwise(what: str, said: Counts, expected: Mapping[str, int | None], where: str) -> Iterator[str]:
    """Yield a text for each state with different counts. A state renamed since has one count only, and is not compared."""
    for state in sorted(said.keys() & expected.keys()):
        if said[state] != expected[state]:
            yield f"{what} of state {state!r} is {said[state]}, {where} says {expected[state]}"


def _times(entry: Entry) -> Iterator[str]:
    moments = [
        ("txbatch.attempt.finished_at", entry.emitted_at),
        ("txbatch.batch.committed_at", entry.standing.committed_at),
        ("txbatch.batch.succeeded_at", entry.succeeded_at),
    ]
    known = [(name, moment) for name, moment in moments if moment is not None]
    for (before, earlier), (after, later) in pairwise(known):
        if later < earlier - CLOCK_SLACK:
            yield f"{after} is {later:%Y-%m-%d %H:%M:%S%z}, before {before}, {earlier:%Y-%m-%d %H:%M:%S%z}"
