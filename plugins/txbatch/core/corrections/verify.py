"""Verify: what a committed batch reads when it is read again, compared with what the ledger's database holds (R24).

Decides only. `run.verify` asks for the records again and for the comparison, `postgres.corrections.verify` compares.

>>> compared = Compared("sales", keys=2, different=1, why_not=None)
>>> judge([compared]), judge([Compared("sales", keys=2)]), judge([Compared("sales", why_not="folded"), compared])
(<Outcome.DIFFERENT: 'DIFFERENT'>, <Outcome.EQUAL: 'EQUAL'>, <Outcome.DIFFERENT: 'DIFFERENT'>)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from random import Random
from typing import Any, Protocol

from txbatch.core.batch.manifest import Manifest, ReadPartition
from txbatch.core.batch.plan import BatchPlan, OfInterval, Ranges, StreamPlan
from txbatch.core.batch.transaction import Assignment, Interval
from txbatch.core.corrections.audit import Audit
from txbatch.core.errors import Unverifiable
from txbatch.core.topology.topology import Topology

# As far, in parts of the greater one, two sums of doubles may lie apart and count as equal.
TOLERANCE = 1e-9
# As many keys that differ are told of a batch or a state.
EXAMPLES_MAX = 10
Read = Mapping[str, Mapping[str, ReadPartition]]


class Outcome(StrEnum):
    """What verifying came to. Nothing but EQUAL and SKIPPED is well."""

    EQUAL = "EQUAL"
    DIFFERENT = "DIFFERENT"
    UNVERIFIABLE = "UNVERIFIABLE"
    SKIPPED = "SKIPPED"

    @property
    def ok(self) -> bool:
        """True where nothing is wrong: a batch that was given up on purpose has nothing to be compared."""
        return self in (Outcome.EQUAL, Outcome.SKIPPED)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the ledger says of the version of a position that counts: how it was planned, and what it read.

    `states` are those that it counted, `code` the digest of the job that did, `reason` why its records were `skipped`.
    """

    topology: str
    position: int
    txid: int
    plan: BatchPlan
    read: Read
    states: frozenset[str]
    code: str | None = None
    skipped: bool = False
    reason: str | None = None

    @property
    def interval(self) -> Interval | None:
        """The interval of the streams that read by time."""
        for planned in self.plan.streams.values():
            if isinstance(planned, OfInterval):
                return Interval(*map(datetime.fromisoformat, planned.interval))
        return None

    def plan_again(self) -> BatchPlan:
        """Return the plan of what was read: holes stay holes."""
        streams = {
            name: _read_again(planned, self.read[name])
            for name, planned in self.plan.streams.items()
            if self.read.get(name)
        }
        return replace(self.plan, streams=streams)


def _read_again(planned: StreamPlan, read: Mapping[str, ReadPartition]) -> StreamPlan:
    return replace(planned.only(read), unreadable={}) if isinstance(planned, Ranges) else planned


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """A key with the values that are stored and those that come out again, as texts; None: there is no such key."""

    key: Mapping[str, str]
    stored: Mapping[str, str | None] | None
    recomputed: Mapping[str, str | None] | None


@dataclass(frozen=True, slots=True)
class Compared:
    """How a state's rows, or a batch's contributions to it, compare: so many keys, so many of them different.

    `why_not` says why they could not be compared.
    """

    state: str
    keys: int = 0
    different: int = 0
    examples: tuple[KeyDifference, ...] = ()
    why_not: str | None = None

    @property
    def outcome(self) -> Outcome:
        """What it comes to."""
        if self.why_not is not None:
            return Outcome.UNVERIFIABLE
        return Outcome.DIFFERENT if self.different else Outcome.EQUAL


@dataclass(frozen=True, slots=True)
class Finding:
    """What verifying a batch, a state or the whole came to.

    `changed` names files that differ from what was counted, `restate` the command that would count them as they are.
    """

    what: str
    outcome: Outcome | None = None
    position: int | None = None
    txid: int | None = None
    state: str | None = None
    records: int | None = None
    keys: int | None = None
    reason: str | None = None
    compared: tuple[Compared, ...] = ()
    changed: Sequence[Mapping[str, str]] = field(default=())
    restate: str | None = None

    @property
    def name(self) -> str:
        """What it is about, for people."""
        if self.what != "batch":
            return f"{self.what} {self.state}" if self.state else self.what
        return f"txid {self.txid}" + (f" (restates {self.position})" if self.position != self.txid else "")

    @property
    def outcome_told(self) -> str:
        """The outcome, for people: what has none is not counted at all."""
        return str(self.outcome or "NOT COUNTED")

    @property
    def ok(self) -> bool:
        """True unless somebody should look: what is told without an outcome is missing."""
        return self.outcome is not None and self.outcome.ok


