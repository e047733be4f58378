"""Verify: a committed batch is read again, and the result compared with the ledger's database (R24).

`core` decides. `run.verify` asks for the records and for the comparison, `postgres.corrections.verify` compares.

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

# How far equal sums of doubles may lie apart, in parts of the greater sum.
TOLERANCE = 1e-9
# How many different keys are shown for a batch or a state.
EXAMPLES_MAX = 10
Read = Mapping[str, Mapping[str, ReadPartition]]


class Outcome(StrEnum):
    """The outcome of verifying. Only EQUAL and SKIPPED are well."""

    EQUAL = "EQUAL"
    LATE = "LATE"  # the counted records are EQUAL, and the interval has further records now
    DIFFERENT = "DIFFERENT"
    UNVERIFIABLE = "UNVERIFIABLE"
    SKIPPED = "SKIPPED"

    @property
    def ok(self) -> bool:
        """True if nothing is wrong: a batch given up on purpose has nothing to compare."""
        return self in (Outcome.EQUAL, Outcome.SKIPPED)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The counting version of a position in the ledger: the plan, and the records read.

    `states` are the states counted by the version, `code` is the digest of the job. If the records were `skipped`, `reason` is
    why.
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
        """The interval of the streams by time; None without such streams."""
        for planned in self.plan.streams.values():
            if isinstance(planned, OfInterval):
                return Interval(*map(datetime.fromisoformat, planned.interval))
        return None

    def plan_again(self) -> BatchPlan:
        """Return the plan without unread partitions: holes stay holes."""
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
    """A key with the stored and the recomputed values, as texts; None if the key is missing."""

    key: Mapping[str, str]
    stored: Mapping[str, str | None] | None
    recomputed: Mapping[str, str | None] | None


@dataclass(frozen=True, slots=True)
class Compared:
    """The comparison of a state's rows, or of a batch's contributions to a state: the number of keys, and of different keys.

    `why_not` is the reason if a comparison is impossible.
    """

    state: str
    keys: int = 0
    different: int = 0
    examples: tuple[KeyDifference, ...] = ()
    why_not: str | None = None

    @property
    def outcome(self) -> Outcome:
        """The outcome of the comparison."""
        if self.why_not is not None:
            return Outcome.UNVERIFIABLE
        return Outcome.DIFFERENT if self.different else Outcome.EQUAL


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of verifying a batch, a state or the whole topology.

    `changed` names files that differ from the counted files; `restate` is the command that counts the present files.
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
        """The name of the batch or state, for people."""
        if self.what != "batch":
            return f"{self.what} {self.state}" if self.state else self.what
        return f"txid {self.txid}" + (f" (restates {self.position})" if self.position != self.txid else "")

    @property
    def outcome_told(self) -> str:
        """The outcome, for people; without an outcome, not counted at all."""
        return str(self.outcome or "NOT COUNTED")

    @property
    def ok(self) -> bool:
        """True unless somebody should look: a finding without an outcome is about something missing."""
        return self.outcome is not None and self.outcome.ok


def judge(compared: Iterable[Compared]) -> Outcome:
    """Return the outcome of several comparisons: a difference weighs more than an impossible comparison."""
    found = {each.outcome for each in compared}
    worst = (each for each in (Outcome.DIFFERENT, Outcome.UNVERIFIABLE) if each in found)
    return next(worst, Outcome.EQUAL)


def check_read(recorded: Recorded, manifest: Manifest) -> None:
    """Raise Unverifiable, with stream, partition and numbers, if other records were read than counted."""
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
        return f"{counted.records:,} records were counted, now other {now.records:,} records are there"
    return f"{counted.records:,} records were counted, now there are {now.records:,}"


def late(recorded: Recorded, now: Read) -> str | None:
    """Return a text about new or other records in a batch's interval since the count; None if unchanged."""
    for stream, partitions in now.items():
        counted = recorded.read.get(stream, {})
        before, after = (sum(each.records for each in parts.values()) for parts in (counted, partitions))
        if after > before:
            return f"{after - before:,} records of stream {stream!r} came late and are not counted"
        if dict(partitions) != dict(counted):
            return f"the interval of stream {stream!r} has {after:,} records now, others than the {before:,} that are counted"
    return None


def reason_if_folded(txid: int, horizon: int) -> str | None:
    """Return why a batch's contributions cannot be compared, if retention folded them (R22); None if not folded."""
    return (
        f"txid {txid} is folded: what single batches up to {horizon} contributed is not kept"
        if txid <= horizon
        else None
    )


def sample(positions: Sequence[int], size: int, seed: int) -> list[int]:
    """Return `size` of the positions, in order: the same positions for the same seed."""
    return sorted(Random(seed).sample(positions, min(size, len(positions))))  # noqa: S311 (no secret)


@dataclass(frozen=True, slots=True)
class Again:
    """The result of reading a batch again, and the driver's assignment."""

    assignment: Assignment
    manifest: Manifest
    partials: Callable[[], Mapping[str, Any]]
    remove: Callable[[], None]


class EmitAgain(Protocol):
    """The port that reads batches again without the ledger: `launch.emit_again`."""

    def emit(self, topology: str, txid: int, plan: BatchPlan, position: int) -> Again:
        """Read and aggregate a plan's records. Raise Unverifiable, with the reason, on failure."""

    def emit_bulk(self, topology: str, plans: Mapping[int, tuple[BatchPlan, int]]) -> Mapping[int, Again]:
        """Emit several plans by one job: plans that go together (`core.protocol.bulk`), with positions, by txid.

        Return the results by txid, without failed plans. To learn the reason, `emit` a failed plan alone.
        """

    def begin_bulk(
        self, topology: str, plans: Mapping[int, tuple[BatchPlan, int]]
    ) -> Callable[[], Mapping[int, Again]]:
        """Begin the work of `emit_bulk`, and return at once.

        The returned function waits for the end, and returns what `emit_bulk` does; call the function before emitting more.
        """

    def close(self) -> None:
        """Remove the staged files, and end Spark."""


class Books(Protocol):
    """The port by which verifying reads the ledger's database, without changes: `postgres.corrections.verify`."""

    def audit(self, topology: Topology) -> Audit:
        """Return the contradictions in the ledger; the job's definition is the stored one."""

    def current(self, topology: str) -> dict[int, bool]:
        """Return the committed positions, in order, and whether each is folded in all states (R22).

        Raise UnknownName if no such topology is stored.
        """

    def recorded(self, topology: str, txid: int) -> Recorded:
        """Return the counting version for the position of a txid.

        Raise UnknownName if the topology has no such txid, TerminalError if the txid is not committed.
        """

    def foldable(self, topology: Topology, recorded: Recorded) -> list[Compared]:
        """Return the states in which the batch's contributions are folded, each with the reason."""

    def compare(
        self, topology: Topology, recorded: Recorded, manifest: Manifest, partials: Mapping[str, Any]
    ) -> list[Compared]:
        """Compare a batch's partials and contributions, state by state. Raise Unverifiable if a restate came meanwhile."""

    def states(self, topology: Topology) -> list[Compared]:
        """Compare each state with contributions with the fold of the contributions."""

    def recount(self, topology: Topology, state: str, partials: Iterable[Any], newest: int) -> Compared:
        """Compare a state without contributions with the partials of all batches up to `newest`."""

    def missing(self, topology: str) -> list[str]:
        """Return what is not counted: gaps between intervals, and holes not filled by any batch."""
