"""Transactions: txid, attempt, batch, run, and the JSON in which metadata is kept and compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from txbatch.core.errors import InvalidPlan, InvalidSchedule, WhyMissing
from txbatch.core.formats import check_format

if TYPE_CHECKING:
    from txbatch.core.batch.loaded import Loaded
    from txbatch.core.batch.plan import BatchPlan

INIT_TXID = 1
INTERVAL_KEY = "interval:"
RESTATE_KEY = "restate:"
ASSIGNMENT_FORMAT = 1
# What a spout may plan, unless it says otherwise; and what the ledger takes: a manifest has more to say of a partition
# than its plan, but not ten times as much.
METADATA_BYTES_MAX = 1_000_000
STORED_BYTES_MAX = 100_000_000
# How many batches are asked for at once: the intervals that one is cut into.
INTERVALS_MAX = 20_000
# What a coordinator plans and an emitter reads: JSON.
Metadata = Mapping[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class TransactionAttempt:
    """One try at a txid. `attempt_id` rises with every emit attempt: it is the fence (R5). Prints `7:2`."""

    txid: int
    attempt_id: int

    def __str__(self) -> str:
        return f"{self.txid}:{self.attempt_id}"


@dataclass(frozen=True, slots=True)
class Interval:
    """A half-open range of time, in UTC."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if not all(isinstance(each, datetime) for each in (self.start, self.end)):
            raise InvalidSchedule(
                f"interval {self.start!r}/{self.end!r} is not one: give two datetimes, both with a zone"
            )
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise InvalidSchedule(f"interval {self.start}/{self.end} is not one: give both with a zone")
        if self.start >= self.end:
            raise InvalidSchedule(f"interval {self.start}/{self.end} is not one: give start before end")
        object.__setattr__(self, "start", self.start.astimezone(UTC))
        object.__setattr__(self, "end", self.end.astimezone(UTC))

    def __str__(self) -> str:
        return f"{self.start.isoformat()}/{self.end.isoformat()}"


class BatchStatus(StrEnum):
    """planned -> emitted -> committed, or planned/emitted -> aborted. The last two are final."""

    PLANNED = "planned"
    EMITTED = "emitted"
    COMMITTED = "committed"
    ABORTED = "aborted"

    @property
    def final(self) -> bool:
        return self in (BatchStatus.COMMITTED, BatchStatus.ABORTED)


class BatchKind(StrEnum):
    """What a txid is for: records of its own, those of another txid counted again (R17), or records given up (R16)."""

    ORDINARY = "ordinary"
    RESTATE = "restate"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Restate:
    """What is to be counted again: the batch at `position`, and why, and by whom it was asked for.

    `accept_missing` counts it also where some of it cannot be read; `skipped` says that it may be one that was given up.
    """

    position: int
    why: str
    by: str | None = None
    accept_missing: bool = False
    skipped: bool = False

    def __post_init__(self) -> None:
        if not self.why.strip():
            raise WhyMissing(f'txid {self.position}: say why it is counted again: --why "..."')


@dataclass(frozen=True, slots=True)
class Run:
    """Who asks for a batch: a DAG run or a call of `txbatch run`. Its key finds the batch again (R2).

    `name` is unique to the run and the same in all its retries and clears. `parameters` are those of the run's that
    choose data, which the topology's spouts declare; they must be the same each time. A run with `restate` has no interval
    and no parameters of its own: it reads by those of the batch that it counts again.
    """

    name: str
    dag_id: str | None = None
    run_id: str | None = None
    interval: Interval | None = None
    parameters: Metadata = field(default_factory=dict, hash=False)
    restate: Restate | None = None

    @property
    def key(self) -> str:
        """The batch key: the interval for spouts that read by time, else the run; of a restate, the run and its position."""
        if self.restate:
            return f"{RESTATE_KEY}{self.restate.position}:{self.name}"
        return f"{INTERVAL_KEY}{self.interval}" if self.interval else f"run:{self.name}"