def judge(compared: Iterable[Compared]) -> Outcome:
    """Return what several comparisons come to: a difference that is found weighs more than what could not be compared."""
    found = {each.outcome for each in compared}
    worst = (each for each in (Outcome.DIFFERENT, Outcome.UNVERIFIABLE) if each in found)
    return next(worst, Outcome.EQUAL)


def check_read(recorded: Recorded, manifest: Manifest) -> None:
    """Unverifiable when other records were read now than were counted: it names stream, partition, and how many."""
    for stream, partitions in recorded.read.items():
        for partition, counted in partitions.items():
            where = f"partition {partition!r} of stream {stream!r}" if partition else f"stream {stream!r}"
            if (hole := manifest.unreadable.get(stream, {}).get(partition)) is not None:
                raise Unverifiable(f"{where} cannot be read: {hole}")
            now = manifest.streams.get(stream, {}).get(partition)
            if now != counted:
                raise Unverifiable(f"{where} has changed since: {_told(counted, now)}")


def _told(counted: ReadPartition, now: ReadPartition | None) -> str:
    if now is None:
        return f"{counted.records:,} records were counted, now it is not there"
    if now.records == counted.records:
        return f"{counted.records:,} records were counted, now there are as many, but others"
    return f"{counted.records:,} records were counted, now there are {now.records:,}"


def late(recorded: Recorded, now: Read) -> str | None:
    """Return what has come into a batch's interval since it was counted, if anything has."""
    for stream, partitions in now.items():
        counted = recorded.read.get(stream, {})
        before, after = (sum(each.records for each in parts.values()) for parts in (counted, partitions))
        if after > before:
            return f"{after - before:,} records of stream {stream!r} came late and are not counted"
        if dict(partitions) != dict(counted):
            return f"the interval of stream {stream!r} has {after:,} records now, others than the {before:,} that are counted"
    return None


def reason_if_folded(txid: int, horizon: int) -> str | None:
    """Return why a batch's contributions cannot be compared: retention folded them (R22)."""
    return (
        f"txid {txid} is folded: what single batches up to {horizon} contributed is not kept"
        if txid <= horizon
        else None
    )


def sample(positions: Sequence[int], size: int, seed: int) -> list[int]:
    """Return so many of the positions, in order: the same ones for the same seed."""
    return sorted(Random(seed).sample(positions, min(size, len(positions))))  # noqa: S311 (no secret)


@dataclass(frozen=True, slots=True)
class Again:
    """What a batch came to when it was read again, and what its driver was told."""

    assignment: Assignment
    manifest: Manifest
    partials: Callable[[], Mapping[str, Any]]
    remove: Callable[[], None]


class EmitAgain(Protocol):
    """Reads batches beside the ledger. `launch.emit_again` does it."""

    def emit(self, topology: str, txid: int, plan: BatchPlan, position: int) -> Again:
        """Read what a plan names, and aggregate it; Unverifiable with the reason when that fails."""

    def emit_bulk(self, topology: str, plans: Mapping[int, tuple[BatchPlan, int]]) -> Mapping[int, Again]:
        """Do the same of several by one job: plans that go together (`core.protocol.bulk`), with their positions, by txid.

        Return by txid what came of them. What failed is not among that: emitted by itself, it says why.
        """

    def close(self) -> None:
        """Remove what was staged, and end Spark."""


class Books(Protocol):
    """What verifying asks of the ledger's database, which it never changes. `postgres.corrections.verify` answers."""

    def audit(self, topology: Topology) -> Audit:
        """Return what of the ledger contradicts itself; the job is defined as the ledger knows it."""

    def current(self, topology: str) -> dict[int, bool]:
        """Return the positions that are committed, in order, and whether each is folded in all states (R22).

        UnknownName when there is no such topology.
        """

    def recorded(self, topology: str, txid: int) -> Recorded:
        """Return the version that counts for the position of a txid.

        UnknownName when there is no such txid, TerminalError when it is not committed.
        """

    def foldable(self, topology: Topology, recorded: Recorded) -> list[Compared]:
        """Return the states whose contributions of this batch are folded, each with the reason."""

    def compare(
        self, topology: Topology, recorded: Recorded, manifest: Manifest, partials: Mapping[str, Any]
    ) -> list[Compared]:
        """Compare a batch's partials with its contributions, state by state. Unverifiable when it was replaced meanwhile."""

    def states(self, topology: Topology) -> list[Compared]:
        """Compare each state that has contributions with what those amount to."""

    def recount(self, topology: Topology, state: str, partials: Iterable[Any], newest: int) -> Compared:
        """Compare a state without contributions with the partials of all its batches, of which `newest` is the last."""

    def missing(self, topology: str) -> list[str]:
        """Return what is not counted: gaps between intervals, and holes that no batch has filled."""