@dataclass(frozen=True)
class Batch:
    """A row of the ledger: a txid with its metadata, which is its plan as stored, as of when it was read.

    `position` is the txid that it stands for: its own, unless it is a restate. It counts once it is committed, until a restate
    takes its place: `replaced_by`.
    """

    topology: str
    txid: int
    status: BatchStatus
    metadata: Metadata
    key: str
    prev_txid: int | None = None
    fence: int = 0
    token: str | None = None
    lease_run: str | None = None
    lease_live: bool = False
    succeeded: bool = False
    created_at: datetime | None = None
    kind: BatchKind = BatchKind.ORDINARY
    position: int = 0
    replaced_by: int | None = None
    reason: str | None = None
    requested_by: str | None = None
    records: int | None = None  # of a committed one

    def __post_init__(self) -> None:
        if not self.position:
            object.__setattr__(self, "position", self.txid)

    @property
    def restate(self) -> Restate | None:
        """Return what the batch counts again; None for one that is no restate."""
        if self.kind is not BatchKind.RESTATE:
            return None
        missing = not self.plan.whole
        return Restate(self.position, self.reason or "restate", self.requested_by, missing, skipped=True)

    @cached_property
    def plan(self) -> BatchPlan:
        """Return what the batch reads. NewerFormat for what a newer txbatch planned."""
        from txbatch.core.batch.plan import BatchPlan  # no definition needs it

        return BatchPlan.from_json(self.metadata, f"{self.topology}: the plan of txid {self.txid}")

    @property
    def by_interval(self) -> bool:
        """True if the batch has a data interval, by which its run finds it and which no other may overlap (R2)."""
        return self.key.startswith(INTERVAL_KEY)

    @property
    def attempt(self) -> TransactionAttempt:
        """The newest attempt; attempt_id 0 before the first."""
        return TransactionAttempt(self.txid, self.fence)

    @property
    def planned_at(self) -> int | None:
        """When it was planned, in microseconds since 1970; None where nobody says it."""
        from txbatch.core.records.time_buckets import micros_of

        return None if self.created_at is None else micros_of(self.created_at)


@dataclass(frozen=True)
class Assignment:
    """What one emit attempt is told: all that Spark gets to know, written to the attempt's folder (R5).

    `position` is the txid that its batch stands for: its own, unless it is a restate. `planned_at` is when that was planned, in
    microseconds since 1970; None where it is read once more, to be compared or rebuilt. `loaded` is the job as whoever begins the
    attempt loaded it; the ledger does not keep it.
    """

    topology: str
    attempt: TransactionAttempt
    token: str
    metadata: Metadata
    code: str
    position: int = 0
    planned_at: int | None = None
    loaded: Loaded | None = None

    def __post_init__(self) -> None:
        if not self.position:
            object.__setattr__(self, "position", self.attempt.txid)

    @cached_property
    def plan(self) -> BatchPlan:
        """Return what the attempt reads. NewerFormat for what a newer txbatch planned."""
        from txbatch.core.batch.plan import BatchPlan  # no definition needs it

        return BatchPlan.from_json(self.metadata, f"{self.topology} {self.attempt}: the plan")

    @cached_property
    def digest(self) -> str:
        """The metadata's digest, repeated by the manifest."""
        return digest(self.metadata)

    def to_json(self) -> dict[str, Any]:
        """Return what assignment.json holds."""
        position = {} if self.position == self.attempt.txid else {"position": self.position}
        planned_at = {} if self.planned_at is None else {"planned_at": self.planned_at}
        return {
            "format": ASSIGNMENT_FORMAT,
            "topology": self.topology,
            "txid": self.attempt.txid,
            "attempt_id": self.attempt.attempt_id,
            "token": self.token,
            "code": self.code,
            "metadata_digest": self.digest,
            "metadata": self.metadata,
            **position,
            **planned_at,
            **({} if self.loaded is None else {"loaded": self.loaded.to_json()}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Assignment:
        """Return what `to_json` made; raise NewerFormat for what a newer txbatch wrote."""
        from txbatch.core.batch.loaded import Loaded

        check_format("the assignment", value, ASSIGNMENT_FORMAT)
        attempt = TransactionAttempt(value["txid"], value["attempt_id"])
        loaded = Loaded.from_json(value["loaded"]) if "loaded" in value else None
        of = value.get("position", 0), value.get("planned_at"), loaded
        return cls(value["topology"], attempt, value["token"], value["metadata"], value["code"], *of)


def canonical_json(value: Any, bytes_max: int = METADATA_BYTES_MAX) -> str:
    """The one spelling of a JSON value; DefinitionError for what is not JSON or over `bytes_max`, 1 MB."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except (TypeError, ValueError) as error:
        raise InvalidPlan(f"metadata is not JSON: {error}; return dicts, lists, strings, integers") from error
    if size > bytes_max:
        raise InvalidPlan(
            f"metadata has {size:,} bytes; at most {bytes_max:,}: plan smaller batches, of fewer partitions or files "
            "(files_per_batch=, a narrower pattern= or root, small files merged into larger ones)"
        )
    return text


def digest(value: Any) -> str:
    """sha256 of the canonical JSON, in hex."""
    import hashlib  # here, as OpenSSL would be a twentieth of what importing a job takes

    return hashlib.sha256(canonical_json(value, STORED_BYTES_MAX).encode()).hexdigest()
